"""The four kinds of updates on two real SGLang servers: what they run afterwards is asked of the servers themselves.

Tensors need torch, which is in the environment of the servers and not in ours: the trainer is a process of that
interpreter (``tests/support/weights_trainer.py``) with the manager in it, as in a real trainer.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sglang_traffic import greedy
from tests.support.trajectories import call
from tests.support.update_scope import SmallScope, small_scope
from trimtab import Lease, ParkedAcquire, Pool
from trimtab_manager.sim import Fault, SimConfig, running_engine
from trimtab_manager.weights import FromDisk, Label, UpdateFailed, WeightUpdates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from tests.support.sglang_server import Installation, SglangServer

    Pair = tuple[SglangServer, SglangServer]

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
BUCKET_BYTES = 100_000
"""The tiny model has 460 kB: a handful of buckets."""
TRAINER_S = 150


@pytest.fixture
async def scope(sglang_pair: Pair) -> AsyncIterator[SmallScope]:
    """Both servers on version 1, with the weights of seed 0."""
    for server in sglang_pair:
        server.call("/update_weight_version", {"new_version": "1", "abort_all_requests": False})
    async with small_scope([server.url for server in sglang_pair]) as scope:
        yield scope


@pytest.fixture
def updates(scope: SmallScope) -> WeightUpdates:
    """Their updates."""
    return WeightUpdates(scope)


async def test_disk_under_load(
    sglang_installation: Installation,
    sglang_pair: Pair,
    scope: SmallScope,
    updates: WeightUpdates,
    http: aiohttp.ClientSession,
) -> None:
    """Sixteen requests run while the weights are replaced: none fails, all are cut, and none sees two weights.

    They hold leases; a client that was cut goes on with the new weights under a lease of the new version.
    """
    for server in sglang_pair:
        server.slow_down(0.02)
    outcomes: list[tuple[str, list[str]]] = []

    async def trajectory(number: int) -> None:
        tokens: list[int] = []
        while len(tokens) < 100:
            lease = await granted(scope.pool, f"s{number}")
            body = greedy((number, *PROMPT, *tokens), 100 - len(tokens))
            answer = await call(http, f"{lease.url}/generate", body)
            meta = answer["meta_info"]
            aborted = meta["finish_reason"]["type"] == "abort"
            labels = [span["version"] for span in meta["weight_versions"]]
            assert set(labels) <= {str(lease.weight_version)}
            lease.settle("aborted" if aborted else "completed")
            outcomes.append((meta["finish_reason"]["type"], labels))
            tokens += answer["output_ids"]

    sessions = [asyncio.ensure_future(trajectory(number)) for number in range(16)]
    for server in sglang_pair:
        await server.in_flight(8)
    result = await updates.update(FromDisk(str(sglang_installation.models[1])), 2, checksums=True)
    assert result.ok, result
    for server in sglang_pair:
        server.slow_down(None)
    await asyncio.gather(*sessions)
    assert [kind for kind, _ in outcomes].count("abort") == 16
    assert [kind for kind, _ in outcomes].count("length") == 16
    assert_runs(sglang_installation, sglang_pair, seed=1, version="2")
    assert scope.states() == {"e0": "eligible", "e1": "eligible"}


async def test_b3_a_label_aborts_nothing(
    sglang_pair: Pair, scope: SmallScope, updates: WeightUpdates, http: aiohttp.ClientSession
) -> None:
    """Requests that run when a label changes come to their own end, and the version is published after that."""
    for server in sglang_pair:
        server.slow_down(0.01)

    async def one(number: int) -> str:
        lease = scope.pool.acquire(f"s{number}")
        answer = await call(http, f"{lease.url}/generate", greedy((number, *PROMPT), 60))
        lease.settle("completed")
        return str(answer["meta_info"]["finish_reason"]["type"])

    running = [asyncio.ensure_future(one(number)) for number in range(16)]
    for server in sglang_pair:
        await server.in_flight(8)
    assert (await updates.update(Label(), 2)).ok
    assert await asyncio.gather(*running) == ["length"] * 16
    assert [server.call("/model_info")["weight_version"] for server in sglang_pair] == ["2", "2"]


async def test_a_path_that_does_not_exist_changes_nothing(
    sglang_installation: Installation, sglang_pair: Pair, scope: SmallScope, updates: WeightUpdates
) -> None:
    """SGLang refuses before it touches a weight: both servers go on with what they had, and the next update works."""
    with pytest.raises(UpdateFailed, match="version 1 stays published") as failure:
        await updates.update(FromDisk("/no/such/checkpoint"), 2)
    assert [row.status for row in failure.value.result.engines] == ["error", "error"]
    assert scope.states() == {"e0": "eligible", "e1": "eligible"}
    assert_runs(sglang_installation, sglang_pair, seed=0, version="1")
    assert (await updates.update(FromDisk(str(sglang_installation.models[1])), 2)).ok


@pytest.mark.parametrize("kind", ["tensor", "distributed"])
async def test_weights_of_a_trainer(sglang_installation: Installation, sglang_pair: Pair, kind: str) -> None:
    """After the update the servers hold, number by number, what a load of the same checkpoint from disk gives."""
    answer = await train(sglang_installation, sglang_pair, kind)
    assert answer["error"] is None, answer
    assert [row["status"] for row in answer["rows"]] == ["ok", "ok"]
    assert (answer["states"], answer["version"]) == ({"e0": "eligible", "e1": "eligible"}, 2)
    found = {checksum(server) for server in sglang_pair}
    assert_runs(sglang_installation, sglang_pair, seed=1, version="2")
    sglang_pair[0].call(
        "/update_weights_from_disk", {"model_path": str(sglang_installation.models[1]), "weight_version": "2"}
    )
    assert found == {checksum(sglang_pair[0])}


@pytest.mark.parametrize("kind", ["tensor", "distributed"])
async def test_tensors_that_do_not_fit_are_refused_before_a_byte_is_sent(
    sglang_installation: Installation, sglang_pair: Pair, kind: str
) -> None:
    """A wrong shape would kill the servers: it is named instead, and they serve on as if nothing had happened."""
    answer = await train(sglang_installation, sglang_pair, kind, reshape=True)
    assert "of another shape or type" in answer["error"]
    assert "nothing was sent" in answer["error"]
    assert_runs(sglang_installation, sglang_pair, seed=0, version="1")


@pytest.mark.parametrize("how", ["hangs", "dies"])
async def test_an_engine_that_leaves_the_group_holds_up_nobody(
    sglang_installation: Installation, sglang_pair: Pair, how: str
) -> None:
    """A third engine is in the group and never joins: within the deadline the trainer is free, and so are the others.

    They may hold part of the weights, so they are tainted; a full load brings them back.
    """
    config = SimConfig(model_path=str(sglang_installation.models[0]), time_scale=0)
    async with running_engine(config) as third:
        third.engine.weights.relabel("1")
        kind = "hold" if how == "hangs" else "crash"
        third.engine.arm(Fault(kind=kind, path="/init_weights_update_group"))
        answer = await train(sglang_installation, sglang_pair, "distributed", more=[third.url], transfer_s=12)
        third.engine.disarm()
    assert "stays published" in answer["error"]
    assert answer["version"] == 1
    assert answer["seconds"] < (25 if how == "hangs" else 10), answer
    await repaired(sglang_installation, sglang_pair)


async def test_an_engine_that_dies_in_a_broadcast_holds_up_nobody(
    sglang_installation: Installation, sglang_pair: Pair
) -> None:
    """It joined the group and is killed while the others receive: all of them fail at once, and none of them hangs."""
    rank = await asyncio.create_subprocess_exec(
        str(sglang_installation.python),
        "-m",
        "tests.support.weights_rank",
        str(sglang_installation.models[0]),
        cwd=ROOT,
        env=trainer_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert rank.stdout is not None
        port = int(await asyncio.wait_for(rank.stdout.readline(), TRAINER_S))
        more = [f"http://127.0.0.1:{port}"]
        answer = await train(sglang_installation, sglang_pair, "distributed", more=more, transfer_s=60)
        assert await asyncio.wait_for(rank.wait(), 10) == -9
    finally:
        if rank.returncode is None:
            rank.kill()
        await rank.communicate()
    assert "stays published" in answer["error"]
    assert set(answer["states"].values()) == {"tainted"}
    assert answer["seconds"] < 15, answer
    await repaired(sglang_installation, sglang_pair)


async def repaired(installation: Installation, servers: Pair) -> None:
    """Both servers, tainted, are whole again after an update from disk."""
    async with small_scope([server.url for server in servers], weight_version=1) as scope:
        for member in scope.members():
            scope.pool.taint_backend(member.backend)
        assert (await WeightUpdates(scope).update(FromDisk(str(installation.models[1])), 2)).ok
        assert scope.states() == {"e0": "eligible", "e1": "eligible"}
    assert_runs(installation, servers, seed=1, version="2")


async def train(
    installation: Installation, servers: Pair, kind: str, *, more: list[str] | None = None, **changes: Any
) -> dict[str, Any]:
    """Have a trainer send the weights of seed 1 as version 2 to servers that are on version 1."""
    for server in servers:
        server.call("/update_weight_version", {"new_version": "1", "abort_all_requests": False})
    order = {
        "kind": kind,
        "urls": [server.url for server in servers] + (more or []),
        "checkpoint": str(installation.models[1]),
        "version": 2,
        "bucket_bytes": BUCKET_BYTES,
        **changes,
    }
    process = await asyncio.create_subprocess_exec(
        str(installation.python),
        "-m",
        "tests.support.weights_trainer",
        json.dumps(order),
        cwd=ROOT,
        env=trainer_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, problems = await asyncio.wait_for(process.communicate(), TRAINER_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, problems.decode(errors="replace")[-3000:]
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def trainer_environment() -> dict[str, str]:
    """Of a process of the other interpreter, which finds our sources, and its peers on the loopback interface."""
    sources = [ROOT, ROOT / "python", ROOT / "manager" / "src"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), "GLOO_SOCKET_IFNAME": "lo"}


async def granted(pool: Pool, session: str) -> Lease:
    """A lease, once the pool grants one."""
    waiting = pool.acquire_or_park(session, wait_s=60)
    while isinstance(waiting, ParkedAcquire):
        lease = waiting.poll(lambda: None)
        if lease is not None:
            return lease
        await asyncio.sleep(0.02)
    return waiting


def assert_runs(installation: Installation, servers: Pair, *, seed: int, version: str) -> None:
    """Both servers say ``version`` and compute what the weights of ``seed`` compute."""
    for server in servers:
        assert server.call("/model_info")["weight_version"] == version
    said = [server.generate(greedy(PROMPT, 12))["output_ids"] for server in servers]
    assert said[0] == said[1]
    servers[0].call(
        "/update_weights_from_disk", {"model_path": str(installation.models[seed]), "weight_version": version}
    )
    assert servers[0].generate(greedy(PROMPT, 12))["output_ids"] == said[0]


def checksum(server: SglangServer) -> str:
    """Of all its weights."""
    return str(server.call("/weights_checker", {"action": "checksum"})["per_engine_checksum"])

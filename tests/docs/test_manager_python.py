"""The programs of ``docs/manager-python.md`` run as they stand, but for a port and the folder of logs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.docs.pages import blocks
from tests.support.ports import free_ports
from tests.support.waiting import wait_until
from trimtab_manager.sim import SimConfig, running_engine
from trimtab_manager.weights import FromDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PAGE = "docs/manager-python.md"
TRAIN, SERVE, PUBLISH, RESYNC, GROW, SHOW, EVENTS = blocks(PAGE, "python")
(PRINTED,) = blocks(PAGE, "text")
RUNS = "asyncio.run(train(steps=2))\n"

pytestmark = pytest.mark.slow


def defined(*parts: str) -> dict[str, Any]:
    """What blocks of the page define, one after another."""
    known: dict[str, Any] = {}
    for part in parts:
        exec(compile(part.replace(RUNS, ""), PAGE, "exec"), known)
    return known


@asynccontextmanager
async def managed(known: dict[str, Any]) -> AsyncIterator[Any]:
    """The manager that the page makes, with its engines up."""
    async with known["manager"] as manager:
        await manager.activate()
        yield manager


async def ready(client: httpx.AsyncClient) -> None:
    """Return when the gateway serves."""
    while True:
        try:
            if (await client.get("/ready")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.02)


async def test_the_trainer_prints_what_the_page_says(tmp_path: Path) -> None:
    """Two steps: no version before the first update, its own one after that."""
    assert TRAIN.endswith(RUNS)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TRAIN, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    assert out.decode() == PRINTED


async def test_the_gateway_serves_and_acts_on_the_same_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request and an update from outside."""
    monkeypatch.chdir(tmp_path)
    (port,) = free_ports(1)
    assert "port=8080" in SERVE
    serve = defined(TRAIN, SERVE.replace("port=8080", f"port={port}"))["serve"]
    until = asyncio.Event()
    serving = asyncio.create_task(serve(until))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        try:
            await asyncio.wait_for(ready(client), 60)
            body = {"path": "sim://step-1", "version": 1}
            updated = await client.post("/rollout/update_weights/from_disk", json=body)
            assert (updated.status_code, updated.json()["weight_version"]) == (200, 1)
            answer = await client.post("/rollout/generate", json={"text": "2+2=", "sampling_params": {}})
            assert answer.headers["x-trimtab-weight-version"] == "1"
        finally:
            until.set()
            await serving


async def test_weights_and_membership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An update, more and fewer engines, all with the published weights; what is shown of them."""
    monkeypatch.chdir(tmp_path)
    known = defined(TRAIN, PUBLISH, RESYNC, GROW, SHOW)
    async with running_engine(SimConfig(model_name="policy", time_scale=0)) as other, managed(known) as manager:
        await known["publish"](manager, FromDisk("sim://step-1"), 1)
        await known["grow_and_shrink"](manager, other.url)
        (view,) = (model for role in manager.view() for model in role.models)
        assert [(engine.weight_version, engine.state) for engine in view.engines] == [(1, "ready")] * 3
        with pytest.raises(known["UpdateFailed"]):
            await known["publish"](manager, FromDisk("/no/such/checkpoint"), 2)
        assert "policy/1" in capsys.readouterr().out
        known["show"](manager)
        assert "rollout policy 1 serves ()" in capsys.readouterr().out


async def test_events_reach_a_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The death of an engine is printed with its pool and id; its successor has the trainer's last weights."""
    monkeypatch.chdir(tmp_path)
    known = defined(TRAIN, PUBLISH, RESYNC, EVENTS)
    logger = logging.getLogger("trimtab.manager.fleet")
    handler = logger.handlers[-1]
    assert isinstance(handler, known["Deaths"])
    try:
        async with managed(known) as manager:
            await known["publish"](manager, FromDisk("sim://step-1"), 1)
            os.kill(manager.fleet("rollout").slots["policy/0"].replica.handle.facts["pids"][0], signal.SIGKILL)

            def replaced() -> bool:
                first, _ = manager.view()[0].models[0].engines
                return bool((first.generation, first.state, first.weight_version) == (2, "ready", 1))

            await wait_until(replaced, "a new generation", deadline_s=60)
        assert "rollout/policy policy/0 " in capsys.readouterr().out
    finally:
        logger.removeHandler(handler)

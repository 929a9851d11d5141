"""The discovery document: its shape, what moves its counters, and how a copy of it is kept fresh."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.control.conftest import NOBODY, one_role, two_roles
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab import Pool
from trimtab_gateway import EngineConfig, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.publisher import Publisher, SourceSilentError
from trimtab_gateway.snapshot import Fleet, ServedRole

if TYPE_CHECKING:
    from tests.gateway.control.conftest import Served, Start
    from tests.support.lab import Lab


async def test_it_says_where_each_model_can_be_reached(serve: Start, lab: Lab) -> None:
    """The whole document for attached engines, the words of Relax among them."""
    engine = await lab.engine(one())
    served = await serve(one_role(EngineConfig(engine.authority, 8), EngineConfig(NOBODY, id="dead")))
    await served.eligible(1)
    document = await served.json("/rollout/engines")
    epoch, generation = document.pop("epoch"), document["models"]["tiny"]["engines"][0].pop("generation")
    dead = document["models"]["tiny"]["engines"].pop()
    url = f"http://{engine.authority}"
    assert len(epoch) == 32
    assert isinstance(generation, int)
    group = {"group_index": 0, "worker_type": "regular", "num_gpus_per_engine": None, "num_new_engines": 0}
    legacy = [
        {"rank": 0, "status": "active", "url": url, "pid": None, "node_id": None},
        {"rank": 1, "status": "dead", "url": f"http://{NOBODY}", "pid": None, "node_id": None},
    ]
    assert document == {
        "schema_version": 1,
        "role": "rollout",
        "topology_revision": 1,
        "snapshot_seq": document["snapshot_seq"],
        "phase": None,
        "stale": False,
        "routing": {"default_model": "tiny", "route_keys": {}},
        "models": {
            "tiny": {
                "state": "ready",
                "router_url": None,
                "weight_version": None,
                "engines": [
                    {
                        "engine_id": engine.authority,
                        "base_url": url,
                        "state": "ready",
                        "direct_eligible": True,
                        "capacity": 8.0,
                    }
                ],
                "router_ip": None,
                "router_port": None,
                "engine_groups": [{**group, "engines": legacy}],
                "total_engines": 2,
            }
        },
        "total_engines": 2,
    }
    assert (dead["engine_id"], dead["state"], dead["direct_eligible"]) == ("dead", "starting", False)


async def test_it_is_filtered_by_model_as_in_relax(serve: Start) -> None:
    """An unknown model is an empty document, not an error."""
    served = await serve(two_roles())
    document = await served.json("/rollout/engines?model_name=policy")
    assert (list(document["models"]), document["total_engines"]) == (["policy"], 1)
    document = await served.json("/rollout/engines?model_name=nope")
    assert (document["models"], document["total_engines"]) == ({}, 0)


async def test_it_counts_what_changes(serve: Start) -> None:
    """A new engine moves both counters, a health change the sequence only."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")

    async def counters() -> tuple[int, int]:
        document = await served.json("/engines")
        return document["topology_revision"], document["snapshot_seq"]

    async def moved_to(revision: int, seq: int) -> None:
        await wait_until(lambda: served.role("rollout").snapshot_seq == seq, f"sequence {seq}")
        assert await counters() == (revision, seq)

    assert await counters() == (1, 1)
    backend = pool.add_backend("127.0.0.1:10", proven=False)
    await moved_to(2, 2)
    pool.report_probe(backend, alive=True)
    await moved_to(2, 3)
    pool.remove_backend(backend.id)
    await moved_to(3, 4)


async def test_it_is_per_role(serve: Start) -> None:
    """Roles of one gateway share its epoch and nothing else; an explicit default is named."""
    served = await serve(two_roles())
    rollout, genrm = await served.json("/rollout/engines"), await served.json("/genrm/engines")
    assert rollout["epoch"] == genrm["epoch"]
    assert list(rollout["models"]) == ["policy", "Qwen/Qwen3-0.6B"]
    assert list(genrm["models"]) == ["judge"]
    assert (rollout["routing"]["default_model"], genrm["routing"]["default_model"]) == ("policy", "judge")


async def test_without_exposed_urls_nothing_says_where_an_engine_is(serve: Start) -> None:
    """No engine is eligible for direct use then, and no copy of its address is left anywhere."""
    engines = (EngineConfig(NOBODY, id="e0"),)
    role = RoleConfig("rollout", (ModelConfig("tiny", engines),), expose_engine_urls=False)
    served = await serve(GatewayConfig((role,), port=0))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    await served.forget_snapshot()
    answer = await served.get("/engines")
    model = answer.json()["models"]["tiny"]
    (engine,) = model["engines"]
    assert (model["state"], engine["state"]) == ("ready", "ready")
    assert (engine["engine_id"], engine["base_url"], engine["direct_eligible"]) == ("e0", None, False)
    assert NOBODY not in answer.text


async def test_b21_a_tainted_engine_is_named_and_not_offered(serve: Start) -> None:
    """An update of it failed: until a full reload nobody may go to it directly either."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")
    (backend,) = pool.backends()
    pool.report_probe(backend, alive=True)
    pool.publish("start", 1)
    pool.taint_backend(backend)
    await served.forget_snapshot()
    model = (await served.json("/engines"))["models"]["tiny"]
    assert (model["state"], model["engines"][0]["state"], model["engines"][0]["direct_eligible"]) == (
        "tainted",
        "tainted",
        False,
    )


async def test_b61_a_draining_engine_is_not_offered(serve: Start) -> None:
    """Its running requests end; nobody brings it new ones, whichever way."""
    served = await serve(one_role(EngineConfig(NOBODY, id="e0"), EngineConfig("127.0.0.1:10", id="e1")))
    pool = served.gateway.pool("rollout", "tiny")
    for backend in pool.backends():
        pool.report_probe(backend, alive=True)
    pool.drain_backend("e0")
    await served.forget_snapshot()
    model = (await served.json("/engines"))["models"]["tiny"]
    shown = {engine["engine_id"]: (engine["state"], engine["direct_eligible"]) for engine in model["engines"]}
    assert shown == {"e0": ("draining", False), "e1": ("ready", True)}


async def test_a_sleeping_model_is_not_offered_and_sleep_moves_no_topology(serve: Start) -> None:
    """Sleep and wake are seen by the sequence alone."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")
    pool.report_probe(pool.backends()[0], alive=True)
    await served.forget_snapshot()
    awake = await served.json("/engines")
    pool.begin_update("sleep", kind="offload")
    await served.forget_snapshot()
    asleep = await served.json("/engines")
    (engine,) = asleep["models"]["tiny"]["engines"]
    assert (asleep["models"]["tiny"]["state"], engine["state"], engine["direct_eligible"]) == (
        "sleeping",
        "sleeping",
        False,
    )
    assert asleep["topology_revision"] == awake["topology_revision"]
    assert asleep["snapshot_seq"] == awake["snapshot_seq"] + 1


async def test_a_copy_is_confirmed_by_its_tag(serve: Start) -> None:
    """304 without a body while it is the newest one, and the document once it is not."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    first = await served.get("/engines")
    tag = first.headers["etag"]
    document = first.json()
    assert tag == f'"{document["epoch"]}.{document["snapshot_seq"]}"'
    for sent in (tag, f'"other", {tag}', f"W/{tag}"):
        same = await served.client.get("/engines", headers={"if-none-match": sent})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    served.gateway.pool("rollout", "tiny").add_backend("127.0.0.1:10")
    await served.forget_snapshot()
    newer = await served.client.get("/engines", headers={"if-none-match": tag})
    assert (newer.status_code, newer.json()["snapshot_seq"]) == (200, document["snapshot_seq"] + 1)


async def test_whoever_waits_is_answered_by_the_next_change(serve: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All who wait, soon, and with the document that has the change."""
    # The look that does not depend on the revision of the pools is for what they do not see.
    monkeypatch.setattr("trimtab_gateway.publisher._FULL_LOOK_S", 3600.0)
    served = await serve(one_role(EngineConfig(NOBODY)))
    seq = (await served.json("/engines"))["snapshot_seq"]
    waiting = [asyncio.create_task(served.json(f"/engines?wait_seq={seq}")) for _ in range(20)]
    await served.forget_snapshot()
    assert not any(task.done() for task in waiting)
    served.gateway.pool("rollout", "tiny").add_backend("127.0.0.1:10", id="new")
    begun = time.monotonic()
    for document in await asyncio.gather(*waiting):
        assert document["snapshot_seq"] == seq + 1
        assert [engine["engine_id"] for engine in document["models"]["tiny"]["engines"]] == [NOBODY, "new"]
    assert time.monotonic() - begun < 5


async def test_a_wait_ends_at_its_time_with_what_there_is(serve: Start) -> None:
    """200 with the same document, or 304 for whoever shows its tag."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    first = await served.get("/engines")
    path = f"/engines?wait_seq={first.json()['snapshot_seq']}&wait_ms=60"
    assert (await served.json(path)) == first.json()
    same = await served.client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert same.status_code == 304


async def test_a_copy_of_another_gateway_process_does_not_wait(serve: Start) -> None:
    """Its number means nothing here: a lower one, a higher one, or the same one of another epoch."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    seq = (await served.json("/engines"))["snapshot_seq"]
    for number, headers in ((seq + 7, {}), (0, {}), (seq, {"if-none-match": '"another-epoch.1"'})):
        answer = await served.client.get(f"/engines?wait_seq={number}", headers=headers, timeout=5.0)
        assert answer.status_code == 200


@pytest.mark.parametrize("query", ["wait_seq=x", "wait_seq=-1", "wait_seq=", "wait_seq=1&wait_ms=30001", "wait_ms=1e3"])
async def test_a_wait_that_cannot_be_read_is_400(serve: Start, query: str) -> None:
    """A client that polls without waiting would be a busy loop nobody sees."""
    served = await serve(one_role())
    error = (await served.json(f"/engines?{query}", 400))["error"]
    assert error["code"] == "invalid_request"


async def test_the_end_of_the_gateway_ends_every_wait(serve: Start) -> None:
    """A long poll is no running request that a shutdown has to wait for."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    seq = (await served.json("/engines"))["snapshot_seq"]
    waiting = asyncio.create_task(served.json(f"/engines?wait_seq={seq}"))
    await served.forget_snapshot()
    begun = time.monotonic()
    await served.gateway.__aexit__(None, None, None)
    assert (await waiting)["snapshot_seq"] == seq
    assert time.monotonic() - begun < 4


def content(publisher: Publisher) -> dict[str, Any]:
    """The document of the only role."""
    return publisher.current().roles["teacher"].document


def test_a_silent_source_leaves_the_last_document_and_offers_nothing() -> None:
    """What was served stays visible, marked; the number moves twice, there and back, and the topology never."""
    now = 0.0
    silent = False
    pool = Pool("teacher/math")
    pool.add_backend("10.0.0.1:30000")

    def source() -> Fleet:
        if silent:
            raise SourceSilentError
        return Fleet((ServedRole("teacher", {"math": pool}, "math"),), phase="score")

    publisher = Publisher(source, clock=lambda: now)
    seen = []
    for silent in (False, True, False):  # noqa: B007 -- read by the source
        now += 1.0
        document = content(publisher)
        (engine,) = document["models"]["math"]["engines"]
        seen.append((document["stale"], document["phase"], engine["direct_eligible"], document["snapshot_seq"]))
        assert (engine["base_url"], document["topology_revision"]) == ("http://10.0.0.1:30000", 1)
    assert seen == [(False, "score", True, 1), (True, "score", False, 2), (False, "score", True, 3)]


def test_a_model_behind_a_router_is_never_offered_directly() -> None:
    """Its router is named instead, also in the words of Relax; another router is another topology."""
    now = 0.0
    pool = Pool("rollout/tiny")
    pool.add_backend("10.0.0.1:30000")
    router = "http://10.0.0.9:3456"
    publisher = Publisher(
        lambda: Fleet((ServedRole("teacher", {"tiny": pool}, "tiny", {"k": "tiny"}, {"tiny": router}),)),
        clock=lambda: now,
    )
    now += 1.0
    document = content(publisher)
    model = document["models"]["tiny"]
    assert document["routing"]["route_keys"] == {"k": "tiny"}
    assert (model["router_url"], model["router_ip"], model["router_port"]) == (router, "10.0.0.9", 3456)
    assert (model["state"], model["engines"], document["total_engines"]) == ("ready", [], 0)
    router = "http://10.0.0.10:3456"
    now += 1.0
    assert (content(publisher)["topology_revision"], content(publisher)["snapshot_seq"]) == (2, 2)


async def test_readers_never_see_half_of_a_change(serve: Start) -> None:
    """Engines of one operation appear together, whoever reads in between."""
    served = await serve(one_role(EngineConfig(NOBODY)))
    pool = served.gateway.pool("rollout", "tiny")

    def flip(served: Served, rounds: int) -> None:
        for _ in range(rounds):
            pool.begin_update("sleep", kind="offload")
            pool.cancel_update("sleep")
            pool.end_server_pause("sleep")
        del served

    pool.report_probe(pool.backends()[0], alive=True)
    flipping = asyncio.create_task(asyncio.to_thread(flip, served, 2000))
    while not flipping.done():
        document = await served.json("/engines")
        model = document["models"]["tiny"]
        (engine,) = model["engines"]
        assert engine["direct_eligible"] == (model["state"] == "ready" and engine["state"] == "ready")
    await flipping

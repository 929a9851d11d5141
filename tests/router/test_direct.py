"""``DirectClient`` and its twin for threads, against a real gateway and engines that do as they are told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

import trimtab
from tests.router.conftest import FAST, KEY
from tests.support.ports import free_ports
from tests.support.relay import Action, answering, lose_request, relay_to
from tests.support.waiting import wait_until
from trimtab import DirectClient, Pool, SyncDirectClient
from trimtab.testing import ScriptedEngine, answer, complete, cut, held, reset
from trimtab.wire import RetryPolicy
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig

ROLE = "teacher"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Fleet:
    """A gateway with the models ``math`` (two engines) and ``code`` (one)."""

    def __init__(self, engines: list[ScriptedEngine], gateway: Gateway) -> None:
        self.engines = engines
        self.gateway = gateway
        self.url = f"{gateway.url}/{ROLE}"
        self.math: Pool = gateway.pool(ROLE, "math")
        self.code: Pool = gateway.pool(ROLE, "code")

    def outcomes(self) -> dict[str, int]:
        """Of the pool ``math``, zeros left out."""
        return {outcome: count for outcome, count in self.math.statistics().outcomes.items() if count}

    def generations(self) -> list[Any]:
        """Bodies that reached an engine of ``math``, probes left out."""
        requests = [request for engine in self.engines[:2] for request in engine.requests]
        bodies = [request.json() for request in requests if request.path == "/generate"]
        return [body for body in bodies if "sampling_params" not in body]


def config_of(engines: list[ScriptedEngine]) -> GatewayConfig:
    """Two models, the first is the default."""
    math, code = engines[:2], engines[2:]
    models = (
        ModelConfig("math", tuple(EngineConfig(engine.url) for engine in math)),
        ModelConfig("code", tuple(EngineConfig(engine.url) for engine in code)),
    )
    keys = {"openai/gsm8k": "math", "apps": "code"}
    role = RoleConfig(ROLE, models, default_model="math", route_keys=keys, session_fields=("user",))
    return GatewayConfig((role,), port=0, admin_key=KEY, probe_interval_s=0.05)


@contextmanager
def three_engines() -> Iterator[list[ScriptedEngine]]:
    """Engines that end with the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(ScriptedEngine(weight_version=1)) for _ in range(3)]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """The fleet, with every engine eligible; ``math`` is on version 1, ``code`` has none."""
    with three_engines() as engines:
        async with Gateway(config_of(engines)) as gateway:
            fleet = Fleet(engines, gateway)
            pools = (fleet.math, fleet.code)
            await wait_until(
                lambda: all(backend.eligible for pool in pools for backend in pool.statistics().backends),
                "all eligible",
            )
            fleet.math.publish("u-1", 1)
            yield fleet


def client(fleet: Fleet, **options: Any) -> DirectClient:
    """A client of the fleet that is quick to ask again."""
    return DirectClient(options.pop("url", fleet.url), **{"key": KEY, "retry": FAST, **options})


async def test_a_generation_from_lease_to_settlement(fleet: Fleet) -> None:
    """The engine is called itself; the answer says with which weights; tokens and version are told to the router."""
    fleet.engines[0].next(complete("fine", tokens=7, weight_version=1))
    fleet.engines[1].next(complete("fine", tokens=7, weight_version=1))
    async with client(fleet) as direct:
        reply = await direct.post("/generate", {"text": "a", "model": "math"}, session="traj-17", wait=10)
        assert (reply.status, reply.json()["text"], reply.via, reply.model) == (200, "fine", "direct", "math")
        assert (reply.weight_version, reply.session) == (1, "traj-17")
        assert reply.backend_id in {engine.authority for engine in fleet.engines[:2]}
        (body,) = fleet.generations()
        assert body["text"] == "a"
        assert "model" not in body
        assert len(body["rid"]) == 32
        statistics = fleet.math.statistics()
        assert (statistics.outstanding, statistics.output_tokens, statistics.sessions) == (0, 7, 1)
        assert await direct.close_session("traj-17") == (True, 0)
    assert fleet.outcomes() == {"completed": 1}
    assert fleet.math.statistics().senders == []


async def test_models_are_chosen_as_the_gateway_does(fleet: Fleet) -> None:
    """Route key, explicit model and default; what is unknown raises the gateway's own words, and nothing is sent."""
    async with client(fleet) as direct:
        for payload, model in (({"route_key": "apps"}, "code"), ({"model": "code"}, "code"), ({}, "math")):
            assert (await direct.post("/generate", payload)).model == model
        with pytest.raises(trimtab.UnknownModel, match="known: math, code"):
            await direct.post("/generate", {"model": "nope"})
        with pytest.raises(trimtab.UnknownRouteKey, match="openai/gsm8k"):
            await direct.post("/generate", {"route_key": "nope"})
        with pytest.raises(trimtab.InvalidRequest, match="/v1/score"):
            await direct.post("/flush_cache", {})
    assert len(fleet.generations()) == 1


async def test_b38_a_session_stays_on_its_engine(fleet: Fleet) -> None:
    """By argument, and by the field of the body that the role names."""
    async with client(fleet) as direct:
        homes = {(await direct.post("/generate", {}, session="s")).backend_id for _ in range(6)}
        homes |= {(await direct.post("/generate", {"user": "s"})).backend_id for _ in range(6)}
    assert len(homes) == 1
    assert fleet.math.statistics().picks["sticky"] == 11


@pytest.mark.parametrize(
    ("action", "status", "outcome"),
    [
        (answer(400, b'{"error":"too long"}'), 400, "rejected"),
        (answer(500), 500, "failed"),
        (complete(finish="abort"), 200, "aborted"),
        (answer(200, b"not json"), 200, "completed"),
    ],
)
async def test_answers_are_settled_as_what_they_are(fleet: Fleet, action: Any, status: int, outcome: str) -> None:
    """The engine's own answer comes back, whatever its status."""
    for engine in fleet.engines[:2]:
        engine.next(action)
    async with client(fleet) as direct:
        assert (await direct.post("/generate", {})).status == status
    assert fleet.outcomes() == {outcome: 1}


@pytest.mark.parametrize("action", [reset(), cut()])
async def test_b48_a_broken_answer_is_ambiguous_and_not_sent_again(fleet: Fleet, action: Any) -> None:
    """Nobody knows whether it ran: a typed error, one request, an abort by its id, also with a fallback."""
    for engine in fleet.engines[:2]:
        engine.next(action)
    async with client(fleet, fallback="gateway") as direct:
        with pytest.raises(trimtab.EngineBroken, match="may have run"):
            await direct.post("/generate", {"rid": "r-1"})
    assert len(fleet.generations()) == 1
    assert fleet.outcomes() == {"ambiguous": 1}
    aborts = [each.json() for engine in fleet.engines for each in engine.requests if each.path == "/abort_request"]
    assert aborts == [{"rid": "r-1"}]


async def test_whoever_leaves_has_the_request_aborted(fleet: Fleet) -> None:
    """Cancelled in the middle of a generation: the engine confirms the abort, the lease is ``cancelled``."""
    never = threading.Event()
    for engine in fleet.engines[:2]:
        engine.next(held(never))
    async with client(fleet) as direct:
        call = asyncio.create_task(direct.post("/generate", {"rid": ["r-1", "r-2"]}))
        await wait_until(lambda: len(fleet.generations()) == 1, "sent")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert fleet.outcomes() == {"cancelled": 1}
    aborts = [each.json()["rid"] for engine in fleet.engines for each in engine.requests if "abort" in each.path]
    assert aborts == ["r-1", "r-2"]


@pytest.mark.parametrize("action", [held(threading.Event()), reset()])
async def test_interrupted_twice_it_is_ambiguous(fleet: Fleet, action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while its abort is not confirmed yet, be it cancelled or broken before: nobody knows its end."""
    aborting, never = asyncio.Event(), asyncio.Event()

    async def abort(*_: object) -> bool:
        aborting.set()
        await never.wait()
        return True

    for engine in fleet.engines[:2]:
        engine.next(action)
    async with client(fleet) as direct:
        monkeypatch.setattr(direct, "_abort", abort)
        call = asyncio.create_task(direct.post("/generate", {}))
        await wait_until(lambda: len(fleet.generations()) == 1, "sent")
        if not aborting.is_set():
            call.cancel()
        await asyncio.wait_for(aborting.wait(), 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert fleet.outcomes() == {"ambiguous": 1}


async def test_two_processes_of_one_name_do_not_take_turns(fleet: Fleet) -> None:
    """Whoever was replaced stays so: to attach again would take the leases of the other one away."""
    async with client(fleet, sender="one") as direct:
        await direct.post("/generate", {})
        fleet.math.attach_sender("one", "another process", "default")
        for _ in range(2):
            with pytest.raises(trimtab.RouterRestarted, match="another process"):
                await direct.post("/generate", {})
    (sender,) = fleet.math.statistics().senders
    assert sender.incarnation == "another process"


async def test_an_engine_that_refuses_is_not_sent_to(fleet: Fleet) -> None:
    """No byte was written: an error that says so, or, if the caller allowed it, the gateway."""
    (port,) = free_ports(1)
    async with client(fleet) as direct:
        await direct.post("/generate", {"model": "code"})
        # Only now: probes find out soon that nobody is there.
        fleet.code.add_backend(f"127.0.0.1:{port}", 1000.0, id="gone")
        with pytest.raises(trimtab.EngineUnreachable, match="gone") as caught:
            await direct.post("/generate", {"model": "code"})
        assert caught.value.retryable
    assert fleet.code.statistics().outcomes["not_sent"] == 1


async def test_without_an_engine_it_says_which_there_are(fleet: Fleet) -> None:
    """Nothing eligible, or a fence, and no time to wait: the router's own words, and nothing is sent."""
    for backend in fleet.code.backends():
        fleet.code.drain_backend(backend.id)
    async with client(fleet) as direct:
        with pytest.raises(trimtab.NoEligibleBackend, match="1 draining"):
            await direct.post("/generate", {"model": "code"})
        fleet.math.fence("default", "test")
        with pytest.raises(trimtab.Fenced):
            await direct.post("/generate", {}, wait=0.01)
    assert fleet.generations() == []


async def test_changes_are_noticed(fleet: Fleet) -> None:
    """An engine that comes later is called, though the document was read before."""
    with ScriptedEngine(weight_version=1) as late:
        async with client(fleet) as direct:
            fleet.code.drain_backend(fleet.code.backends()[0].id)
            fleet.code.add_backend(late.url)
            assert (await direct.post("/generate", {"model": "code"}, wait=5)).backend_id == late.authority


def for_discovery(action: Action, line: str) -> Action | None:
    """``action`` for requests of the discovery document, nothing for others."""
    return action if f"/{ROLE}/engines" in line else None


async def test_hidden_and_stale_engines_need_the_callers_leave(fleet: Fleet) -> None:
    """Without URLs, or with a stale document, nothing is sent; ``fallback="gateway"`` is the way out it names."""
    async with relay_to("127.0.0.1", int(fleet.gateway.url.rpartition(":")[2])) as relay:
        url = f"{relay.url}/{ROLE}"
        async with client(fleet, url=url) as probe:
            listed = dict(probe._feed.current.document)
        hidden = json.loads(json.dumps(listed))
        for engine in hidden["models"]["math"]["engines"]:
            engine.update(base_url=None, direct_eligible=False)
        stale = {**listed, "stale": True}
        for shown, error, words in (
            (hidden, trimtab.NotDirect, "expose_engine_urls = true"),
            (stale, trimtab.StaleDiscovery, "stale"),
        ):
            shows = answering("200 OK", json.dumps(shown).encode())
            relay.otherwise = partial(for_discovery, shows)
            async with client(fleet, url=url) as direct:
                with pytest.raises(error, match=words):
                    await direct.post("/generate", {})
            assert fleet.generations() == []
            async with client(fleet, url=url, fallback="gateway") as direct:
                reply = await direct.post("/generate", {"route_key": "openai/gsm8k"}, session="s", wait=1)
            assert (reply.status, reply.via, reply.session, reply.weight_version) == (200, "gateway", "s", 1)
            assert len(fleet.generations()) == 1
            for each in fleet.engines:
                each.requests.clear()


def no_trouble(_line: str) -> Action | None:
    """Everything arrives."""
    return None


def lost_settlements(line: str) -> Action | None:
    """Every settlement is lost."""
    return lose_request if "/settle" in line else None


async def test_what_has_run_never_takes_the_fallback(fleet: Fleet) -> None:
    """The router was out of reach only for the settlement: an error, and not a second execution."""
    retry = RetryPolicy(horizon_s=0.1, first_delay_s=0.01, max_delay_s=0.05)
    async with relay_to("127.0.0.1", int(fleet.gateway.url.rpartition(":")[2])) as relay:
        relay.otherwise = lost_settlements
        url = f"{relay.url}/{ROLE}"
        async with client(fleet, url=url, retry=retry, fallback="gateway") as direct:
            with pytest.raises(trimtab.RouterUnreachable, match="must not be used"):
                await direct.post("/generate", {})
            assert len(fleet.generations()) == 1
            relay.otherwise = no_trouble
            await wait_until(lambda: fleet.outcomes() == {"completed": 1}, "it is settled later")


async def test_a_stream_ends_as_its_events_say(fleet: Fleet) -> None:
    """Chunks come as they are; tokens are those of the last event."""
    events = [b'data: {"meta_info":{"completion_tokens":%d,"finish_reason":null}}\n\n' % n for n in (1, 2)]
    events += [b'data: {"meta_info":{"completion_tokens":3,"finish_reason":{"type":"stop"}}}\n\n', b"data: [DONE]\n\n"]
    body = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
    for engine in fleet.engines[:2]:
        engine.next(cut(SSE + body))
    async with client(fleet) as direct, direct.stream("/generate", {"stream": True}, session="s") as reply:
        assert (reply.status, reply.weight_version, reply.session) == (200, 1, "s")
        assert b"".join([chunk async for chunk in reply.chunks()]) == b"".join(events)
    assert fleet.outcomes() == {"completed": 1}
    assert fleet.math.statistics().output_tokens == 3


async def test_b48_a_stream_that_breaks_is_an_error(fleet: Fleet) -> None:
    """The end of the connection is no end of the answer; leaving early aborts."""
    half = b"5\r\ndata:\r\n"
    for engine in fleet.engines[:2]:
        engine.next(cut(SSE + half), cut(SSE + half))
    async with client(fleet) as direct:
        with pytest.raises(trimtab.EngineBroken):
            async with direct.stream("/generate", {}) as reply:
                [chunk async for chunk in reply.chunks()]
        assert fleet.outcomes() == {"ambiguous": 1}
        async with direct.stream("/generate", {}):
            pass
    assert fleet.outcomes() == {"ambiguous": 1, "cancelled": 1}


async def test_threads(fleet: Fleet) -> None:
    """The twin does the same on threads, many of them with one client."""

    def work() -> set[str | None]:
        with SyncDirectClient(fleet.url, key=KEY, retry=FAST) as direct:
            assert direct.post("/generate", {"text": "a"}, session="s", wait=10).json()["text"] == "ok"
            with pytest.raises(trimtab.UnknownModel):
                direct.post("/generate", {"model": "nope"})
            with direct.stream("/generate", {}) as reply:
                assert json.loads(b"".join(reply.chunks()))["text"] == "ok"
            found: list[str | None] = []

            def turn(number: int) -> None:
                found.append(direct.post("/generate", {}, session=f"s{number}").backend_id)

            threads = [threading.Thread(target=turn, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return set(found)

    backends = await asyncio.to_thread(work)
    assert backends == {engine.authority for engine in fleet.engines[:2]}
    assert fleet.outcomes() == {"completed": 10}


async def test_bad_arguments_and_keys(fleet: Fleet) -> None:
    """Each rule has its message; no text has a key in it."""
    with pytest.raises(trimtab.InvalidRequest, match="role"):
        DirectClient(f"{fleet.url}/generate")
    with pytest.raises(trimtab.InvalidRequest, match="fallback"):
        client(fleet, fallback="engine")
    with pytest.raises(trimtab.InvalidRequest, match="connect_timeout_s"):
        client(fleet, connect_timeout_s=0)
    wrong = client(fleet, key="wrong-key")
    assert "wrong-key" not in repr(wrong)
    async with wrong:
        with pytest.raises(trimtab.TrimtabError) as caught:
            await wrong.post("/generate", {})
        assert caught.value.code in {"unauthenticated", "forbidden"}
    with pytest.raises(RuntimeError, match="not open"):
        await client(fleet).post("/generate", {})

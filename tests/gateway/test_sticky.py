"""B13, B25: a session stays where it is while that is possible, and moves once when it is not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.expect import error
from tests.support.http1 import request_bytes
from tests.support.scripts import Gate, hold, one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange
    from tests.support.lab import Gateway, Lab

S1 = [("x-trimtab-session", "s1")]


async def turn(gateway: Gateway, session: str = "s1") -> str:
    """One turn of a session; returns the backend that served it."""
    answer = await gateway.post("/generate", b"{}", [("x-trimtab-session", session)])
    assert (answer.status, answer.head.get("x-trimtab-session")) == (200, session)
    return str(answer.head.get("x-trimtab-backend"))


async def test_a_session_stays_and_sessions_spread(lab: Lab) -> None:
    """40 sessions x 5 turns on 4 engines: every turn of a session is served by one engine, 10 sessions on each."""
    engines = await lab.engines(4, one())
    gateway = await lab.gateway(*engines)
    homes: dict[str, set[str]] = {}
    for _ in range(5):
        turns = await asyncio.gather(*(turn(gateway, f"s{i}") for i in range(40)))
        for i, backend in enumerate(turns):
            homes.setdefault(f"s{i}", set()).add(backend)
    assert all(len(homes[session]) == 1 for session in homes)
    assert [len(engine.requests) for engine in engines] == [50] * 4
    assert gateway.pool.statistics().picks["sticky"] == 160


@pytest.mark.parametrize("state", ["drained", "removed", "dead", "probed down"])
async def test_b13_the_next_turn_moves_and_stays_moved(lab: Lab, state: str) -> None:
    """s1 is on E1; E1 becomes unusable: the next turn goes to E2, and s1 stays there when E1 is back."""
    first, second = await lab.engines(2, one())
    gateway = await lab.gateway(first, second, capacities=[1.1, 1])
    pool = gateway.pool
    assert await turn(gateway) == first.authority
    if state == "drained":
        pool.drain_backend(first.authority)
    elif state == "removed":
        pool.remove_backend(first.authority)
    elif state == "dead":
        await first.kill()
    else:
        for _ in range(3):
            pool.report_probe(pool.backends()[0], alive=False)
    assert await turn(gateway) == second.authority
    picks = pool.statistics().picks
    assert sum(count for reason, count in picks.items() if reason.startswith("repin:")) == 1, picks
    if state in {"drained", "removed"}:
        pool.remove_backend(first.authority) if state == "drained" else None
        pool.add_backend(first.authority, 100)
    elif state == "dead":
        await first.__aenter__()
        pool.report_probe(pool.backends()[0], alive=True)
    else:
        pool.report_probe(pool.backends()[0], alive=True)
    assert gateway.pool.statistics().census["eligible"] == 2
    for _ in range(3):
        assert await turn(gateway) == second.authority


async def test_b13_a_running_turn_finishes_on_a_draining_engine(lab: Lab) -> None:
    """Draining ends nothing: the turn in flight is delivered, the next one moves."""
    gate = Gate()

    async def held(exchange: Exchange) -> None:
        await exchange.read_body()
        await gate.passed()
        await exchange.answer(b"{}")

    first, second = await lab.engines(2, held)
    gateway = await lab.gateway(first, second, capacities=[1.1, 1])
    running = asyncio.create_task(turn(gateway))
    await gateway.busy(1)
    assert gateway.pool.drain_backend(first.authority) == 1
    gate.open(2)
    assert await running == first.authority
    assert await turn(gateway) == second.authority


async def test_b13_no_engine_left_is_503_and_the_session_survives(lab: Lab) -> None:
    """With nobody eligible the answer is 503; when an engine is back the session goes on."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await turn(gateway)
    backend = gateway.pool.backends()[0]
    for _ in range(3):
        gateway.pool.report_probe(backend, alive=False)
    error(await gateway.post("/generate", b"{}", S1), 503, "no_eligible_backend")
    gateway.pool.report_probe(backend, alive=True)
    assert await turn(gateway) == engine.authority
    assert len(engine.requests) == 2


async def test_b25_an_address_that_comes_back_is_a_new_incarnation(lab: Lab) -> None:
    """3 requests held on E1; E1 removed and added; 2 more; the old 3 end: the new count is 2, never negative."""
    gates = {"old": Gate(), "new": Gate()}

    async def held(exchange: Exchange) -> None:
        await exchange.read_body()
        text = exchange.record.json()["text"]
        await gates[text].passed()
        await exchange.answer(b'{"text":"%s"}' % text.encode())

    engine = await lab.engine(held)
    gateway = await lab.gateway(engine)
    pool = gateway.pool
    old = asyncio.gather(*(gateway.post("/generate", b'{"text":"old"}') for _ in range(3)))
    await gateway.busy(3)
    before = pool.backends()[0].generation
    assert pool.remove_backend(engine.authority) == 3
    pool.add_backend(engine.authority)
    assert pool.backends()[0].generation != before
    assert pool.statistics().backends[0].outstanding == 0
    new = asyncio.gather(*(gateway.post("/generate", b'{"text":"new"}') for _ in range(2)))
    await gateway.busy(5)
    assert pool.statistics().backends[0].outstanding == 2
    gates["old"].open(3)
    assert {(answer.status, answer.body) for answer in await old} == {(200, b'{"text":"old"}')}
    await gateway.busy(2)
    assert pool.statistics().backends[0].outstanding == 2
    gates["new"].open(2)
    assert {answer.body for answer in await new} == {b'{"text":"new"}'}
    await gateway.idle()
    assert pool.statistics().backends[0].outcomes["completed"] == 2
    assert gateway.outcomes() == {"completed": 5}


@pytest.mark.parametrize("name", ["x-trimtab-session", "X-Session-Id"])
async def test_both_header_names_pin(lab: Lab, name: str) -> None:
    """The alias means the same session as the header itself."""
    engines = await lab.engines(3, one())
    gateway = await lab.gateway(*engines)
    home = await turn(gateway)
    for _ in range(4):
        answer = await gateway.post("/generate", b"{}", [(name, "s1")])
        assert answer.head.get("x-trimtab-backend") == home
        assert answer.head.get("x-trimtab-session") == "s1"


async def test_our_header_goes_before_the_alias_and_only_the_alias_is_forwarded(lab: Lab) -> None:
    """x-session-id may mean something to the engine; x-trimtab-session is ours."""
    engines = await lab.engines(2, one())
    gateway = await lab.gateway(*engines)
    answer = await gateway.post("/generate", b"{}", [("x-session-id", "other"), *S1])
    assert answer.head.get("x-trimtab-session") == "s1"
    (record,) = [record for engine in engines for record in engine.requests]
    assert record.head.get("x-session-id") == "other"
    assert record.head.get("x-trimtab-session") is None


async def test_no_session_means_no_stickiness(lab: Lab) -> None:
    """Requests without a session spread; the answer names none."""
    engines = await lab.engines(2, one())
    gateway = await lab.gateway(*engines)
    answers = [await gateway.post("/generate") for _ in range(10)]
    assert [len(engine.requests) for engine in engines] == [5, 5]
    assert {answer.head.get("x-trimtab-session") for answer in answers} == {None}
    assert gateway.pool.statistics().sessions == 0


@pytest.mark.parametrize("session", ["x" * 256, "a b", "é", "日本", "a/b?c=d&e", "%00"])
async def test_a_session_is_any_text_of_up_to_256_bytes(lab: Lab, session: str) -> None:
    """The key is opaque."""
    gateway = await lab.gateway(*await lab.engines(2, one()))
    header = [("x-trimtab-session", session.encode().decode("latin-1"))]
    answers = [await gateway.post("/generate", b"{}", header) for _ in range(2)]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.head.get("x-trimtab-backend") for answer in answers}) == 1
    echoed = answers[0].head.get("x-trimtab-session")
    assert echoed is not None
    assert echoed.encode("latin-1").decode() == session


@pytest.mark.parametrize("name", ["x-trimtab-session", "x-session-id"])
@pytest.mark.parametrize("session", ["", "x" * 257, "\xff\xfe", "é".encode().decode("latin-1") * 129])
async def test_a_session_that_is_empty_too_long_or_not_utf_8_is_refused(lab: Lab, name: str, session: str) -> None:
    """400 that says so; a silent cut would merge two sessions."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine)
    error(await gateway.post("/generate", b"{}", [(name, session)]), 400, "invalid_session")
    assert engine.requests == []


async def test_the_session_table_counts_what_http_brought(lab: Lab) -> None:
    """Closing a session forgets it: the next turn is a new pick."""
    gateway = await lab.gateway(await lab.engine(one()))
    await turn(gateway)
    assert gateway.pool.statistics().sessions == 1
    await gateway.idle()
    assert gateway.pool.close_session("s1") == (True, 0)
    assert gateway.pool.statistics().sessions == 0
    await turn(gateway)
    assert gateway.pool.statistics().picks["new"] == 2


async def test_one_kept_alive_client_connection_carries_many_sessions(lab: Lab) -> None:
    """The session belongs to the request, not to the connection."""
    engines = await lab.engines(2, one())
    gateway = await lab.gateway(*engines)
    client = await lab.client(gateway)
    homes = []
    for i in range(8):
        await client.send(request_bytes("/generate", b"{}", [("x-trimtab-session", f"s{i % 2}")]))
        homes.append((await client.response()).head.get("x-trimtab-backend"))
    assert homes == homes[:2] * 4
    assert homes[0] != homes[1]
    await wait_until(lambda: gateway.plane.statistics()["connections_total"] == 1, "one connection")

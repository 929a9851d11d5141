"""Invariant 1 and 3 of the case list under everything at once: engines die, membership changes, clients leave."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.client import RawClient
from tests.support.http1 import DONE, Broken, request_bytes
from tests.support.scripts import events
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.engine import Exchange, Script, ScriptedEngine
    from tests.support.lab import Gateway, Lab

TEXT = b"".join(events(4))


def moody(dice: random.Random) -> Script:
    """Mostly a stream; now and then an error, a reset before the head, or a stream that breaks."""

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        mood = dice.random()
        if mood < 0.05:
            await exchange.answer(b"{}", 500)
        elif mood < 0.1:
            exchange.reset()
        else:
            await exchange.start_stream()
            for event in events(4):
                await asyncio.sleep(dice.random() * 0.01)
                await exchange.send_chunk(event)
            if mood < 0.2:
                exchange.close()
            else:
                await exchange.send_chunk(DONE)
                await exchange.end_stream()

    return script


async def turn(gateway: Gateway, dice: random.Random, number: int) -> str:
    """One request with an end of its own choice; says how it looked to the client."""
    body = b'{"rid":"chaos-%06d","stream":true}' % number
    async with RawClient(gateway.host, gateway.port) as client:
        await client.send(request_bytes("/generate", body, [("x-trimtab-session", f"s{number % 40}")]))
        try:
            if dice.random() < 0.3:
                await asyncio.wait_for(client.wire.exactly(10_000), dice.random() * 0.03)
            answer = await client.response()
        except Broken:
            return "broken"
        except asyncio.TimeoutError:
            client.reset()
            return "left"
    if answer.status == 200:
        assert answer.body == TEXT + DONE, f"a short answer that looks whole: {answer.body!r}"
    return str(answer.status)


async def meddle(gateway: Gateway, engines: list[ScriptedEngine], dice: random.Random) -> None:
    """Kill, revive, drain, remove and add engines until cancelled."""
    pool = gateway.pool
    while True:
        engine = dice.choice(engines)
        await asyncio.sleep(dice.random() * 0.02)
        match dice.randrange(3):
            case 0:
                await engine.kill()
                await asyncio.sleep(dice.random() * 0.02)
                await engine.__aenter__()
            case 1:
                pool.remove_backend(engine.authority)
                pool.add_backend(engine.authority, 1 + dice.random())
            case _:
                pool.drain_backend(engine.authority)
                await asyncio.sleep(dice.random() * 0.01)
                pool.remove_backend(engine.authority)
                pool.add_backend(engine.authority)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_happens_counts_return_to_zero_and_nothing_runs_twice(lab: Lab, seed: int) -> None:
    """600 requests in 40 sessions while engines come and go: each request runs at most once, each lease is settled."""
    dice = random.Random(seed)
    engines = await lab.engines(4, moody(dice))
    # Here engines die by themselves, again and again: the guard against poison requests would suspect every session.
    off = {"poison_deaths": 0}
    gateway = await lab.gateway(*engines, pool_options=off, probe_interval_s=0.02, abort_grace_s=0.2)
    turns = asyncio.Semaphore(40)
    looks: Counter[str] = Counter()

    async def visit(number: int) -> None:
        async with turns:
            looks[await turn(gateway, dice, number)] += 1

    trouble = asyncio.ensure_future(meddle(gateway, engines, dice))
    await asyncio.gather(*(visit(number) for number in range(600)))
    trouble.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await trouble
    await gateway.idle()
    await wait_until(lambda: gateway.plane.statistics()["open_requests"] == 0, "no request is open")
    runs = Counter(record.rid for engine in engines for record in engine.requests if record.body)
    # Of clients: a probe whose pooled connection breaks is sent once more.
    twice = [rid for rid, count in runs.items() if count > 1 and rid.startswith("chaos-")]
    assert twice == [], "a generation ran twice"
    statistics = gateway.pool.statistics()
    assert sum(statistics.outcomes.values()) == sum(statistics.picks.values())
    assert sum(looks.values()) == 600
    assert looks["200"] > 100, looks
    assert set(looks) <= {"200", "500", "502", "503", "broken", "left"}, looks

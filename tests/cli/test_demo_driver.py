"""The demo's driver: a closed window of sessions, each a chain of turns on a growing context."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from trimtab.cli.demo import driver as driver_module
from trimtab.cli.demo.answer import TurnError, TurnResult
from trimtab.cli.demo.driver import Driver
from trimtab.cli.demo.tally import Tally
from trimtab.cli.demo.workload import SessionPlan, TurnPlan

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://unused/generate"


def plan(index: int, turns: int = 3) -> SessionPlan:
    """A session of equal turns that pause for no time."""
    turn = TurnPlan(added_tokens=5, output_tokens=2, stream=False, pause_s=0.0)
    first = TurnPlan(added_tokens=0, output_tokens=2, stream=False, pause_s=0.0)
    return SessionPlan(f"s{index}", "prompt", 10, (first, *[turn] * (turns - 1)))


class FakeGateway:
    """Stands in for ``send_turn``: keeps every request and answers from engine ``a``."""

    def __init__(self, answer: Callable[[str, list[int]], TurnResult] | None = None) -> None:
        self.requests: list[tuple[str, list[int]]] = []
        self.closed: list[str] = []
        self._answer = answer or (lambda _session, _ids: TurnResult("a", [7, 8], prompt_tokens=1, cached_tokens=0))

    async def send_turn(self, _http: Any, _url: str, *, session: str, input_ids: list[int], **_: Any) -> TurnResult:
        """Answer after one turn of the event loop."""
        self.requests.append((session, list(input_ids)))
        await asyncio.sleep(0)
        return self._answer(session, input_ids)

    def driver(self, monkeypatch: pytest.MonkeyPatch, tally: Tally) -> Driver:
        """Return a driver that talks to this gateway."""
        monkeypatch.setattr(driver_module, "send_turn", self.send_turn)
        return Driver(
            None,  # type: ignore[arg-type]  # the fake sends nothing
            URL,
            plans=map(plan, itertools.count()),
            tally=tally,
            close_session=self.closed.append,
            vocabulary=2_000,
        )


async def test_every_turn_sends_all_that_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context is prompt, answer, tool, answer, tool: each request starts with the one before and its answer."""
    gateway, tally = FakeGateway(), Tally.over(["a"])
    await gateway.driver(monkeypatch, tally).run(window=1, admit_s=0.001)
    first = [ids for session, ids in gateway.requests if session == "s0"]
    assert [len(ids) for ids in first] == [10, 10 + 2 + 5, 10 + 2 + 5 + 2 + 5]
    assert first[1][:12] == [*first[0], 7, 8]
    assert first[2][:19] == [*first[1], 7, 8]


async def test_sessions_that_have_begun_run_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is up no session starts, and none is cut: counts are whole and every session is closed."""
    gateway, tally = FakeGateway(), Tally.over(["a"])
    await gateway.driver(monkeypatch, tally).run(window=4, admit_s=0.01)
    assert tally.sessions_started == tally.sessions_done == len(gateway.closed) >= 4
    assert tally.turns == tally.requests == 3 * tally.sessions_done
    assert tally.sessions_live == 0


async def test_a_failed_turn_ends_its_session_and_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is counted once; the window stays full."""

    def answer(session: str, _ids: list[int]) -> TurnResult:
        if session == "s0":
            raise TurnError("HTTP 503")
        return TurnResult("a", [7, 8], prompt_tokens=1, cached_tokens=0)

    gateway, tally = FakeGateway(answer), Tally.over(["a"])
    await gateway.driver(monkeypatch, tally).run(window=1, admit_s=0.01)
    assert tally.failures == {"HTTP 503": 1}
    assert [session for session, _ in gateway.requests].count("s0") == 1
    assert tally.sessions_done == tally.sessions_started - 1 > 0
    assert "s0" in gateway.closed


async def test_cancelling_the_driver_ends_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the cancelled run has raised, no session is left running and each one was closed."""
    gateway, tally = FakeGateway(), Tally.over(["a"])
    started = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> TurnResult:
        if tally.sessions_started == 3:
            started.set()
        await asyncio.Event().wait()
        raise AssertionError

    driver = gateway.driver(monkeypatch, tally)
    monkeypatch.setattr(driver_module, "send_turn", hang)
    run = asyncio.ensure_future(driver.run(window=3, admit_s=60))
    await asyncio.wait_for(started.wait(), 5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert sorted(gateway.closed) == ["s0", "s1", "s2"]

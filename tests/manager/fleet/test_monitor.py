"""The two detectors, in virtual time: who is believed when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from tests.support.manual_time import ManualTime
from trimtab_manager.engine.errors import Unreachable
from trimtab_manager.fleet.events import Events
from trimtab_manager.fleet.monitor import Death, HealthRule, Monitor
from trimtab_manager.launch.types import Exit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.fleet.replica import Replica

INTERVAL_S = 5.0


@dataclass(eq=False)
class Stub:
    """What a monitor sees of an engine: it is the client and the handle, too."""

    id: str = "policy/0"
    generation: int = 1
    state: str = "ready"
    answers: str = "yes"
    asked: int = 0
    exit_: asyncio.Future[Exit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.client = self.handle = self
        self.may_answer.set()

    async def health(self, *, timeout_s: float) -> bool:
        """Yes, no, or no connection."""
        assert timeout_s == 1.0
        self.asked += 1
        await self.may_answer.wait()
        if self.answers == "silence":
            raise Unreachable(self.id, "GET /health", "connection refused")
        return self.answers == "yes"

    async def exited(self) -> Exit:
        """Its end."""
        return await asyncio.shield(self.exit_)


class Bench:
    """A monitor that watches one engine."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.deaths: list[Death] = []
        self.paused = False
        self.monitor = Monitor(
            HealthRule(INTERVAL_S, 1.0, 3),
            self._died,
            is_paused=lambda: self.paused,
            events=Events("rollout/policy"),
            clock=self.time.clock,
        )
        self.engine = Stub()
        self.monitor.watch(cast("Replica", self.engine))

    def _died(self, replica: object, death: Death) -> None:
        assert replica is self.engine
        self.deaths.append(death)
        self.monitor.unwatch(cast("Replica", replica))

    async def periods(self, count: int) -> None:
        """Let so many intervals pass."""
        await self.time.advance(count * INTERVAL_S)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A bench whose monitor ends with the test."""
    made = Bench()
    yield made
    await made.monitor.close()


@pytest.mark.parametrize("answer", ["no", "silence"])
async def test_failures_in_a_row_are_a_death(bench: Bench, answer: str) -> None:
    """Two and a good one are nothing; three in a row are, once, with the last evidence."""
    bench.engine.answers = answer
    await bench.periods(2)
    bench.engine.answers = "yes"
    await bench.periods(1)
    bench.engine.answers = answer
    await bench.periods(2)
    assert bench.deaths == []
    await bench.periods(5)
    (death,) = bench.deaths
    assert death.detector == "health"
    assert "3 health checks failed in a row" in death.what


async def test_the_end_of_a_process_is_a_death_at_once(bench: Bench) -> None:
    """No interval has to pass, and no state or suspension hides it."""
    bench.engine.state = "sleeping"
    with bench.monitor.suspensions.held("update to 7"):
        bench.engine.exit_.set_result(Exit("scheduler", 17, signal="SIGKILL", evidence="last words"))
        await bench.periods(0)
    assert bench.deaths == [Death("process", "scheduler (pid 17) ended by SIGKILL", "last words")]


async def test_b34_an_engine_that_sleeps_is_not_asked(bench: Bench) -> None:
    """Ten periods of silence in a state in which silence is right; the count begins anew when it is ready again."""
    bench.engine.answers = "silence"
    await bench.periods(2)
    bench.engine.state = "sleeping"
    asked = bench.engine.asked
    await bench.periods(10)
    assert (bench.engine.asked, bench.deaths) == (asked, [])
    bench.engine.state = "ready"
    await bench.periods(2)
    assert bench.deaths == []
    await bench.periods(1)
    assert len(bench.deaths) == 1


async def test_b34_a_token_suspends_and_names_its_owner(bench: Bench) -> None:
    """Nobody is asked while any token is out; tokens are given back on every way out."""
    suspensions = bench.monitor.suspensions
    bench.engine.answers = "silence"

    async def update_that_raises() -> None:
        with suspensions.held("update to 7"):
            with suspensions.held("sleep"):
                assert suspensions.owners == ("update to 7", "sleep")
            await bench.periods(10)
            assert bench.engine.asked == 0
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        await update_that_raises()
    assert suspensions.owners == ()
    token = suspensions.take("pause")
    token.release()
    token.release()
    await bench.periods(3)
    assert len(bench.deaths) == 1


async def test_b34_a_question_from_before_a_suspension_counts_for_nothing(bench: Bench) -> None:
    """An update that begins and ends while a check is out must not leave its silence behind as evidence."""
    bench.engine.answers = "silence"
    await bench.periods(2)
    bench.engine.may_answer.clear()
    await bench.periods(1)
    with bench.monitor.suspensions.held("update to 7"):
        pass
    bench.engine.may_answer.set()
    await bench.periods(2)
    assert bench.deaths == []


async def test_b34_engines_that_a_trainer_paused_by_itself_are_left_alone(bench: Bench) -> None:
    """A controller that talks to the router's API holds no token of ours; the router knows that the servers pause."""
    bench.engine.answers, bench.paused = "silence", True
    await bench.periods(10)
    assert bench.deaths == []
    bench.paused = False
    await bench.periods(3)
    assert len(bench.deaths) == 1


async def test_nothing_is_said_of_an_engine_that_is_not_watched_any_more(bench: Bench) -> None:
    """What ends after that was meant to."""
    bench.monitor.unwatch(cast("Replica", bench.engine))
    bench.engine.exit_.set_result(Exit("main", 17, code=0))
    await bench.periods(10)
    assert bench.deaths == []

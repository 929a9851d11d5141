"""Ramps through the binding: an engine that is fresh or back counts as a quarter of its capacity for a while."""

from __future__ import annotations

from trimtab import Backend, Lease, Pool
from trimtab.testing import VirtualClock

RAMP_S = 60.0


class Fleet:
    """Engines ``e0``, ``e1``, ... of equal capacity, and executions that do not end."""

    def __init__(self, engines: int, *, ramp_s: float | None = RAMP_S) -> None:
        self.clock = VirtualClock()
        self.pool = Pool(ramp_s=ramp_s, clock=self.clock)
        self.engines: list[Backend] = []
        self._leases: list[Lease] = []
        for _ in range(engines):
            self.add()

    def add(self) -> None:
        """Register one more."""
        number = len(self.engines)
        self.engines.append(self.pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}"))

    def place(self, count: int) -> list[int]:
        """So many executions more; what then runs on each engine."""
        self._leases += [self.pool.acquire() for _ in range(count)]
        return [sum(lease.backend_id == engine.id for lease in self._leases) for engine in self.engines]


def test_without_it_a_newcomer_takes_everything_that_is_new() -> None:
    """The default: until it runs as much as the others."""
    fleet = Fleet(4, ramp_s=None)
    fleet.place(80)
    fleet.add()
    assert fleet.place(20) == [20] * 5


def test_a_newcomer_takes_a_quarter_until_it_is_warm() -> None:
    """As much as the others have per capacity, divided by four; and its part afterwards."""
    fleet = Fleet(4)
    fleet.clock.advance(RAMP_S)
    fleet.place(80)
    fleet.add()
    assert sorted(fleet.place(20)) == [6, 23, 23, 24, 24]
    fleet.clock.advance(RAMP_S - 1)
    assert fleet.place(1)[4] == 6
    fleet.clock.advance(1)
    assert fleet.place(19) == [24] * 5


def test_an_engine_that_was_down_ramps() -> None:
    """From its first sign of life on, in the incarnation that it had."""
    fleet = Fleet(4)
    for _ in range(3):
        fleet.pool.report_probe(fleet.engines[0], alive=False)
    fleet.clock.advance(10 * RAMP_S)
    fleet.pool.report_probe(fleet.engines[0], alive=True)
    assert fleet.place(26) == [2, 8, 8, 8]
    fleet.clock.advance(RAMP_S)
    assert fleet.place(6) == [8] * 4


def test_a_fresh_fleet_is_even() -> None:
    """Everybody ramps, so nobody is preferred, and nothing is refused."""
    assert Fleet(4).place(1_000) == [250] * 4

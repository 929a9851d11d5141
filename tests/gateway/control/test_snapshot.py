"""Snapshots: what moves which counter, and that one moment has one answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab import Pool
from trimtab_gateway.control.metrics_backend import BACKEND_STATES
from trimtab_gateway.publisher import MAX_AGE_S, Publisher
from trimtab_gateway.snapshot import Fleet, RoleSnapshot, ServedRole, engine_state


class Watched:
    """One role with one pool, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pool = Pool("rollout/tiny")
        self.fleet = Fleet((ServedRole("rollout", {"tiny": self.pool}, "tiny"),))
        self.publisher = Publisher(lambda: self.fleet, clock=lambda: self.now)

    def look(self) -> RoleSnapshot:
        """The role in a snapshot that is taken now."""
        self.now += 1.0
        return self.publisher.current().roles["rollout"]

    def counters(self) -> tuple[int, int]:
        """``(topology_revision, snapshot_seq)`` now."""
        role = self.look()
        return role.topology_revision, role.snapshot_seq

    def state(self) -> str:
        """The model's state now."""
        return self.look().models[0].state


@pytest.fixture
def watched() -> Watched:
    """A role without backends."""
    return Watched()


def test_nothing_changes_when_nothing_changed(watched: Watched) -> None:
    """Load is no topology: counters of a busy pool stand still."""
    watched.pool.add_backend("10.0.0.1:30000")
    before = watched.counters()
    lease = watched.pool.acquire("session")
    assert watched.counters() == before
    lease.settle("completed")
    assert watched.counters() == before


def test_an_endpoint_that_comes_or_goes_moves_both(watched: Watched) -> None:
    """Scale up, scale down, and the same address again as another incarnation."""
    assert watched.counters() == (1, 1)
    watched.pool.add_backend("10.0.0.1:30000")
    assert watched.counters() == (2, 2)
    watched.pool.remove_backend("10.0.0.1:30000")
    assert watched.counters() == (3, 3)
    watched.pool.add_backend("10.0.0.1:30000")
    assert watched.counters() == (4, 4)
    watched.pool.remove_backend("10.0.0.1:30000")
    watched.pool.add_backend("10.0.0.1:30000")
    assert watched.counters() == (5, 5)


def test_health_drain_and_capacity_move_only_the_sequence(watched: Watched) -> None:
    """The endpoints stay the same ones."""
    backend = watched.pool.add_backend("10.0.0.1:30000", proven=False)
    revision, seq = watched.counters()
    watched.pool.report_probe(backend, alive=True)
    assert watched.counters() == (revision, seq + 1)
    watched.pool.add_backend("10.0.0.1:30000", 4.0)
    assert watched.counters() == (revision, seq + 2)
    watched.pool.drain_backend(backend.id)
    assert watched.counters() == (revision, seq + 3)


def test_a_model_is_ready_when_an_engine_may_take_a_request(watched: Watched) -> None:
    """Else it is in the state that its engines share, else unavailable."""
    assert watched.state() == "unavailable"
    first = watched.pool.add_backend("10.0.0.1:30000", proven=False)
    assert watched.state() == "starting"
    watched.pool.report_probe(first, alive=True)
    assert watched.state() == "ready"
    watched.pool.drain_backend(first.id)
    assert watched.state() == "draining"
    watched.pool.add_backend("10.0.0.2:30000", proven=False)
    assert watched.state() == "unavailable"


def test_readers_of_one_moment_share_one_snapshot(watched: Watched) -> None:
    """Within the maximal age the same object is served, so many readers cost what one costs."""
    watched.look()
    first = watched.publisher.current()
    watched.pool.add_backend("10.0.0.1:30000")
    watched.now += MAX_AGE_S / 2
    assert watched.publisher.current() is first
    watched.now += MAX_AGE_S
    newer = watched.publisher.current()
    assert newer is not first
    assert newer.epoch == first.epoch


def test_each_process_has_its_own_epoch(watched: Watched) -> None:
    """Counters of two gateways are not comparable, and the epoch says so."""
    assert watched.publisher.current().epoch != Watched().publisher.current().epoch


def test_an_engine_of_other_weights_is_not_called_ready(watched: Watched) -> None:
    """It lives, and takes nothing until it has the published version: discovery says which of the two is missing."""
    backend = watched.pool.add_backend("10.0.0.1:30000")
    watched.pool.publish("start", 7)
    watched.pool.report_weights(backend, 6)
    assert (engine_state(watched.pool.statistics().backends[0]), watched.state()) == (
        "pending_version",
        "pending_version",
    )
    watched.pool.report_weights(backend, 7)
    assert engine_state(watched.pool.statistics().backends[0]) == "ready"


def test_an_engine_with_a_half_open_breaker_is_down_and_seen_in_the_metrics(watched: Watched) -> None:
    """After failed executions a good probe allows one trial; every health a pool reports is a state of the metric."""
    backend = watched.pool.add_backend("10.0.0.1:30000")
    for _ in range(3):
        watched.pool.acquire().settle("failed")
    watched.pool.report_probe(backend, alive=True)
    (statistics,) = watched.pool.statistics().backends
    assert (statistics.health, engine_state(statistics)) == ("half_open", "down")
    assert statistics.health in BACKEND_STATES


def test_whoever_runs_the_engines_counts_the_topology(watched: Watched) -> None:
    """With a manager, epoch and revision are its own: what the publisher counts in the pool is not shown."""
    role = watched.fleet.roles[0]
    own_epoch = watched.look().epoch
    watched.fleet = Fleet((replace(role, topology_revision=7),), epoch="of-the-manager")
    before = watched.look()
    watched.pool.add_backend("10.0.0.1:30000")
    during = watched.look()
    watched.fleet = Fleet((replace(role, topology_revision=8),), epoch="of-the-manager")
    after = watched.look()
    assert own_epoch != before.epoch == during.epoch == after.epoch == "of-the-manager"
    assert [seen.topology_revision for seen in (before, during, after)] == [7, 7, 8]
    assert before.snapshot_seq < during.snapshot_seq == after.snapshot_seq

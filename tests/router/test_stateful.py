"""Random interleavings through the Python binding, against a model that is too simple to be wrong.

The model knows what every caller was told, and the invariants say what that implies: counts equal open leases (I1),
nothing is granted against the rules at that instant (I2), nothing is granted to a fenced owner (I5), and nothing is
left once everything is settled and closed (I7). Time passes only when a rule says so, which is how senders are lost.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import trimtab
from trimtab import Backend, Lease, Outcome, ParkedAcquire, Pool
from trimtab.sequence import Numbers
from trimtab.testing import VirtualClock

OWNERS = ("train", "eval")
SENDERS = {"rollout/0": "train", "rollout/1": "train", "eval-rollout/0": "eval"}
REASONS = ("pause", "checkpoint")
SESSIONS = ("a", "b", "c", None)
OUTCOMES: tuple[Outcome, ...] = ("completed", "aborted", "rejected", "failed", "not_sent", "cancelled", "ambiguous")
OBSTACLES = (trimtab.Fenced, trimtab.NotServing, trimtab.VersionNotAcked)

REQUESTS = st.lists(st.tuples(st.sampled_from(sorted(SENDERS)), st.sampled_from(SESSIONS)), min_size=1, max_size=6)

# 10^5 steps by default, in a minute of one core; 10^6 are 25,000 examples. Some examples end before their last step.
EXAMPLES = int(os.environ.get("TRIMTAB_STATEFUL_EXAMPLES", "2500"))
STEPS = 50
STEPS_ON_AVERAGE = 40
# Hypothesis remembers every example of a run, in hundreds of megabytes for a thousand.
EXAMPLES_PER_RUN = 500

TTL_S = 10.0
FOREVER_S = 1e9


@dataclass
class Sender:
    """What one sender's process knows."""

    owner: str
    numbers: Numbers = field(default_factory=lambda: Numbers("p1"))
    closed_sessions: set[str] = field(default_factory=set)


@dataclass
class Held:
    """An open lease and the request it answers."""

    lease: Lease
    sender: str
    number: int
    session: str | None


@dataclass
class Waiting:
    """An acquire that waits."""

    parked: ParkedAcquire
    sender: str
    number: int
    session: str | None


def nobody() -> None:
    """The wake-up of a test that polls by hand."""


class PoolMachine(RuleBasedStateMachine):
    """Senders of two owners, a controller, and engines that come and go."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.pool = Pool("rollout/default", await_version=True, sender_ttl_s=TTL_S, clock=self.clock)
        self.backends: dict[str, Backend] = {}
        self.draining: set[str] = set()
        self.reports: dict[str, int] = {}
        self.senders = {name: Sender(owner) for name, owner in SENDERS.items()}
        self.fences: dict[str, set[str]] = {owner: set() for owner in OWNERS}
        self.acknowledged: dict[str, int | None] = dict.fromkeys(OWNERS)
        self.version: int | None = None
        self.update: str | None = None
        self.server_paused = False
        self.updates = 0
        self.processes = 1
        self.held: list[Held] = []
        self.waiting: list[Waiting] = []

    @initialize()
    def begin(self) -> None:
        """Two engines, every sender attached, the first version published."""
        for owner in OWNERS:
            self.pool.attach_owner(owner)
        for name, sender in self.senders.items():
            self.pool.attach_sender(name, sender.numbers.incarnation, sender.owner)
        for number in range(2):
            self.add_backend(number)
        self.pool.publish("u-0", 0)
        self.version = 0
        for owner in OWNERS:
            self.acknowledge(owner)

    # Requests.

    def obstacle(self, owner: str) -> bool:
        """Whether the rules forbid a grant to ``owner`` now, whatever the backends do."""
        return bool(
            self.fences[owner]
            or self.update is not None
            or self.server_paused
            or self.version is None
            or self.acknowledged[owner] != self.version
        )

    def granted(self, lease: Lease, sender: str, number: int, session: str | None) -> None:
        """A lease was given to a sender: I2 and I5 are checked at this instant."""
        owner = self.senders[sender].owner
        assert not self.obstacle(owner), (owner, self.fences, self.update, self.acknowledged, self.version)
        assert lease.weight_version == self.version
        backend = lease.backend
        assert self.backends.get(backend.id) == backend
        assert backend.id not in self.draining
        self.held.append(Held(lease, sender, number, session))

    @rule(requests=REQUESTS, wait=st.booleans())
    def acquire(self, requests: list[tuple[str, str | None]], wait: bool) -> None:
        """Several senders ask, each for a lease at once or for a place in the queue."""
        for sender, session in requests:
            number = self.senders[sender].numbers.take()
            if wait:
                self.acquire_or_wait(sender, number, session)
            else:
                self.acquire_at_once(sender, number, session)

    def acquire_at_once(self, sender: str, number: int, session: str | None) -> None:
        """A lease, or a refusal that the rules or the backends explain."""
        numbers = self.senders[sender].numbers
        try:
            lease = self.pool.acquire(session, key=(sender, numbers.incarnation, number))
        except trimtab.NoEligibleBackend:
            numbers.settle(number)
        except OBSTACLES:
            numbers.settle(number)
            assert self.obstacle(self.senders[sender].owner)
        else:
            self.granted(lease, sender, number, session)

    def acquire_or_wait(self, sender: str, number: int, session: str | None) -> None:
        """A lease, or a place in the queue."""
        key = (sender, self.senders[sender].numbers.incarnation, number)
        acquired = self.pool.acquire_or_park(session, wait_s=FOREVER_S, key=key)
        if isinstance(acquired, ParkedAcquire):
            self.waiting.append(Waiting(acquired, sender, number, session))
        else:
            self.granted(acquired, sender, number, session)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A duplicate of an acquire that was granted gets the same lease, whatever happened since."""
        held = data.draw(st.sampled_from(self.held))
        before = self.pool.statistics().outstanding
        key = (held.sender, self.senders[held.sender].numbers.incarnation, held.number)
        again = self.pool.acquire(held.session, key=key)
        assert (again.id, again.backend) == (held.lease.id, held.lease.backend)
        assert self.pool.statistics().outstanding == before
        # Two objects stand for one lease now: this one must not settle it when it is dropped.
        self.settle_held(held, "completed", twin=again)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6))
    def settle(self, data: st.DataObject, outcomes: list[Outcome]) -> None:
        """Executions end, in any order and in any way; the pool hears later what it may forget."""
        for outcome in outcomes[: len(self.held)]:
            self.settle_held(data.draw(st.sampled_from(self.held)), outcome)

    def settle_held(self, held: Held, outcome: Outcome, twin: Lease | None = None) -> None:
        """Settles a lease and every object that stands for it."""
        self.held.remove(held)
        held.lease.settle(outcome)
        if twin is not None:
            twin.settle(outcome)
        numbers = self.senders[held.sender].numbers
        with pytest.raises(trimtab.RequestSettled):
            self.pool.acquire(held.session, key=(held.sender, numbers.incarnation, held.number))
        numbers.settle(held.number)
        self.look()

    @rule(sender=st.sampled_from(sorted(SENDERS)))
    def heartbeat(self, sender: str) -> None:
        """A sender says what it needs no more: its tombstones are those it did not mention."""
        numbers = self.senders[sender].numbers
        status = self.pool.heartbeat(sender, numbers.incarnation, numbers.settled())
        assert status.tombstones == 0
        assert status.held == sum(held.sender == sender for held in self.held)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), leave=st.booleans())
    def stop_waiting(self, data: st.DataObject, leave: bool) -> None:
        """A caller's time is up, or the caller goes away."""
        waiting = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(waiting)
        if leave:
            waiting.parked.abandon()
        else:
            with pytest.raises((*OBSTACLES, trimtab.NoEligibleBackend)):
                waiting.parked.give_up()
        self.senders[waiting.sender].numbers.settle(waiting.number)

    @rule(sender=st.sampled_from(sorted(SENDERS)), session=st.sampled_from([key for key in SESSIONS if key]))
    def close_session(self, sender: str, session: str) -> None:
        """The trajectory is over; what waits for it is told so."""
        self.pool.close_sender_session(sender, session)
        self.look()

    @rule(name=st.sampled_from(sorted(SENDERS)))
    def fall_silent(self, name: str) -> None:
        """A sender's process dies, and comes back: whatever it held is given up, and what waits for it ends."""
        for _ in range(2):
            for other, sender in self.senders.items():
                if other != name:
                    self.pool.heartbeat(other, sender.numbers.incarnation, sender.numbers.settled())
            self.clock.advance(0.6 * TTL_S)
        lost = [held for held in self.held if held.sender == name]
        self.held = [held for held in self.held if held.sender != name]
        for held in lost:
            with pytest.raises((trimtab.UnknownLease, trimtab.OutcomeConflict)):
                held.lease.settle("completed")
        for waiting in [waiting for waiting in self.waiting if waiting.sender == name]:
            self.waiting.remove(waiting)
            # The other one when time let it be granted before the silence was too long: it was given back, unused.
            with pytest.raises((trimtab.UnknownSender, trimtab.UnknownLease)):
                waiting.parked.poll(nobody)
        self.processes += 1
        self.senders[name] = Sender(SENDERS[name], Numbers(f"p{self.processes}"))
        self.pool.attach_sender(name, self.senders[name].numbers.incarnation, SENDERS[name])
        self.look()

    # The controller.

    @rule(owner=st.sampled_from(OWNERS), reason=st.sampled_from(REASONS))
    def fence(self, owner: str, reason: str) -> None:
        """A reason more; the same one twice is one."""
        self.fences[owner].add(reason)
        assert self.pool.fence(owner, reason).fences == sorted(self.fences[owner])

    @rule(owner=st.sampled_from(OWNERS), reason=st.sampled_from(REASONS))
    def unfence(self, owner: str, reason: str) -> None:
        """A reason less, if it was there."""
        self.fences[owner].discard(reason)
        assert self.pool.unfence(owner, reason).fences == sorted(self.fences[owner])
        self.look()

    @precondition(lambda self: self.update is None and not self.server_paused and self.version is not None)
    @rule()
    def begin_update(self) -> None:
        """Nothing is granted from here on."""
        self.updates += 1
        self.update = f"u-{self.updates}"
        self.server_paused = True
        self.pool.begin_update(self.update)

    @precondition(lambda self: self.update is not None)
    @rule()
    def drain(self) -> None:
        """Succeeds exactly when no lease is open."""
        assert self.update is not None
        phase = self.pool.drain(self.update, timeout_s=FOREVER_S).phase
        assert (phase != "quiescing") == (not self.held)

    @precondition(lambda self: self.server_paused and (self.update is None or not self.held))
    @rule()
    def end_server_pause(self) -> None:
        """The engines serve again; the version is another matter."""
        self.pool.end_server_pause(self.update or f"u-{self.updates}")
        self.server_paused = False
        self.look()

    @precondition(lambda self: self.update is not None)
    @rule()
    def publish(self) -> None:
        """Possible exactly when nothing is outstanding."""
        assert self.update is not None
        assert self.version is not None
        if self.held:
            with pytest.raises(trimtab.InvalidTransition):
                self.pool.publish(self.update, self.version + 1)
            return
        self.version += 1
        self.pool.publish(self.update, self.version)
        self.update = None
        self.look()

    @precondition(lambda self: self.version is not None)
    @rule(owner=st.sampled_from(OWNERS))
    def acknowledge(self, owner: str) -> None:
        """The owner's processes know the version."""
        assert self.version is not None
        self.pool.ack(owner, self.version)
        self.acknowledged[owner] = self.version
        self.look()

    @rule(owner=st.sampled_from(OWNERS))
    def open_for(self, owner: str) -> None:
        """Everything that stands in the way of an owner ends, as at the end of a training step.

        Random single steps seldom come here, and then nobody who waits would ever be served.
        """
        for held in list(self.held) if self.update is not None else []:
            self.settle_held(held, "aborted")
        if self.update is not None:
            self.drain()
            self.publish()
        if self.server_paused:
            self.end_server_pause()
        self.acknowledge(owner)
        for reason in REASONS:
            self.unfence(owner, reason)

    # The engines.

    @precondition(lambda self: self.update is None)
    @rule(number=st.integers(0, 3))
    def add_backend(self, number: int) -> None:
        """An engine with the published weights joins, or is known already."""
        backend = self.pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}", weight_version=self.version)
        self.backends[backend.id] = backend
        self.look()

    @precondition(lambda self: self.backends)
    @rule(data=st.data())
    def remove_backend(self, data: st.DataObject) -> None:
        """An engine leaves at once; what runs on it runs on."""
        name = data.draw(st.sampled_from(sorted(self.backends)))
        backend = self.backends.pop(name)
        self.draining.discard(name)
        assert self.pool.remove_backend(name) == sum(held.lease.backend == backend for held in self.held)

    @precondition(lambda self: self.backends)
    @rule(data=st.data())
    def drain_backend(self, data: st.DataObject) -> None:
        """An engine takes nothing new."""
        name = data.draw(st.sampled_from(sorted(self.backends)))
        self.draining.add(name)
        self.pool.drain_backend(name)

    @precondition(lambda self: self.draining)
    @rule(data=st.data())
    def resume_backend(self, data: st.DataObject) -> None:
        """The drain of an engine is cancelled; who waits may get it at once."""
        name = data.draw(st.sampled_from(sorted(self.draining)))
        self.draining.discard(name)
        self.pool.resume_backend(name)
        self.look()

    @rule(number=st.integers(0, 3), alive=st.booleans())
    def probe(self, number: int, alive: bool) -> None:
        """Probes of known engines, and late ones of engines that left (I6)."""
        backend = self.backends.get(f"e{number}")
        if backend is not None:
            self.pool.report_probe(backend, alive)
            self.look()

    # What must hold after every step.

    def look(self) -> None:
        """Takes what was granted to those who wait: at the instant of the grant, since nothing happened in between."""
        for waiting in list(self.waiting):
            try:
                lease = waiting.parked.poll(nobody)
            except trimtab.SessionClosed:
                self.waiting.remove(waiting)
                self.senders[waiting.sender].numbers.settle(waiting.number)
                continue
            if lease is not None:
                self.waiting.remove(waiting)
                self.granted(lease, waiting.sender, waiting.number, waiting.session)

    @invariant()
    def counts_are_those_of_open_leases(self) -> None:
        """I1, for the pool and for each incarnation."""
        type(self).steps += 1
        statistics = self.pool.statistics()
        assert statistics.outstanding == len(self.held)
        assert statistics.waiters == len(self.waiting)
        per_backend = Counter(held.lease.backend for held in self.held)
        for backend in statistics.backends:
            assert backend.outstanding == per_backend[self.backends[backend.id]]
        assert statistics.weight_version == self.version
        assert statistics.server_paused == self.server_paused

    def teardown(self) -> None:
        """I7: with everything settled and closed, every table is empty."""
        for waiting in self.waiting:
            waiting.parked.abandon()
            self.senders[waiting.sender].numbers.settle(waiting.number)
        self.waiting.clear()
        for held in list(self.held):
            self.settle_held(held, "completed")
        for name, sender in self.senders.items():
            self.pool.heartbeat(name, sender.numbers.incarnation, sender.numbers.settled())
            self.pool.detach_sender(name, sender.numbers.incarnation)
        statistics = self.pool.statistics()
        assert (statistics.outstanding, statistics.sessions, statistics.waiters) == (0, 0, 0)
        assert (statistics.tombstones, statistics.senders) == (0, [])
        assert all(backend.sessions == 0 for backend in statistics.backends)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pool() -> None:
    """So many steps, and the invariants after each of them."""
    PoolMachine.steps = 0
    for first in range(0, EXAMPLES, EXAMPLES_PER_RUN):
        run_state_machine_as_test(
            PoolMachine,
            settings=settings(
                max_examples=min(EXAMPLES_PER_RUN, EXAMPLES - first),
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert PoolMachine.steps >= EXAMPLES * STEPS_ON_AVERAGE

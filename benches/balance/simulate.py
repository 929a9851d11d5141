"""One run: sessions, a policy and engines in virtual time, event by event."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from benches.balance.engine import Engine, Request
from benches.balance.policies.base import Call

if TYPE_CHECKING:
    from benches.balance.fleet import Fleet
    from benches.balance.policies.base import Maker, Policy
    from benches.balance.workload import SessionPlan, Workload


@dataclass(frozen=True)
class Run:
    """What came of it. Seconds are virtual.

    Attributes:
        makespan_s: From the first submission to the end of the last session.
        durations_s: Of each session, from its submission to its last answer, in order of the workload.
        turns_s: Latency of each turn, from the request to the answer, queueing and lost attempts included.
        output_tokens: Of each replica.
        lost_tokens: How many of them were lost with a replica.
        prompt_tokens: Of all admitted requests.
        cached_tokens: How many of them were in the cache of the engine they came to.
        busy_s: How long each replica worked.
        moved: Turns that came to another replica than the session's turn before.
        retractions: Requests that lost their place to memory pressure.
        groups_s: When each group had ended, in order of ending.
        load: Open calls of each replica every ``sample_s``.
        sample_s: Distance of the samples; 0 without.
    """

    makespan_s: float
    durations_s: tuple[float, ...]
    turns_s: tuple[float, ...]
    output_tokens: tuple[int, ...]
    lost_tokens: int
    prompt_tokens: int
    cached_tokens: int
    busy_s: tuple[float, ...]
    moved: int
    retractions: int
    groups_s: tuple[float, ...]
    load: tuple[tuple[int, ...], ...] = ()
    sample_s: float = 0.0


def simulate(workload: Workload, fleet: Fleet, make: Maker, seed: int, *, sample_s: float = 0.0) -> Run:
    """Run a workload under a policy; ``seed`` is for the policy's own choices."""
    policy = make([replica.capacity for replica in fleet.replicas], random.Random(f"policy/{seed}"))
    return _Simulation(workload, fleet, policy, sample_s).run()


class _Kind(Enum):
    TURN = auto()
    ENGINE = auto()
    LOST = auto()
    BACK = auto()
    RESUME = auto()
    SAMPLE = auto()


class _Live:
    """A session in flight."""

    __slots__ = ("call", "group", "index", "plan", "replica", "request", "submitted_s", "turn", "turn_s")

    def __init__(self, index: int, group: int, plan: SessionPlan, submitted_s: float) -> None:
        self.index = index
        self.group = group
        self.plan = plan
        self.submitted_s = submitted_s
        self.turn = 0
        self.turn_s = 0.0
        """When the present turn began."""
        self.replica = -1
        """Where its last call went."""
        self.call: Call | None = None
        self.request: Request | None = None
        """The present turn, if it began; an update interrupts it."""


class _Simulation:
    def __init__(self, workload: Workload, fleet: Fleet, policy: Policy, sample_s: float) -> None:
        self._workload = workload
        self._fleet = fleet
        self._policy = policy
        self._engines = [Engine(replica.model) for replica in fleet.replicas]
        self._events: list[tuple[float, int, _Kind, Any]] = []
        self._tie = 0
        self._now_s = 0.0
        self._next_group = 0
        self._left = [len(group) for group in workload.groups]
        self._live: dict[SessionPlan, _Live] = {}
        self._durations = [0.0] * len(workload.sessions)
        self._submitted = 0
        self._ended = 0
        self._turns: list[float] = []
        self._groups_s: list[float] = []
        self._moved = 0
        self._lost_tokens = 0
        self._stalled: list[_Live] | None = None
        """Sessions that wait for the end of a pause; ``None`` without one."""
        self._weights_due = False
        self._open = [0] * len(self._engines)
        self._sample_s = sample_s
        self._load: list[tuple[int, ...]] = []

    def run(self) -> Run:
        for _ in range(min(self._workload.window, len(self._workload.groups))):
            self._submit_group()
        if outage := self._fleet.outage:
            self._at(outage.lost_s, _Kind.LOST)
            self._at(outage.back_s, _Kind.BACK)
        if self._sample_s:
            self._at(self._sample_s, _Kind.SAMPLE)
        events, finished = self._events, len(self._durations)
        turn, engine_due = _Kind.TURN, _Kind.ENGINE
        while self._ended < finished:
            self._now_s, _, kind, subject = heapq.heappop(events)
            if kind is engine_due:
                # One whose work was cut short or extended has left this event behind.
                if subject.due_s == self._now_s:
                    self._advance(subject)
                    if subject.due_s < math.inf:
                        self._at(subject.due_s, engine_due, subject)
            elif kind is turn:
                self._begin_turn(subject)
            else:
                self._rare(kind)
        return self._result()

    def _at(self, when_s: float, kind: _Kind, subject: object = None) -> None:
        self._tie += 1
        heapq.heappush(self._events, (when_s, self._tie, kind, subject))

    # Sessions.

    def _submit_group(self) -> None:
        number = self._next_group
        self._next_group += 1
        for plan in self._workload.groups[number]:
            arrival_s = self._now_s if plan.arrival_s is None else plan.arrival_s
            live = self._live[plan] = _Live(self._submitted, number, plan, arrival_s)
            self._submitted += 1
            self._at(arrival_s + plan.start_s, _Kind.TURN, live)

    def _begin_turn(self, live: _Live) -> None:
        turn = live.plan.turns[live.turn]
        live.turn_s = self._now_s
        live.request = Request(live.plan, live.turn, turn.prompt_tokens, turn.output_tokens)
        if self._stalled is None:
            self._send(live, live.request)
        else:
            self._stalled.append(live)

    def _send(self, live: _Live, request: Request) -> None:
        plan = live.plan
        call = live.call = Call(plan.name, plan.task, request.prompt, plan.shared_tokens, plan.task_tokens)
        replica = self._policy.pick(call, self._now_s)
        if replica != live.replica and live.replica >= 0:
            self._moved += 1
        live.replica = replica
        self._open[replica] += 1
        engine = self._engines[replica]
        before_s = engine.due_s
        engine.submit(request, self._now_s)
        if engine.due_s != before_s:
            self._at(engine.due_s, _Kind.ENGINE, engine)

    def _settle(self, live: _Live, output_tokens: int) -> None:
        call = live.call
        if call is None:
            raise RuntimeError(f"{live.plan.name} has no open call")
        live.call = None
        self._open[live.replica] -= 1
        self._policy.settle(call, live.replica, output_tokens)

    def _advance(self, engine: Engine) -> None:
        for request in engine.advance():
            self._answered(request)
        if self._weights_due:
            self._stop_for_weights()

    def _answered(self, request: Request) -> None:
        plan = request.plan
        live = self._live[plan]
        self._settle(live, request.output)
        self._turns.append(self._now_s - live.turn_s)
        live.request = None
        live.turn += 1
        if live.turn < len(plan.turns):
            self._at(self._now_s + plan.turns[live.turn - 1].tool_s, _Kind.TURN, live)
            return
        self._policy.close(plan.name)
        self._durations[live.index] = self._now_s - live.submitted_s
        self._ended += 1
        self._left[live.group] -= 1
        if self._left[live.group] == 0:
            self._groups_s.append(self._now_s)
            if self._next_group < len(self._workload.groups):
                self._submit_group()
            every = self._fleet.publish_every_groups
            if every and len(self._groups_s) % every == 0:
                # Others that ended in the same step are answered first: nothing of them is there to be stopped.
                self._weights_due = self._ended < len(self._durations)

    # What happens seldom.

    def _rare(self, kind: _Kind) -> None:
        outage = self._fleet.outage
        if kind is _Kind.SAMPLE:
            self._load.append(tuple(self._open))
            self._at(self._now_s + self._sample_s, kind)
        elif kind is _Kind.RESUME:
            stalled, self._stalled = self._stalled or [], None
            for live in stalled:
                if live.request is not None:
                    self._send(live, live.request)
        elif outage is not None and kind is _Kind.LOST:
            self._lose(outage.replica)
        elif outage is not None:
            self._policy.back(outage.replica)

    def _lose(self, replica: int) -> None:
        """Answers that were under way are lost; their sessions ask again at once."""
        stopped = self._engines[replica].abort(self._now_s)
        self._policy.lost(replica)
        for request in stopped:
            self._lost_tokens += request.generated
            self._settle(self._live[request.plan], 0)
        for request in stopped:
            live, turn = self._live[request.plan], request.plan.turns[request.turn]
            live.request = Request(request.plan, request.turn, turn.prompt_tokens, turn.output_tokens)
            self._send(live, live.request)

    def _stop_for_weights(self) -> None:
        """Requests stop where they are, keep what they have, and go on after the pause, as trainers do it."""
        self._weights_due = False
        self._stalled = []
        for engine in self._engines:
            for request in engine.abort(self._now_s):
                live = self._live[request.plan]
                self._settle(live, 0)
                self._stalled.append(live)
        self._policy.published()
        self._at(self._now_s + self._fleet.publish_pause_s, _Kind.RESUME)

    def _result(self) -> Run:
        engines = self._engines
        return Run(
            makespan_s=self._now_s,
            durations_s=tuple(self._durations),
            turns_s=tuple(self._turns),
            output_tokens=tuple(engine.output_tokens for engine in engines),
            lost_tokens=self._lost_tokens,
            prompt_tokens=sum(engine.prompt_tokens for engine in engines),
            cached_tokens=sum(engine.cached_tokens for engine in engines),
            busy_s=tuple(engine.busy_s for engine in engines),
            moved=self._moved,
            retractions=sum(engine.retractions for engine in engines),
            groups_s=tuple(self._groups_s),
            load=tuple(self._load),
            sample_s=self._sample_s,
        )

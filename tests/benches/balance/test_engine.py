"""The bench's engine against the simulated engine's own parts, step by step."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from benches.balance.engine import Engine, Request
from benches.balance.fleet import TP4, EngineModel
from benches.balance.workload import SessionPlan, Turn
from tests.benches.balance.step_engine import StepExecution, context, step_run

MODEL = replace(TP4, decode_request_step_s=0.0005, decode_kv_token_s=1e-6, prefill_tokens_per_s=5_000.0, max_running=6)


def jump_run(model: EngineModel, arrivals: list[tuple[float, Request]]) -> tuple[Engine, dict[Request, float]]:
    """Run requests on the bench's engine; when each ended."""
    engine, ended = Engine(model), {}
    pending = sorted(arrivals, key=lambda arrival: arrival[0])
    while pending or engine.due_s < math.inf:
        if pending and pending[0][0] < engine.due_s:
            arrival_s, request = pending.pop(0)
            engine.submit(request, arrival_s)
        else:
            now_s = engine.due_s
            ended.update(dict.fromkeys(engine.advance(), now_s))
    return engine, ended


def plans(rng: random.Random, sessions: int, turns: int) -> list[SessionPlan]:
    """Sessions of two tasks."""
    made = []
    for number in range(sessions):
        prompt, own = 60, []
        for _ in range(turns):
            output = rng.randint(1, 60)
            own.append(Turn(prompt, output, 0.0))
            prompt += output + rng.randint(1, 40)
        made.append(SessionPlan(number % 2, number // 2, 0.0, 20, 40, tuple(own)))
    return made


def both(model: EngineModel, seed: int, *, sessions: int, turns: int, gap_s: float) -> tuple[list[float], list[float]]:
    """When the same requests ended, on the simulated engine's parts and on the bench's."""
    rng = random.Random(seed)
    steps, jumps = [], []
    for plan in plans(rng, sessions, turns):
        at_s = rng.uniform(0.0, gap_s)
        for number, turn in enumerate(plan.turns):
            whole = context(plan, turn.prompt_tokens + turn.output_tokens)
            prompt, output = whole[: turn.prompt_tokens], whole[turn.prompt_tokens :]
            steps.append((at_s, StepExecution(prompt, output)))
            jumps.append((at_s, Request(plan, number, turn.prompt_tokens, turn.output_tokens)))
            # Long enough for the turn before, as a session has one request at a time.
            at_s += 12.0 + rng.uniform(0.0, gap_s)
    step_run(model, steps)
    _, ended = jump_run(model, jumps)
    return [execution.ended_s for _, execution in steps], [ended[request] for _, request in jumps]


@pytest.mark.parametrize("seed", range(8))
def test_every_request_ends_at_the_same_instant(seed: int) -> None:
    """With queueing, arrivals in the middle of steps, and shared prefixes, while memory suffices."""
    model = replace(MODEL, kv_tokens=100_000)
    step, jump = both(model, seed, sessions=10, turns=4, gap_s=2.0)
    assert jump == pytest.approx(step, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_with_eviction_and_retraction_the_instants_stay_close(seed: int) -> None:
    """Which segment goes first differs in rare orders; means agree."""
    model = replace(MODEL, kv_tokens=900)
    step, jump = both(model, seed, sessions=10, turns=4, gap_s=2.0)
    assert sum(jump) / len(jump) == pytest.approx(sum(step) / len(step), rel=0.02)


def test_a_slow_engine_takes_longer_by_its_factor() -> None:
    """Half the speed, twice the time."""
    plan = SessionPlan(0, 0, 0.0, 20, 40, (Turn(100, 50, 0.0),))
    request = Request(plan, 0, 100, 50)
    _, ended = jump_run(MODEL, [(0.0, request)])
    slow = Request(plan, 0, 100, 50)
    _, slow_ended = jump_run(replace(MODEL, speed=0.5), [(0.0, slow)])
    assert slow_ended[slow] == pytest.approx(2 * ended[request])


def test_tokens_are_counted_once() -> None:
    """Whatever was retracted and computed again, each output token counts once, and memory is free at the end."""
    model = replace(MODEL, kv_tokens=900)
    rng = random.Random(3)
    requests = [
        (rng.uniform(0, 1), Request(plan, 0, plan.turns[0].prompt_tokens, plan.turns[0].output_tokens + 200))
        for plan in plans(rng, 12, 1)
    ]
    engine, ended = jump_run(model, requests)
    assert len(ended) == 12
    assert engine.retractions > 0
    assert engine.output_tokens == sum(request.output for _, request in requests)
    assert engine.running == 0
    assert 0 <= engine.cache.used <= model.kv_tokens


def test_an_abort_keeps_what_was_generated() -> None:
    """The engine stops between two steps; what was generated is in the prompt of the next attempt."""
    plan = SessionPlan(0, 0, 0.0, 20, 40, (Turn(100, 50, 0.0),))
    request = Request(plan, 0, 100, 50)
    engine = Engine(MODEL)
    engine.submit(request, 0.0)
    engine.advance()
    prefilled_s = engine.busy_s
    stopped = engine.abort(prefilled_s + 10.5 * (MODEL.decode_step_s + 110 * MODEL.decode_kv_token_s))
    assert stopped == [request]
    assert request.generated in (10, 11)
    assert request.prompt == 100 + request.generated
    assert request.left == 50 - request.generated
    assert engine.due_s == math.inf
    assert engine.cache.used == 0

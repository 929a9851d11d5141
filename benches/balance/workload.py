"""The work: seeded sessions of coding agents, as a trainer submits them.

A *task id* is sampled ``samples`` times; each sample is a session of its own. A session starts its environment, then
takes turns: one generation, one tool. The next prompt is the last one, its output and what the tool said. The trainer
keeps a window of groups in flight: when the last sample of a group has ended, the next group is submitted.

Everything about a session but its timing is drawn beforehand from the seed, so that every policy gets the same work.
The shape is that of the field's reference run as far as its configuration is public (``AREAL_SWE``), the rest has its
source or reason beside it. Parameters are set before policies are compared, by sources and by what routing off does,
never by what trimtab does.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

AREAL_SWE = "https://github.com/areal-project/AReaL/blob/main/examples/swe/swe_colocate_cc.yaml (16 engines of 4 cards)"
NEMO_RL = "https://github.com/NVIDIA-NeMo/RL/pull/3663 (610 recorded sessions of coding agents)"
TRACELAB = "https://tracelab.cs.washington.edu (357,161 steps of coding agents)"
DEEPSWE = "https://www.together.ai/blog/deepswe (64 tasks x 8 samples, 64 H100, Qwen3-32B)"


@dataclass(frozen=True)
class LogNormal:
    """A skewed positive quantity: ``median * exp(sigma * N(0, 1))``, cut at ``most``."""

    median: float
    sigma: float
    most: float

    def draw(self, rng: random.Random) -> float:
        """One value."""
        return min(self.median * math.exp(self.sigma * rng.gauss(0.0, 1.0)), self.most)


@dataclass(frozen=True)
class WorkloadModel:
    """What the sessions are like. Tokens, seconds and counts; each default with its reason."""

    tasks: int = 64
    """Task ids of one step, as in the field's reference run. ``AREAL_SWE`` says where they come from: batches of 32 and
    one version of staleness let (1 + 1) x 32 in while weights are fixed."""

    samples: int = 8
    """Sessions per task id. Source: ``AREAL_SWE``, ``DEEPSWE``."""

    window: int = 64
    """Groups in flight. Source: ``AREAL_SWE``, whose limit of staleness lets all 64 in at once (its own limit is 720):
    32 sessions for each of 16 engines."""

    system_tokens: int = 2_000
    """What every prompt begins with: instructions and tool descriptions of a typical agent scaffold."""

    task_tokens: LogNormal = LogNormal(1_500, 0.6, 8_000)
    """What the prompts of a task id share beyond that: an issue text with a listing of the repository."""

    turns: LogNormal = LogNormal(29, 0.30, 200)
    """Turns of a session of an average task. Source: ``NEMO_RL`` for all sessions (median 29, 90th percentile 56, at
    most 99; here 29, 54 and about 105 with the spread between task ids), and a limit of 200 as in AReaL's."""

    difficulty_sigma: float = 0.40
    """Spread (of the logarithm) of the turns between task ids. The one parameter that is fitted: it gives a coefficient
    of variation near 0.19 of output tokens per engine when each task id goes to one of 16 engines in turn, which is
    what the field's reference run reports without routing. What it leaves of the spread of ``turns`` in ``NEMO_RL`` is
    within a task id."""

    output_tokens: LogNormal = LogNormal(317, 1.0, 8_192)
    """Per turn. Source: a mean of 523 in ``TRACELAB``, with the long tail of a reasoning model."""

    observation_tokens: LogNormal = LogNormal(400, 1.1, 8_192)
    """What a tool adds to the prompt: some dozen lines mostly, at times a whole file; scaffolds cut at about 8k."""

    tool_s: LogNormal = LogNormal(1.5, 1.5, 300)
    """Most commands look or edit (a second), some run test suites (minutes) until a timeout: mean 4.6, p99 49 s."""

    environment_s: LogNormal = LogNormal(8, 0.6, 120)
    """Start of a session's container, before its first turn."""

    early_end: float = 0.05
    """Share of sessions that end early, after a uniform part of their turns: broken containers, early submissions."""

    context_tokens: int = 131_072
    """Prompt plus output; a session ends before the turn that would exceed it. Source: ``AREAL_SWE``."""

    stragglers: float = 0.0
    """Share of sessions whose outputs are ``straggler_factor`` times as long: models that repeat themselves."""

    straggler_factor: float = 4.0


@dataclass(frozen=True)
class Turn:
    """One generation and the tool after it.

    Attributes:
        prompt_tokens: The whole prompt: the previous one, its output, and what is new.
        output_tokens: What the engine generates.
        tool_s: Seconds until the next turn; after the last one nobody waits for it.
    """

    prompt_tokens: int
    output_tokens: int
    tool_s: float


@dataclass(frozen=True, eq=False)
class SessionPlan:
    """One session, fully determined but for when its turns happen. Equal to itself alone: simulations look it up often.

    Attributes:
        task: Number of its task id.
        sample: Number within the group.
        start_s: From submission to the first turn.
        shared_tokens: Tokens at the start of the prompt that all sessions share.
        task_tokens: Tokens after these that the sessions of the task id share.
        turns: At least one.
        arrival_s: When it is submitted; ``None`` means with its group.
    """

    task: int
    sample: int
    start_s: float
    shared_tokens: int
    task_tokens: int
    turns: tuple[Turn, ...]
    arrival_s: float | None = None

    @property
    def name(self) -> str:
        """What it is called on the wire."""
        return f"task-{self.task}-{self.sample}"

    @property
    def output_tokens(self) -> int:
        """Of all turns."""
        return sum(turn.output_tokens for turn in self.turns)


@dataclass(frozen=True)
class Workload:
    """The work of one run: groups in the order of submission, and how many of them may be in flight."""

    groups: tuple[tuple[SessionPlan, ...], ...]
    window: int

    @property
    def sessions(self) -> list[SessionPlan]:
        """All of them."""
        return [session for group in self.groups for session in group]


def generate(model: WorkloadModel, seed: int) -> Workload:
    """The same sessions for the same model and seed, on every machine."""
    groups = tuple(_group(model, seed, task) for task in range(model.tasks))
    return Workload(groups, model.window)


def _group(model: WorkloadModel, seed: int, task: int) -> tuple[SessionPlan, ...]:
    # A generator of its own per group: one more task id does not change the others.
    rng = random.Random(f"{seed}/{task}")
    difficulty = math.exp(model.difficulty_sigma * rng.gauss(0.0, 1.0))
    task_tokens = round(model.task_tokens.draw(rng))
    turns = replace(model.turns, median=model.turns.median * difficulty)
    return tuple(
        SessionPlan(
            task,
            sample,
            start_s=model.environment_s.draw(rng),
            shared_tokens=model.system_tokens,
            task_tokens=task_tokens,
            turns=_turns(model, rng, model.system_tokens + task_tokens, turns),
        )
        for sample in range(model.samples)
    )


def _turns(model: WorkloadModel, rng: random.Random, prompt: int, length: LogNormal) -> tuple[Turn, ...]:
    wanted = max(round(length.draw(rng)), 1)
    if rng.random() < model.early_end:
        wanted = rng.randint(1, wanted)
    stretch = model.straggler_factor if rng.random() < model.stragglers else 1.0
    made: list[Turn] = []
    for _ in range(wanted):
        output = max(round(min(stretch * model.output_tokens.draw(rng), model.output_tokens.most)), 1)
        if prompt + output > model.context_tokens:
            break
        made.append(Turn(prompt, output, model.tool_s.draw(rng)))
        prompt += output + max(round(model.observation_tokens.draw(rng)), 1)
    return tuple(made)

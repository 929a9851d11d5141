"""The demo's workload: multi-turn coding sessions, drawn from a seed.

Reinforcement learning on software-engineering tasks asks for several samples of every task (a *group* that shares its
prompt). Each sample is a session: generate, run a tool, append what the tool said, generate again. The number of turns
and the length of an answer are heavy-tailed, so sessions differ by far more than 10x, and every turn re-sends all that
came before it. The shapes below are those of such rollouts with both axes shortened (a session takes seconds instead
of an hour), so that twenty seconds hold some hundreds of sessions.

Everything here is pure: the same seed gives the same sessions.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogNormal", "SessionPlan", "TurnPlan", "WorkloadConfig", "plan_sessions", "seeded", "token_ids"]

FIRST_TOKEN_ID = 1_000  # real vocabularies keep bytes and special tokens below


@dataclass(frozen=True)
class LogNormal:
    """A log-normal quantity, clamped to ``[least, most]``.

    Attributes:
        median: The middle value, in the unit of the quantity.
        sigma: Standard deviation of its natural logarithm; 1.0 puts one draw in 20 above five medians.
        least: Smallest value drawn.
        most: Largest value drawn.
    """

    median: float
    sigma: float
    least: float
    most: float

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be drawn from."""
        if not 0 < self.least <= self.median <= self.most < math.inf:
            raise ValueError(f"log-normal bounds must satisfy 0 < least <= median <= most, got {self}")
        if not 0 <= self.sigma < math.inf:
            raise ValueError(f"log-normal sigma must be finite and not negative, got {self.sigma}")

    def draw(self, rng: random.Random) -> float:
        """Return one value."""
        return min(max(rng.lognormvariate(math.log(self.median), self.sigma), self.least), self.most)


@dataclass(frozen=True)
class WorkloadConfig:
    """Shape of the sessions; lengths in tokens, pauses in seconds.

    Attributes:
        group_size: Samples per task; they share the task's prompt.
        prompt: Length of a task's prompt.
        turns: Turns of a session.
        output: Tokens generated in a turn.
        tool: Tokens that a tool's answer adds to the context.
        pause_s: Time a tool runs between two turns.
        stream_share: Share of the turns that ask for an event stream, 0 to 1.
        vocabulary: Token ids are below this.
    """

    group_size: int = 8
    prompt: LogNormal = LogNormal(400, 0.4, 64, 1_600)
    turns: LogNormal = LogNormal(4, 0.65, 1, 16)
    output: LogNormal = LogNormal(24, 0.8, 4, 200)
    tool: LogNormal = LogNormal(40, 0.8, 4, 400)
    pause_s: LogNormal = LogNormal(0.1, 0.7, 0.01, 1.0)
    stream_share: float = 0.5
    vocabulary: int = 32_000


@dataclass(frozen=True)
class TurnPlan:
    """One turn: what the tool before it appends, what the model shall write, how long the tool after it runs."""

    added_tokens: int
    output_tokens: int
    stream: bool
    pause_s: float


@dataclass(frozen=True)
class SessionPlan:
    """One session. ``prompt_seed`` is shared by the samples of a group, so their prompts are the same tokens."""

    key: str
    prompt_seed: str
    prompt_tokens: int
    turns: tuple[TurnPlan, ...]

    @property
    def output_tokens(self) -> int:
        """Tokens the session generates in all its turns."""
        return sum(turn.output_tokens for turn in self.turns)


def seeded(seed: int | str) -> random.Random:
    """Return a generator that gives the same draws for the same seed."""
    return random.Random(seed)  # noqa: S311 -- a workload, not a secret


def plan_sessions(config: WorkloadConfig, seed: int) -> Iterator[SessionPlan]:
    """Yield sessions without end, group after group, the same ones for the same seed."""
    rng = seeded(seed)
    group = 0
    while True:
        prompt_tokens = round(config.prompt.draw(rng))
        for sample in range(config.group_size):
            yield SessionPlan(
                key=f"task-{group:04d}/{sample}",
                prompt_seed=f"{seed}/{group}",
                prompt_tokens=prompt_tokens,
                turns=_plan_turns(config, rng),
            )
        group += 1


def _plan_turns(config: WorkloadConfig, rng: random.Random) -> tuple[TurnPlan, ...]:
    """Draw the turns of one session; the last one is followed by no tool, and the first one by no tool's answer."""
    count = round(config.turns.draw(rng))
    return tuple(
        TurnPlan(
            added_tokens=round(config.tool.draw(rng)) if turn else 0,
            output_tokens=round(config.output.draw(rng)),
            stream=rng.random() < config.stream_share,
            pause_s=config.pause_s.draw(rng) if turn + 1 < count else 0.0,
        )
        for turn in range(count)
    )


def token_ids(rng: random.Random, count: int, vocabulary: int) -> list[int]:
    """Return ``count`` token ids from ``rng``, none of them special."""
    return rng.choices(range(FIRST_TOKEN_ID, vocabulary), k=count)

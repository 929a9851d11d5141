"""What a policy decides, and what it is told.

A policy sees what a router sees: requests as they come, the end of each, membership. It does not see engines or plans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence


@dataclass(slots=True, eq=False)
class Call:
    """One request as a router sees it.

    Attributes:
        session: The session key.
        task: Number of the task id; only the sender that deals tasks to engines knows it.
        prompt_tokens: Length of the prompt.
        shared_tokens: How many tokens at its start all prompts have in common (what a prefix tree would find).
        task_tokens: How many after these the task's prompts have in common.
    """

    session: str
    task: int
    prompt_tokens: int
    shared_tokens: int
    task_tokens: int


class Policy(Protocol):
    """Chooses a replica for each call. Replicas are numbers; ``settle`` follows every ``pick`` exactly once."""

    def pick(self, call: Call, now_s: float) -> int:
        """Where the call runs."""

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """It ended there; with no tokens when the engine was lost or stopped."""

    def close(self, session: str) -> None:
        """The session is over."""

    def lost(self, replica: int) -> None:
        """The replica is gone; its open calls are settled after this."""

    def back(self, replica: int) -> None:
        """It is there again, with an empty cache."""

    def published(self) -> None:
        """New weights: every cache is empty."""


class Counting(ABC):
    """What most policies share: who is there, and how many calls are open on each."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        self.capacities = tuple(capacities)
        self.rng = rng
        self.live = list(range(len(capacities)))
        self.open = [0] * len(capacities)

    def pick(self, call: Call, now_s: float) -> int:
        """Choose, and count."""
        replica = self.choose(call, now_s)
        self.open[replica] += 1
        return replica

    @abstractmethod
    def choose(self, call: Call, now_s: float) -> int:
        """Where the call runs."""

    def settle(self, call: Call, replica: int, output_tokens: int) -> None:
        """Count it out."""
        del call, output_tokens
        self.open[replica] -= 1

    def close(self, session: str) -> None:  # noqa: B027 -- for most policies there is nothing to do
        """Nothing is remembered."""

    def lost(self, replica: int) -> None:
        """Choose it no more."""
        self.live.remove(replica)

    def back(self, replica: int) -> None:
        """Choose it again."""
        self.live.append(replica)
        self.live.sort()

    def published(self) -> None:  # noqa: B027 -- as above
        """Nothing changes."""


class Sticky(Counting):
    """Sessions stay where ``place`` put them, as long as that replica lives."""

    def __init__(self, capacities: Sequence[float], rng: random.Random) -> None:
        super().__init__(capacities, rng)
        self.pins: dict[str, int] = {}
        self.sessions = [0] * len(capacities)

    def choose(self, call: Call, now_s: float) -> int:
        """The pin, or a new one."""
        replica = self.pins.get(call.session)
        if replica is None:
            replica = self.place(call, now_s)
            self.pins[call.session] = replica
            self.sessions[replica] += 1
        return replica

    @abstractmethod
    def place(self, call: Call, now_s: float) -> int:
        """Where a session without a pin goes."""

    def close(self, session: str) -> None:
        """Forget it."""
        self.unpin_session(session)

    def unpin_session(self, session: str) -> None:
        """Forget its pin."""
        replica = self.pins.pop(session, None)
        if replica is not None:
            self.sessions[replica] -= 1

    def unpin(self, replica: int) -> None:
        """Forget every pin to a replica."""
        for session in [session for session, pin in self.pins.items() if pin == replica]:
            self.unpin_session(session)

    def lost(self, replica: int) -> None:
        """Its sessions go elsewhere with their next turn, and stay there."""
        super().lost(replica)
        self.unpin(replica)


if TYPE_CHECKING:
    Maker = Callable[[Sequence[float], random.Random], Policy]

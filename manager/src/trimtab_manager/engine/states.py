"""The states of one incarnation of an engine, and the ways between them.

```
            activate            drain                release               activate
 Starting ───────────► Ready ◄────────► Draining ───────────► Sleeping ──────────────► Onloading
                         ▲    cancel_drain                                                  │
                         └──────────────────────────────────────────────────────────────────┘
                                                      all tags are in, healthy
```

``Dead`` follows any state, and nothing follows it: a restarted engine is a new generation with a new object. Two states
may be entered from themselves, because they carry progress: ``Draining`` (idleness is confirmed) and ``Onloading`` (a
tag came in). Only ``Ready`` is in routing, and an engine is not paused in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trimtab.errors import InvalidTransition
from trimtab_manager.engine.types import MemoryTag

DrainPolicy = Literal["wait", "abort"]


@dataclass(frozen=True)
class Starting:
    """It was launched, and has not served yet."""

    since_s: float


@dataclass(frozen=True)
class Ready:
    """It is in routing."""

    since_s: float


@dataclass(frozen=True)
class Draining:
    """Out of routing; what runs may end, or is ended.

    Attributes:
        since_s: When it came in here.
        policy: Whether what runs may end by itself.
        confirmed: Whether router and engine agreed that nothing runs any more. New requests cannot come.
    """

    since_s: float
    policy: DrainPolicy
    confirmed: bool = False


@dataclass(frozen=True)
class Sleeping:
    """It gave memory back, said so, and was seen alive after it.

    Attributes:
        since_s: When it came in here.
        released: What it gave back.
    """

    since_s: float
    released: frozenset[MemoryTag]


@dataclass(frozen=True)
class Onloading:
    """It takes memory back.

    Attributes:
        since_s: When it came in here.
        released: What is still out.
        weights_current: Whether the weights in memory are those that it should serve.
    """

    since_s: float
    released: frozenset[MemoryTag]
    weights_current: bool


@dataclass(frozen=True)
class Dead:
    """It serves nothing any more.

    Attributes:
        since_s: When it came in here.
        reason: Why, with the evidence.
        quarantined: Its process may still live, in a state that nobody knows.
    """

    since_s: float
    reason: str
    quarantined: bool = False


State: TypeAlias = Starting | Ready | Draining | Sleeping | Onloading | Dead

TRANSITIONS: Mapping[type[State], frozenset[type[State]]] = {
    Starting: frozenset({Ready, Dead}),
    Ready: frozenset({Draining, Dead}),
    Draining: frozenset({Draining, Ready, Sleeping, Dead}),
    Sleeping: frozenset({Onloading, Dead}),
    Onloading: frozenset({Onloading, Ready, Dead}),
    Dead: frozenset({Dead}),
}


def name_of(state: State) -> str:
    """The state in one lower-case word, as status pages and result rows show it."""
    return type(state).__name__.lower()


def check_transition(engine: str, before: State, after: State) -> None:
    """Raises ``InvalidTransition`` unless ``after`` may follow ``before``."""
    if type(after) not in TRANSITIONS[type(before)]:
        raise InvalidTransition(f"engine {engine} cannot go from {name_of(before)} to {name_of(after)}")

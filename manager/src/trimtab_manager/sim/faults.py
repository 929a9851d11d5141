"""Faults that a simulated engine can be told to have: what they are, how they are written, which one applies.

A fault is armed by configuration (``SimConfig.faults``), on the command line (``--fault``), or while the engine runs
(``POST /sim/faults``). It applies to requests on its path, ``times`` often or until it is cleared; the first armed one
that fits wins.

==========  ==========================================================================================================
kind        what happens to a request on its path
==========  ==========================================================================================================
hold        it is accepted and never answered, until the faults are cleared or the client leaves
delay       it is answered ``delay_s`` later
status      it is answered with ``status`` and never reaches the engine
drip        the body of the answer leaves ``chunk_bytes`` at a time, ``delay_s`` apart
reset       after ``at_bytes`` of the body the connection is reset (RST); 0 means before the status line
fin         the same with an orderly close (FIN) that cuts the body short
fin_idle    the answer is complete; ``delay_s`` later the idle connection is closed
crash       after ``at_bytes`` of the body the engine dies; 0 means on arrival
wedge       (no path) the scheduler hangs: ``/health`` fails after its time-out, ``/v1/loads`` goes stale
no_flush    (no path) whatever would empty the prefix cache succeeds and keeps it
==========  ==========================================================================================================
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("hold", "delay", "status", "drip", "reset", "fin", "fin_idle", "crash", "wedge", "no_flush")
CUTTING = frozenset({"reset", "fin", "crash"})
"""Kinds that end a body after ``at_bytes``."""
OF_THE_ENGINE = frozenset({"wedge", "no_flush"})
"""Kinds that no single request meets: they hold until they are cleared."""

INFERENCE = ("/generate", "/v1/chat/completions", "/v1/completions")
ANY = "*"

_LOWEST_STATUS, _HIGHEST_STATUS = 400, 599


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. Times are real seconds, not scaled ones.

    Attributes:
        kind: One of ``KINDS``.
        path: Exact request path, ``*`` for every path, ``None`` for the three inference paths.
        at_bytes: Bytes of the answer's body that still leave (``reset``, ``fin``, ``crash``).
        delay_s: See the table above.
        chunk_bytes: Size of a piece (``drip``).
        status: Status code to answer with (``status``).
        times: How many requests it applies to; ``None`` for all.
    """

    kind: str
    path: str | None = None
    at_bytes: int = 0
    delay_s: float = 0.0
    chunk_bytes: int = 1
    status: int = 503
    times: int | None = None

    def __post_init__(self) -> None:
        """Check every rule. Raises ``ValueError`` naming the field, its value and the rule."""
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; the kinds are {', '.join(KINDS)}")
        if self.path is not None and self.path != ANY and not str(self.path).startswith("/"):  # JSON may hold no text
            raise ValueError(f"path of fault {self.kind} must begin with '/' or be '*', got {self.path!r}")
        if not is_whole(self.at_bytes, 0):
            raise ValueError(
                f"at_bytes of fault {self.kind} must be a whole number, not negative, got {self.at_bytes!r}"
            )
        if not is_quantity(self.delay_s):
            raise ValueError(f"delay_s of fault {self.kind} must be finite, not negative, got {self.delay_s!r}")
        if not is_whole(self.chunk_bytes, 1):
            raise ValueError(
                f"chunk_bytes of fault {self.kind} must be a positive whole number, got {self.chunk_bytes!r}"
            )
        if not is_whole(self.status, _LOWEST_STATUS) or self.status > _HIGHEST_STATUS:
            raise ValueError(f"status of fault {self.kind} must be between 400 and 599, got {self.status!r}")
        if self.times is not None and not is_whole(self.times, 1):
            raise ValueError(f"times of fault {self.kind} must be a positive whole number, got {self.times!r}")

    def applies(self, path: str) -> bool:
        """Whether a request on ``path`` meets it."""
        if self.kind in OF_THE_ENGINE:
            return False
        if self.path is None:
            return path in INFERENCE
        return self.path in {ANY, path}

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault from its short form ``kind[@bytes][:name=value,...]``, such as ``reset@100:times=1``.

        Raises ``ValueError`` naming what is wrong.
        """
        head, _, tail = text.partition(":")
        kind, at, count = head.partition("@")
        values: dict[str, Any] = {"kind": kind}
        if at:
            values["at_bytes"] = _number("at_bytes", count)
        for item in filter(None, tail.split(",")):
            name, equals, value = item.partition("=")
            if not equals:
                raise ValueError(f"fault {text!r}: {item!r} is not of the form name=value")
            values[name] = value if name == "path" else _number(name, value)
        return cls.from_mapping(values)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Fault:
        """A fault from JSON. Raises ``ValueError`` for an unknown name or a bad value."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown field {unknown[0]!r} of a fault; the fields are {', '.join(sorted(known))}")
        if "kind" not in values:
            raise ValueError(f"a fault needs a kind: one of {', '.join(KINDS)}")
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """The JSON form; ``from_mapping`` reads it back."""
        return asdict(self)


class FaultBoard:
    """The armed faults and how often each may still apply."""

    def __init__(self) -> None:
        self._armed: list[tuple[Fault, list[int | None]]] = []
        self._cleared = asyncio.Event()

    def arm(self, fault: Fault) -> None:
        """Add a fault behind those that are armed."""
        self._armed.append((fault, [fault.times]))

    def armed(self) -> list[Fault]:
        """What is armed, in order."""
        return [fault for fault, _ in self._armed]

    def take(self, path: str) -> Fault | None:
        """The fault for a request on ``path``; counts as one of its times."""
        for entry in self._armed:
            fault, left = entry
            if fault.applies(path):
                if left[0] is not None:
                    left[0] -= 1
                    if left[0] == 0:
                        self._armed.remove(entry)
                return fault
        return None

    def clear(self) -> None:
        """Disarm all and let held requests go on."""
        self._armed.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    async def until_cleared(self) -> None:
        """Wait for the next ``clear``."""
        await self._cleared.wait()


def is_whole(value: object, least: int) -> bool:
    """Whether ``value`` is a whole number of at least ``least``; a bool is not a number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_quantity(value: object) -> bool:
    """Whether ``value`` is a finite number, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} of a fault must be a number, got {text!r}") from None

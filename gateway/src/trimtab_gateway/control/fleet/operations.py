"""Which path is which operation, and what its body may say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trimtab.errors import InvalidRequest
from trimtab.fleet import FleetControl, OperationResult

PAUSE_MODES = ("abort", "in_place", "retract")
FLUSH_POLICIES = ("flush", "keep")
MEMORY_TAGS = ("weights", "kv_cache", "cuda_graph")
MOST_ENGINES = 100_000
"""Of a group: more is a slip of the finger."""

Call: TypeAlias = Callable[..., Awaitable[OperationResult]]
Check: TypeAlias = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        path: Behind the role.
        call: The method of :class:`FleetControl`.
        required: Members of the body that must be there, each with its check.
        optional: Members that may be there.
    """

    path: str
    call: Callable[[FleetControl], Call]
    required: dict[str, Check] = field(default_factory=dict)
    optional: dict[str, Check] = field(default_factory=dict)

    def arguments(self, body: object) -> dict[str, Any]:
        """The arguments of the call that ``body`` asks for; ``model`` is among them.

        Raises:
            InvalidRequest: The body is no object, lacks a member, or has one that is unknown or of the wrong type.
        """
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise InvalidRequest(f"the body must be a JSON object with {self._listed()}")
        known = {"model": _text, **self.required, **self.optional}
        for name in body:
            if name not in known:
                raise InvalidRequest(f"unknown member {name!r}; this call takes {self._listed()}")
        for name in self.required:
            if name not in body:
                raise InvalidRequest(f"{name!r} is missing; this call takes {self._listed()}")
        said = {name: value for name, value in body.items() if value is not None or name in self.required}
        return {name: known[name](name, value) for name, value in said.items()}

    def _listed(self) -> str:
        must = [f"{name} (required)" for name in self.required]
        return ", ".join([*must, "model", *self.optional])


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name!r} is {value!r}: it must be a non-empty string")
    return value


def _version(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidRequest(f"{name!r} is {value!r}: it must be a whole number, 0 or more")
    return value


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_ENGINES:
        raise InvalidRequest(f"{name!r} is {value!r}: it must be a whole number from 0 to {MOST_ENGINES}")
    return value


def _one_of(*choices: str) -> Check:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InvalidRequest(f"{name!r} is {value!r}: it must be one of {', '.join(choices)}")
        return value

    return check


def _tags(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(tag in MEMORY_TAGS for tag in value):
        raise InvalidRequest(f"{name!r} is {value!r}: it must be a list of {', '.join(MEMORY_TAGS)}")
    return tuple(value)


OPERATIONS = (
    Operation("/pause", lambda fleet: fleet.pause, optional={"mode": _one_of(*PAUSE_MODES)}),
    Operation("/continue", lambda fleet: fleet.resume),
    Operation("/flush", lambda fleet: fleet.flush),
    Operation("/drain", lambda fleet: fleet.drain, optional={"engine": _text}),
    Operation("/undrain", lambda fleet: fleet.undrain, optional={"engine": _text}),
    Operation("/scale", lambda fleet: fleet.scale, required={"replicas": _count}, optional={"group": _text}),
    Operation("/sleep", lambda fleet: fleet.sleep),
    Operation("/wake", lambda fleet: fleet.wake, optional={"tags": _tags}),
    Operation(
        "/update_weights/from_disk",
        lambda fleet: fleet.update_from_disk,
        required={"path": _text, "version": _version},
        optional={"flush": _one_of(*FLUSH_POLICIES)},
    ),
)

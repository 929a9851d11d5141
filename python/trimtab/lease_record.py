"""A lease that a router granted over HTTP: where to run, with which weights, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from trimtab.errors import InvalidRequest, UnknownLease
from trimtab.outcome import Outcome

__all__ = ["RouterLease"]


@dataclass
class RouterLease:
    """The right to run one execution on one backend.

    Attributes:
        id: 16 hexadecimal digits, unique within the pool and this start of the router.
        backend_id: Id of the backend.
        backend_generation: Number of its incarnation.
        authority: ``host:port`` of the backend.
        url: ``http://host:port`` (or ``https://``): append the path, for example ``lease.url + "/generate"``.
        session: The session the lease was acquired for.
        weight_version: Version of the weights that run the execution: label its tokens with it.
        epoch: The epoch of that version.
        sticky: Whether the session was already pinned to the backend.
        reason: Why this backend: ``sticky``, ``new``, ``no_session``, ``table_full``, ``spill`` or
            ``repin:<why>``.
        waited_ms: How long the last call for it waited at the router.
    """

    id: str
    backend_id: str
    backend_generation: int
    authority: str
    url: str
    session: str | None
    weight_version: int | None
    epoch: int | None
    sticky: bool
    reason: str
    waited_ms: int
    settlement: Mapping[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any], session: str | None) -> RouterLease:
        """The lease of an answer to an acquire."""
        return cls(
            id=answer["lease_id"],
            backend_id=answer["backend"],
            backend_generation=answer["backend_generation"],
            authority=answer["authority"],
            url=answer["url"],
            session=session,
            weight_version=answer["weight_version"],
            epoch=answer["epoch"],
            sticky=answer["sticky"],
            reason=answer["reason"],
            waited_ms=answer["waited_ms"],
        )

    @property
    def outcome(self) -> Outcome | None:
        """The outcome it was settled with; ``None`` while it is open."""
        return None if self.settlement is None else self.settlement["outcome"]

    def settle(
        self,
        outcome: Outcome,
        *,
        output_tokens: int | None = None,
        context_tokens: int | None = None,
        http_status: int | None = None,
        observed_weight_version: int | str | None = None,
        error: str | None = None,
    ) -> None:
        """Says how the execution ended; the router is told when the lease's context ends.

        Args:
            outcome: What the caller saw of the execution.
            output_tokens: Tokens the engine reported.
            context_tokens: Prompt and output of the session so far; a session of which nobody says it is never moved
                off a crowded engine.
            http_status: Status of the engine's answer.
            observed_weight_version: What the engine reported; the router counts it when it is not the lease's.
            error: In words, for people; the router keeps the last ones.

        Raises:
            UnknownLease: It was settled before; nothing changes.
            InvalidRequest: No such outcome.
        """
        if outcome not in get_args(Outcome):
            raise InvalidRequest(f"outcome {outcome!r} is unknown; known are {', '.join(get_args(Outcome))}")
        if self.settlement is not None:
            raise UnknownLease(f"lease {self.id} was settled before")
        members = {
            "outcome": outcome,
            "output_tokens": output_tokens,
            "context_tokens": context_tokens,
            "http_status": http_status,
            "observed_weight_version": observed_weight_version,
            "error": error,
        }
        self.settlement = {name: value for name, value in members.items() if value is not None}

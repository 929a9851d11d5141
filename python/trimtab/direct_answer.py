"""What a direct client hands back: the engine's answer, and under which lease it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from trimtab.lease_record import RouterLease
    from trimtab.outcome import Outcome

__all__ = ["DirectAnswer", "Verdict", "judge", "settle"]

_CLIENT_ERROR, _SERVER_ERROR = 400, 500


@dataclass(frozen=True)
class DirectAnswer:
    """A complete answer of an engine, whatever its status.

    Attributes:
        status: HTTP status; 4xx and 5xx are the engine's own words, and raise nothing.
        headers: Its headers; names in lower case.
        content: Its body.
        model: The model that answered.
        via: ``direct``, or ``gateway`` after a fallback that the caller allowed.
        backend_id: The engine that answered.
        lease_id: The lease it ran under.
        session: The session it belongs to.
        weight_version: The weights it ran on: label its tokens with it. ``None`` before the first publish.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    model: str
    via: Literal["direct", "gateway"]
    backend_id: str | None
    lease_id: str | None
    session: str | None
    weight_version: int | None

    @cached_property
    def _parsed(self) -> Any:
        return json.loads(self.content)

    def json(self) -> Any:
        """The body as JSON, parsed once. Raises ``ValueError`` when it is none."""
        return self._parsed

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return self.status < _CLIENT_ERROR

    @classmethod
    def of_lease(
        cls, status: int, headers: Mapping[str, str], content: bytes, model: str, lease: RouterLease
    ) -> DirectAnswer:
        """The answer of an engine to an execution under ``lease``."""
        return cls(
            status, headers, content, model, "direct", lease.backend_id, lease.id, lease.session, lease.weight_version
        )

    @classmethod
    def of_gateway(cls, status: int, headers: Mapping[str, str], content: bytes, model: str) -> DirectAnswer:
        """The answer of a gateway, whose headers say what a lease would."""
        version = headers.get("x-trimtab-weight-version", "")
        return cls(
            status,
            headers,
            content,
            model,
            "gateway",
            headers.get("x-trimtab-backend"),
            headers.get("x-trimtab-lease"),
            headers.get("x-trimtab-session"),
            int(version) if version.isdecimal() else None,
        )


@dataclass(frozen=True)
class Verdict:
    """How an execution ended, by its answer."""

    outcome: Outcome
    output_tokens: int | None = None
    observed_weight_version: str | None = None


def judge(answer: DirectAnswer) -> Verdict:
    """Read the end of an execution from its complete answer; what the body does not tell stays unknown."""
    if answer.status >= _SERVER_ERROR:
        return Verdict("failed")
    if answer.status >= _CLIENT_ERROR:
        return Verdict("rejected")
    try:
        body = answer.json()
    except ValueError:
        return Verdict("completed")
    parts = [part for part in (body if isinstance(body, list) else [body]) if isinstance(part, dict)]
    metas = [meta for part in parts if isinstance(meta := part.get("meta_info"), dict)]
    reasons = [meta.get("finish_reason") for meta in metas]
    for part in parts:
        choices = part.get("choices")
        if isinstance(choices, list):
            reasons += [choice.get("finish_reason") for choice in choices if isinstance(choice, dict)]
    kinds = [reason.get("type") if isinstance(reason, dict) else reason for reason in reasons]
    counts = [meta.get("completion_tokens") for meta in metas]
    counts += [usage.get("completion_tokens") for part in parts if isinstance(usage := part.get("usage"), dict)]
    known = [count for count in counts if isinstance(count, int)]
    versions = {str(meta["weight_version"]) for meta in metas if meta.get("weight_version") is not None}
    return Verdict(
        "aborted" if "abort" in kinds else "completed",
        sum(known) if known else None,
        # One lease, one version: which of several it was is for whoever reads the answer.
        versions.pop() if len(versions) == 1 else None,
    )


def settle(lease: RouterLease, verdict: Verdict, status: int) -> None:
    """End ``lease`` as the answer says."""
    lease.settle(
        verdict.outcome,
        output_tokens=verdict.output_tokens,
        http_status=status,
        observed_weight_version=verdict.observed_weight_version,
    )

"""What both direct clients are told, and what they make of it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from trimtab.direct_plan import Address, Plan
from trimtab.discovery_feed import DiscoveryFeed
from trimtab.errors import (
    EngineBroken,
    EngineUnreachable,
    InvalidRequest,
    NotDirect,
    RouterUnreachable,
    StaleDiscovery,
    TrimtabError,
)
from trimtab.transport import httpx
from trimtab.wire import RetryPolicy, Target

if TYPE_CHECKING:
    from trimtab.lease_record import RouterLease
    from trimtab.outcome import Outcome

__all__ = ["ABORT_GRACE_S", "BEFORE_SENDING", "DISCOVERY_LAG_S", "Settings", "broken", "not_listed"]

ABORT_GRACE_S = 2.0
"""How long an engine may take to confirm an abort."""
DISCOVERY_LAG_S = (0.0, 0.1, 0.4)
"""A document may be a moment older than a lease: how long to wait before each look for the engine of one."""
BEFORE_SENDING = (NotDirect, StaleDiscovery, EngineUnreachable, RouterUnreachable)
"""Errors after which no byte of a request was written, and which a gateway might not have."""

# Below the five seconds after which SGLang closes an idle connection.
_KEEPALIVE_S = 4.0


class Settings:
    """Checked arguments of a direct client."""

    def __init__(
        self,
        url: str,
        *,
        owner: str,
        sender: str | None,
        key: str | None,
        client_key: str | None,
        engine_key: str | None,
        fallback: str | None,
        retry: RetryPolicy | None,
        connect_timeout_s: float,
    ) -> None:
        if fallback not in (None, "gateway"):
            raise InvalidRequest(f'fallback {fallback!r} is refused: it must be None or "gateway"')
        if not 0 < connect_timeout_s < float("inf"):
            raise InvalidRequest(f"connect_timeout_s is {connect_timeout_s}: it must be a finite number above 0")
        address = Address(url)
        self.url = f"{address.base}{address.prefix}"
        self.fallback = fallback
        self._prefix = address.prefix
        self._owner = owner
        self._sender = sender or f"direct/{socket.gethostname()}/{os.getpid()}"
        self._key = key
        self._gateway = address.target(key if client_key is None else client_key)
        # A key of the engines keeps the same rule, and shows in no text either.
        self._engine = Target("http://engine", engine_key)
        self._retry = retry or RetryPolicy()
        self._connect_timeout_s = connect_timeout_s

    def feed(self) -> DiscoveryFeed:
        """The discovery document of the role."""
        return DiscoveryFeed(self._gateway, f"{self._prefix}/engines", self._retry)

    def router_options(self, role: str, model: str) -> dict[str, Any]:
        """Keywords of the client that leases in one pool."""
        return {
            "url": self._gateway.url,
            "sender": self._sender,
            "owner": self._owner,
            "pool": f"{role}/{model}",
            "key": self._key,
            "retry": self._retry,
        }

    def engine_options(self) -> dict[str, Any]:
        """Keywords of the HTTP client that calls the engines. A generation takes as long as it takes."""
        return {
            "timeout": httpx.Timeout(None, connect=self._connect_timeout_s),
            "limits": httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S),
            "trust_env": False,
            # For the fallback; without TLS nothing is verified, and reading the certificates takes 20 ms.
            "verify": self._gateway.is_tls,
        }

    def engine_key_header(self) -> dict[str, str]:
        """What the engines ask for."""
        return dict(self._engine.headers)

    def engine_headers(self, request: Plan) -> dict[str, str]:
        """Headers of a request to an engine."""
        return {**request.headers(), **self._engine.headers}

    def gateway_url(self, path: str) -> str:
        """Where the gateway serves ``path``."""
        return f"{self.url}{path}"

    def gateway_headers(self, request: Plan, wait: float, expect_version: int | None) -> dict[str, str]:
        """The same request in the words of the gateway."""
        headers = dict(self._gateway.headers)
        if request.session is not None:
            headers["x-trimtab-session"] = request.session
        if wait > 0:
            headers["x-trimtab-wait"] = f"{wait:.3f}"
        if expect_version is not None:
            headers["x-trimtab-weight-version"] = str(expect_version)
        return headers


def broken(request: Plan, lease: RouterLease, error: httpx.HTTPError, outcome: Outcome) -> TrimtabError:
    """Settle ``lease`` after ``error``, and say it in trimtab's words."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    lease.settle(outcome, error=text)
    where = f"POST {request.path} at engine {lease.backend_id} (lease {lease.id})"
    if outcome == "not_sent":
        return EngineUnreachable(f"{where} was not sent: {text}")
    return EngineBroken(f"{where} broke, and may have run: {text}; its result must not be used, nor asked for again")


def not_listed(lease: RouterLease) -> NotDirect:
    """The router granted an engine that discovery does not tell of."""
    return NotDirect(
        f"engine {lease.backend_id} (generation {lease.backend_generation}) is not in the discovery document, or"
        ' without its URL: it may not be called directly; pass fallback="gateway"'
    )

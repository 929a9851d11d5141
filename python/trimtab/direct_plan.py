"""A direct request as values: what is sent, where it may go, and what its end means. No sockets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from string import hexdigits
from typing import TYPE_CHECKING, Any

from trimtab.errors import InvalidRequest, NotDirect, StaleDiscovery
from trimtab.wire import Target

if TYPE_CHECKING:
    from trimtab._core import Route
    from trimtab.discovery_feed import Directory
    from trimtab.lease_record import RouterLease

__all__ = ["Address", "Plan", "check_direct", "check_granted", "plan"]

_GENERATE = "/generate"
# Of these SGLang knows a request by its `rid`; the others end when their connection does.
_WITH_ID = (_GENERATE, "/v1/chat/completions", "/v1/completions", "/v1/embeddings")
# A shorter id of nothing but hexadecimal digits may begin one that a router or a client made.
_SHORTEST_UNIQUE_PREFIX = 8
_PATHS = (*_WITH_ID, "/v1/score", "/v1/rerank", "/v1/responses")


class Address:
    """A role's URL at its gateway, ``http[s]://host[:port][/role]``."""

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        self.base = f"{scheme}{separator}{host}"
        self.prefix = f"{slash}{path}".rstrip("/")
        if self.prefix.count("/") > 1 or "?" in url or "#" in url:
            raise InvalidRequest("the gateway's URL is refused: it must be http[s]://host[:port][/role]")

    def target(self, key: str | None) -> Target:
        """The gateway itself."""
        return Target(self.base, key)


@dataclass(frozen=True)
class Plan:
    """A request that is ready to be sent.

    Attributes:
        path: The engine's path.
        route: The model, and how it is reached.
        session: Its session.
        body: For an engine: JSON without selectors, with an id.
        request_ids: What it can be aborted by; empty when an id of it could abort requests of others.
    """

    path: str
    route: Route
    session: str | None
    body: bytes
    request_ids: tuple[str, ...]

    def headers(self) -> dict[str, str]:
        """The headers of the request to an engine or a router."""
        headers = {"Content-Type": "application/json"}
        if self.route.router_url is not None and self.session is not None:
            headers["X-SMG-Routing-Key"] = self.session
        return headers


def plan(directory: Directory, path: str, payload: Mapping[str, Any], session: str | None) -> Plan:
    """Resolve a request by the gateway's own rules.

    Raises:
        RoutingError: It names no model that is served.
        InvalidRequest: No such path.
    """
    if path not in _PATHS:
        raise InvalidRequest(f"path {path!r} is refused; known: {', '.join(_PATHS)}")
    route = directory.table.resolve(payload)
    if session is None:
        session = directory.table.session(payload)
    body = dict(payload)
    body.pop("route_key", None)
    if path == _GENERATE:
        body.pop("model", None)
    ids: tuple[str, ...] = ()
    if path in _WITH_ID:
        if body.get("rid") is None:
            body["rid"] = uuid.uuid4().hex
        rid = body["rid"]
        given = rid if isinstance(rid, list) else [rid]
        if all(isinstance(each, str) and _is_safe_in_an_abort(each) for each in given):
            ids = tuple(given)
    return Plan(path, route, session, json.dumps(body).encode(), ids)


def _is_safe_in_an_abort(rid: str) -> bool:
    # Engines abort every request whose id begins with the given one; the rule is the gateway's.
    return len(rid) >= _SHORTEST_UNIQUE_PREFIX or any(each not in hexdigits for each in rid)


def check_direct(directory: Directory, route: Route) -> None:
    """Refuse a model that may not be called directly, before a lease is asked for.

    Which engine is eligible at this moment is not asked here: the router, which grants the lease, knows that first.

    Raises:
        StaleDiscovery, NotDirect: As they say.
    """
    model, engines = directory.model(route.model), directory.engines(route.model)
    where = f"model {route.model!r} of role {directory.role!r}"
    if directory.stale:
        raise StaleDiscovery(
            f"{where}: the gateway's last snapshot is stale, so no engine may be called directly; ask again later, or"
            ' pass fallback="gateway"'
        )
    if route.router_url is not None:
        return
    if not engines and model.get("pd_workers"):
        raise NotDirect(
            f"{where} runs on prefill/decode workers, which nobody may call alone; give the model a router_url, or"
            ' pass fallback="gateway"'
        )
    if engines and all(engine.get("base_url") is None for engine in engines):
        raise NotDirect(
            f"{where}: the gateway does not tell where its engines are; set expose_engine_urls = true there, or pass"
            ' fallback="gateway"'
        )


def check_granted(directory: Directory, route: Route, lease: RouterLease) -> bool:
    """Whether the document lists the engine of a lease as one that may be called, this incarnation of it."""
    if route.router_url is not None:
        return lease.url == route.router_url
    return any(
        (engine.get("engine_id"), engine.get("generation")) == (lease.backend_id, lease.backend_generation)
        and engine.get("base_url") is not None
        for engine in directory.engines(route.model)
    )

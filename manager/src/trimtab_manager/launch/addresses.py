"""Where an engine listens, and where others reach it: two addresses that are rarely the same.

An engine *binds* an address of its host, often all of them. What it *advertises* is dialled by the router, so it must
mean this host there too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from trimtab_manager.launch.types import LaunchError

Resolve = Callable[[str], list[str]]
RouteTo = Callable[[str], str]


def resolve(host: str) -> list[str]:
    """Addresses of a host name, the system's preferred one first; empty if it has none."""
    try:
        found: list[tuple[Any, Any, Any, Any, Any]] = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def route_to(address: str) -> str:
    """The local address from which packets to ``address`` leave. Nothing is sent; raises OSError without a route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def url_of(host: str, port: int) -> str:
    """``http://host:port``, with brackets around an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether it means every address of a host: fit to bind, never to advertise."""
    address = _parsed(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """Whether it means each host itself."""
    address = _parsed(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and bool(mapped.is_loopback))


def advertised_address(
    bind: str,
    router: str,
    *,
    advertise: str | None = None,
    find: Resolve = resolve,
    route: RouteTo = route_to,
) -> str:
    """The address under which the router reaches an engine of this host.

    Args:
        bind: Address that the engine binds.
        router: Host of the router, a name or an address.
        advertise: What the operator set, if anything; only checked.
        find: Resolves the router's name.
        route: Local address of the route to an address.

    Raises:
        LaunchError: The address could not be reached from the router; the text says what to set.
    """
    if advertise is not None:
        _check(advertise, router, route, find)
        return advertise
    if not is_wildcard(bind):
        _check(bind, router, route, find)
        return bind
    if is_loopback(router):
        return "::1" if _is_v6(router) else "127.0.0.1"
    last: OSError | None = None
    for address in find(router):
        try:
            local = route(address)
        except OSError as error:
            last = error
            continue
        return local
    why = f"no route to it ({last})" if last is not None else "its name resolves to no address"
    raise LaunchError(
        f"cannot tell under which address the router at {router} reaches this host: {why}. Set the advertised address"
    )


def _check(address: str, router: str, route: RouteTo, find: Resolve) -> None:
    if is_wildcard(address):
        raise LaunchError(
            f"{address} cannot be advertised: it means any address of whoever dials it. Bind {address}, and set the "
            f"advertised address to one of this host's that the router at {router} reaches"
        )
    if is_loopback(address) and not _is_here(router, route, find):
        raise LaunchError(
            f"{address} is reached only from this host, and the router is at {router}. Bind an address of this host's "
            f"network, or 0.0.0.0, and set the advertised address if it is another one"
        )


def _is_here(router: str, route: RouteTo, find: Resolve) -> bool:
    """Whether the router's host is this one: packets to an own address leave from that address."""
    if is_loopback(router):
        return True
    return any(is_loopback(address) or _routed(address, route) == address for address in find(router))


def _routed(address: str, route: RouteTo) -> str | None:
    try:
        return route(address)
    except OSError:
        return None


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _is_v6(host: str) -> bool:
    address = _parsed(host)
    return address is not None and address.version == 6  # noqa: PLR2004  # IP version

"""B77: what an engine binds, and what it tells others to dial."""

from __future__ import annotations

import pytest

from trimtab_manager.launch.addresses import advertised_address, is_loopback, is_wildcard, route_to, url_of
from trimtab_manager.launch.types import LaunchError

NAMES = {"router": ["10.1.0.9"], "twin": ["2001:db8::9", "192.168.0.9"], "nowhere": [], "me": ["10.1.0.5"]}


def find(host: str) -> list[str]:
    """A resolver of these names; an address is itself."""
    return NAMES.get(host, [host])


def route(address: str) -> str:
    """A host with two cards, on 10.1.0.0/16 and 192.168.0.0/24, and no IPv6."""
    if ":" in address:
        raise OSError(101, "Network is unreachable")
    return "10.1.0.5" if address.startswith("10.1.") else "192.168.0.5"


@pytest.mark.parametrize(
    ("bind", "router", "advertise", "expected"),
    [
        ("0.0.0.0", "router", None, "10.1.0.5"),
        ("0.0.0.0", "192.168.0.9", None, "192.168.0.5"),
        ("::", "twin", None, "192.168.0.5"),
        ("0.0.0.0", "127.0.0.1", None, "127.0.0.1"),
        ("::", "::1", None, "::1"),
        ("127.0.0.1", "localhost", None, "127.0.0.1"),
        ("127.0.0.1", "me", None, "127.0.0.1"),
        ("10.1.0.5", "router", None, "10.1.0.5"),
        ("0.0.0.0", "router", "203.0.113.7", "203.0.113.7"),
        ("0.0.0.0", "router", "host.example", "host.example"),
    ],
)
def test_b77_the_address_of_the_route_is_advertised(
    bind: str, router: str, advertise: str | None, expected: str
) -> None:
    """Of two network cards the one that leads to the router; what the operator set comes first."""
    assert advertised_address(bind, router, advertise=advertise, find=find, route=route) == expected


@pytest.mark.parametrize(
    ("bind", "router", "advertise", "text"),
    [
        (
            "0.0.0.0",
            "router",
            "0.0.0.0",
            "0.0.0.0 cannot be advertised.* set the advertised address to one of this host's",
        ),
        ("0.0.0.0", "router", "::", ":: cannot be advertised"),
        ("127.0.0.1", "router", None, "127.0.0.1 is reached only from this host, and the router is at router. Bind an"),
        ("0.0.0.0", "router", "localhost", "localhost is reached only from this host"),
        ("::ffff:127.0.0.1", "router", None, "is reached only from this host"),
        ("0.0.0.0", "nowhere", None, "its name resolves to no address. Set the advertised address"),
        ("0.0.0.0", "2001:db8::9", None, "no route to it .*unreachable.*. Set the advertised address"),
    ],
)
def test_b77_what_nobody_could_dial_is_refused(bind: str, router: str, advertise: str | None, text: str) -> None:
    """At start, and the message says what to set."""
    with pytest.raises(LaunchError, match=text):
        advertised_address(bind, router, advertise=advertise, find=find, route=route)


def test_addresses() -> None:
    """Forms of the special ones, and URLs."""
    assert [host for host in ("0.0.0.0", "::", "[::]", "10.0.0.1", "name") if is_wildcard(host)] == [
        "0.0.0.0",
        "::",
        "[::]",
    ]
    assert [host for host in ("127.8.0.1", "::1", "localhost", "10.0.0.1") if is_loopback(host)] == [
        "127.8.0.1", "::1", "localhost",
    ]  # fmt: skip
    assert (url_of("::1", 80), url_of("10.0.0.1", 80)) == ("http://[::1]:80", "http://10.0.0.1:80")
    assert route_to("127.0.0.1") == "127.0.0.1"

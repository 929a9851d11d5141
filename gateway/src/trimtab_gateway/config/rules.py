"""The rules of single values that only a listener has; the others stand in :mod:`trimtab.spec.rules`."""

from __future__ import annotations

import ipaddress
import os

from trimtab.spec import ConfigError

MAX_SOCKET_PATH_BYTES = 107


def is_loopback(host: str) -> bool:
    """Whether a socket bound to ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_socket_path(key: str, value: object) -> None:
    """Refuse what cannot be the path of a Unix socket, or what would depend on the working directory."""
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ConfigError(key, f"{value!r} is refused: it must be an absolute path like '/run/trimtab/lease.sock'")
    if (size := len(os.fsencode(value))) > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            key, f"{value!r} is refused: it has {size} bytes, and the path of a socket at most {MAX_SOCKET_PATH_BYTES}"
        )


def check_host(host: object, *, has_admin_key: bool) -> None:
    """Refuse an address to bind that is not one, or that opens a gateway without an admin key to other machines."""
    if not isinstance(host, str) or not host:
        raise ConfigError("host", f"{host!r} is refused: it must be an IP address or 'localhost'")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError("host", f"{host!r} is refused: it must be an IP address or 'localhost'") from None
    if not is_loopback(host) and not has_admin_key:
        raise ConfigError(
            "host",
            f"{host!r} is refused: other machines could reach it, and without an admin key whoever can connect "
            "could fence, fail and close your pools; use 127.0.0.1, or give a key in the environment "
            "(TRIMTAB_ADMIN_KEY) or in a file (admin_key_file, --admin-key-file)",
        )

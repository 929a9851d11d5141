"""Ports for processes that bind them only some time after they were chosen."""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 15_000, 32_000


def free_ports(count: int) -> list[int]:
    """Return distinct free loopback ports below the ephemeral range.

    SGLang binds its port only after half a minute of imports. A port from the ephemeral range could by then be the
    local end of somebody's connection.

    Raises:
        OSError: too few of the ports that were tried are free.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(LOWEST, HIGHEST), 200):
        if len(ports) == count:
            return ports
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    raise OSError(f"no {count} free ports between {LOWEST} and {HIGHEST}")

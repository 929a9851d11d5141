"""A router in a process of its own, so that its memory is nobody else's.

Run as ``python -m tests.router.soak.router_process AUTHORITY...``: prints its port, cuts off everybody and starts anew,
empty, on the same port for each line on stdin, and ends with it.
"""

from __future__ import annotations

import sys

from trimtab import _core


def start(engines: list[str], port: int) -> _core.DataPlane:
    """A data plane with an empty pool over ``engines``."""
    pool = _core.Pool("rollout/tiny")
    for engine in engines:
        pool.add_backend(engine)
    roles = [_core.Role("rollout", {"tiny": pool})]
    return _core.DataPlane.start(roles=roles, port=port, worker_threads=2, probe_interval_s=3600.0)


def say(port: int) -> None:
    """Tell the parent that it serves."""
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def main(engines: list[str]) -> None:
    """Serve, and start anew for each line."""
    plane = start(engines, 0)
    port = plane.port
    say(port)
    for _ in sys.stdin:
        plane.shutdown(0.0)
        plane = start(engines, port)
        say(port)
    plane.shutdown(0.0)


if __name__ == "__main__":
    main(sys.argv[1:])

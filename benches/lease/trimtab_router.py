"""The router under test: the Rust data plane with one pool and one worker thread.

Run as ``python -m benches.lease.trimtab_router SOCKET BACKEND_PORT...``: prints its own port and serves, there and on
the Unix socket, until stdin ends.
"""

from __future__ import annotations

import sys

from trimtab import _core


def main(path: str, ports: list[str]) -> None:
    """Serve a pool over the backends at ``ports``."""
    pool = _core.Pool("rollout/tiny")
    for port in ports:
        pool.add_backend(f"127.0.0.1:{port}")
    role = _core.Role("rollout", {"tiny": pool})
    plane = _core.DataPlane.start(roles=[role], lease_socket=path, worker_threads=1)
    print(plane.port, flush=True)
    sys.stdin.read()
    plane.shutdown(0.0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

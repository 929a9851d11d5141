"""The router under test: the Rust data plane with one pool and one worker thread.

Run as ``python -m benches.lease.trimtab_router BACKEND_PORT...``: prints its own port and serves until stdin ends.
"""

from __future__ import annotations

import sys

from trimtab import _core


def main(ports: list[str]) -> None:
    """Serve a pool over the backends at ``ports``."""
    pool = _core.Pool("rollout/tiny")
    for port in ports:
        pool.add_backend(f"127.0.0.1:{port}")
    plane = _core.DataPlane.start(roles=[_core.Role("rollout", {"tiny": pool})], worker_threads=1)
    print(plane.port, flush=True)
    sys.stdin.read()
    plane.shutdown(0.0)


if __name__ == "__main__":
    main(sys.argv[1:])

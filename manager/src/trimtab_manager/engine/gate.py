"""The router's side of an engine, as its life cycle sees it: may new requests come, and how many are there?"""

from __future__ import annotations

from typing import Protocol


class Gate(Protocol):
    """Routing to one engine. All of it is synchronous: when ``close`` returns, no new lease is given."""

    def close(self) -> None:
        """No new lease on this engine. Idempotent."""

    def open(self) -> None:
        """New leases again. Idempotent."""

    def outstanding(self) -> int:
        """Leases that are open on this engine."""

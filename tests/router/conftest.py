"""A real router for the tests of its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.support.relay import Relay, relay_to
from trimtab import Pool, sequence
from trimtab._core import DataPlane, Role
from trimtab.wire import RetryPolicy

KEY = "a-key-that-nobody-may-see"
FAST = RetryPolicy(timeout_s=10.0, horizon_s=20.0, first_delay_s=0.001, max_delay_s=0.01)


@dataclass(frozen=True)
class RunningRouter:
    """A data plane with one pool."""

    pool: Pool
    plane: DataPlane

    @property
    def url(self) -> str:
        """Where its lease API is."""
        return f"http://127.0.0.1:{self.plane.port}"


@pytest.fixture(autouse=True)
def numbers_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is another process, as far as the numbers of its senders go."""
    monkeypatch.setattr(sequence, "_registry", {})


@pytest.fixture
def router() -> Iterator[RunningRouter]:
    """A router of a controller: no leases before the first version, and it fails when an end is unclear."""
    pool = Pool("rollout/default", await_version=True, on_ambiguous="fail_pool")
    for number in range(2):
        pool.add_backend(f"127.0.0.1:{1 + number}", id=f"e{number}")
    pool.publish("u-1", 1)
    role = Role("rollout", {"default": pool})
    plane = DataPlane.start(roles=[role], admin_key=KEY, worker_threads=1, probe_interval_s=3600.0)
    yield RunningRouter(pool, plane)
    plane.shutdown(0.0)


@pytest.fixture
async def relay(router: RunningRouter) -> AsyncIterator[Relay]:
    """A relay before the router, which loses and repeats messages by script."""
    async with relay_to("127.0.0.1", router.plane.port) as relay:
        yield relay

"""acquire + settle through the Python binding: one pair per round, on one core."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trimtab import Pool, Router


def pool_of(backends: int) -> Pool:
    """A pool over ``backends`` equal engines that nobody contacts."""
    return Router.from_engines([f"127.0.0.1:{10_000 + number}" for number in range(backends)]).pool


@pytest.mark.parametrize("backends", [4, 16, 64, 1_000])
def test_sticky(benchmark: BenchmarkFixture, backends: int) -> None:
    """A session's next turn."""
    pool = pool_of(backends)
    acquire = pool.acquire
    acquire("s").settle("completed")

    def turn() -> None:
        acquire("s").settle("completed")

    benchmark(turn)


@pytest.mark.parametrize("backends", [16, 1_000])
def test_unpinned(benchmark: BenchmarkFixture, backends: int) -> None:
    """A pick among all backends."""
    acquire = pool_of(backends).acquire

    def pick() -> None:
        acquire().settle("completed")

    benchmark(pick)


def test_context_manager(benchmark: BenchmarkFixture) -> None:
    """The same, through ``Router.lease``."""
    router = Router(pool_of(16))

    def turn() -> None:
        with router.lease("s"):
            pass

    benchmark(turn)

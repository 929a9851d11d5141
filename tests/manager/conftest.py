"""Fixtures of the tests of the simulated engine: an engine that does not wait, and a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trimtab_manager.sim import SimServer

FAST = SimConfig(time_scale=0, max_running_requests=4, max_total_tokens=4_096, context_length=2_048)


@pytest.fixture
async def sim() -> AsyncIterator[SimServer]:
    """A simulated engine whose modelled time costs nothing."""
    async with running_engine(FAST) as server:
        yield server


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that keeps no connection."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session

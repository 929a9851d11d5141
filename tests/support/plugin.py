"""Pytest fixtures of the kit; ``tests/conftest.py`` loads it."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

import pytest

from tests.support.check import violations
from tests.support.registry import registry, watch_core
from tests.support.sockets import child_processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.lab import Lab

if importlib.util.find_spec("trimtab") is not None and importlib.util.find_spec("trimtab._core") is not None:
    from trimtab import _core

    watch_core(_core)


@pytest.fixture(autouse=True)
async def universal_check() -> AsyncIterator[None]:
    """After every test: nothing outstanding, no lease, socket, task or child process left (see ``check.py``)."""
    registry.clear()
    tasks, children = asyncio.all_tasks(), child_processes()
    yield
    found = await violations(registry, tasks, children)
    registry.clear()
    if found:
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """Engines, gateways and clients that end with the test."""
    from tests.support.lab import open_lab

    async with open_lab() as opened:
        yield opened

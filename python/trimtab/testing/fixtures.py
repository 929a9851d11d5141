"""The helpers as pytest fixtures: ``pytest_plugins = ["trimtab.testing.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimtab._core import Pool
from trimtab.testing import ScriptedEngine, VirtualClock, serving_pool

__all__ = ["scripted_engine", "trimtab_clock", "trimtab_pool"]


@pytest.fixture
def scripted_engine() -> Iterator[ScriptedEngine]:
    """A running engine that does as it is told."""
    with ScriptedEngine(weight_version=1) as engine:
        yield engine


@pytest.fixture
def trimtab_clock() -> VirtualClock:
    """The time of ``trimtab_pool``: it passes when the test says so."""
    return VirtualClock()


@pytest.fixture
def trimtab_pool(scripted_engine: ScriptedEngine, trimtab_clock: VirtualClock) -> Pool:
    """A pool that serves version 1 on ``scripted_engine``, for the owners ``train`` and ``eval``."""
    return serving_pool([scripted_engine], clock=trimtab_clock)

"""The code of ``docs/python.md`` runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.router.conftest import KEY
from trimtab._core import DataPlane, Role
from trimtab.testing import ScriptedEngine, complete, serving_pool

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
TURN, IN_PROCESS, UPDATE, TESTING, CLOCK = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def run(code: str, **names: object) -> dict[str, Any]:
    """Executes a block of the page with some names given; what it defines."""
    defined: dict[str, Any] = dict(names)
    exec(compile(code, str(PAGE), "exec"), defined)
    return defined


async def test_a_turn_and_an_update() -> None:
    """A turn on version 40, an update driven as on the page, and a turn on version 41."""
    with ScriptedEngine(weight_version=40) as engine:
        pool = serving_pool([engine], version=40)
        plane = DataPlane.start(roles=[Role("rollout", {"default": pool})], admin_key=KEY, worker_threads=1)
        try:
            given = {"ROUTER_URL": f"http://127.0.0.1:{plane.port}", "ADMIN_KEY": KEY}
            turn, update = run(TURN, **given)["turn"], run(UPDATE, **given)["update"]
            assert await turn("hello") == "completed on version 40"
            await asyncio.to_thread(update, 41)
            engine.next(complete(finish="abort", weight_version=41))
            assert await turn("hello") == "aborted on version 41"
        finally:
            plane.shutdown(0.0)
    statistics = pool.statistics()
    assert (statistics.outcomes["completed"], statistics.outcomes["aborted"]) == (1, 1)
    assert (statistics.outstanding, statistics.sessions, statistics.senders) == (0, 0, [])


def test_in_process(capsys: pytest.CaptureFixture[str]) -> None:
    """The block prints where and with which weights."""
    run(IN_PROCESS)
    assert capsys.readouterr().out == "http://10.0.0.1:30000 41\n"


def test_testing() -> None:
    """The helpers of the page fit together."""
    assert run(TESTING)["router"].statistics().weight_version == 41


def test_clock() -> None:
    """Two minutes pass, and the sender is lost."""
    assert "rollout/3" in str(run(CLOCK)["pool"].statistics().failure)

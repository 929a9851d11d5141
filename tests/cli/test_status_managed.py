"""``trimtab status`` of a gateway with a manager: the engines that are not there, and the change that runs."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.processes import run
from tests.support.managed import serving
from tests.support.waiting import wait_until
from trimtab_manager.sim.faults import Fault

pytestmark = [pytest.mark.slow]
TRANSFER = "/update_weights_from_disk"


async def shown(url: str) -> list[str]:
    """The lines of the table."""
    result = await run("status", "--url", url)
    assert (result.code, result.err) == (0, "")
    return [line.rstrip() for line in result.out.splitlines()]


def rows(lines: list[str]) -> dict[str, list[str]]:
    """What stands in the row of each engine."""
    return {words[0]: words[1:] for line in lines if line.startswith("policy/") and (words := line.split())}


async def test_engines_that_start_are_named_without_a_row() -> None:
    """Absent, then starting, each with its generation; then they have rows and nothing more is said of them."""
    async with serving(2, start=False) as served:
        lines = await shown(served.url)
        assert "  policy/0 (generation 0) is absent: not started" in lines
        assert "no engines" in lines
        served.launcher.gate.clear()
        starting = asyncio.ensure_future(served.manager.activate("rollout"))
        await wait_until(lambda: len(served.launcher.requests) == 2, "both launches are asked for")
        assert "  policy/1 (generation 1) is starting" in await shown(served.url)
        served.launcher.gate.set()
        await starting
        lines = await shown(served.url)
        assert {engine: words[0] for engine, words in rows(lines).items()} == {"policy/0": "up", "policy/1": "up"}
        assert not [line for line in lines if "generation" in line]


async def test_an_update_in_progress_is_named_until_its_version_is_there() -> None:
    """With its id, its phase and what holds the fleet."""
    async with serving(1) as served:
        engine = served.launcher.handles["policy/0"].server.engine
        engine.arm(Fault(kind="hold", path=TRANSFER, times=1))
        updating = asyncio.ensure_future(served.manager.update_from_disk("rollout", path="sim://weights/7", version=7))
        await wait_until(lambda: not engine.faults.armed(), "the transfer is held")
        lines = await shown(served.url)
        (update,) = (line for line in lines if line.startswith("  in progress: update update-7-"))
        assert f"  drained, {update.split(': ')[1].removesuffix(' to 7')} is drained, engines paused" in lines
        engine.disarm()
        assert (await updating).ok
        assert "  weights version 7" in await shown(served.url)


async def test_an_engine_that_died_is_named_with_the_reason() -> None:
    """Until its next generation is there; the other one keeps its row."""
    async with serving(2) as served:
        served.launcher.gate.clear()
        served.launcher.handles["policy/0"].kill()
        await wait_until(lambda: len(served.launcher.requests) == 3, "its replacement is asked for")
        lines = await shown(served.url)
        assert list(rows(lines)) == ["policy/1"]
        (lost,) = (line for line in lines if line.startswith("  policy/0 (generation 2) is starting: "))
        assert "generation 1 died" in lost
        served.launcher.gate.set()
        await wait_until(lambda: sorted(served.engines()) == ["policy/0", "policy/1"], "it is back")
        assert sorted(rows(await shown(served.url))) == ["policy/0", "policy/1"]

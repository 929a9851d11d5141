"""Placement groups: ours go on every way out, those of others stay."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.ray_cluster.conftest import request
from tests.ray_cluster.test_ray_nodes import all_gone
from tests.support.fake_sglang import write_fake
from tests.support.waiting import wait_until
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.ray_cluster.conftest import MakeLauncher
    from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LAUNCHER = "trimtab_manager.launch.ray.launcher"
MEMBER = "trimtab_manager.launch.ray.member.Member"
STEPS = (
    f"{LAUNCHER}.wait_placed",
    "trimtab_manager.launch.ray.groups.Group.nodes",
    f"{LAUNCHER}.assigned_gpus",
    f"{MEMBER}.describe",
    f"{MEMBER}.reserve",
    f"{MEMBER}.start",
    f"{LAUNCHER}.wait_ready",
    f"{MEMBER}.serving",
)
"""Everything that a start waits for once its group is asked for."""


@pytest.fixture
def foreign(foreign_group: Callable[..., Any], cluster: RayCluster) -> Iterator[str]:
    """A group of somebody else, which is there at the end of the test too."""
    foreign_group([{"CPU": 1}], strategy="PACK", name="somebody/else")
    yield "somebody/else"
    assert "somebody/else" in cluster.groups()


@pytest.mark.parametrize("way", ["raise", "cancel"])
async def test_b79_no_way_out_of_a_start_leaves_a_group(
    make_launcher: MakeLauncher,
    foreign: str,
    cluster: RayCluster,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """An exception in any step of a start, and a cancellation there: no group of ours, no actor, no engine is left."""
    launcher = make_launcher(run_id="steps")
    for step in STEPS:
        reached = asyncio.Event()

        async def fail(*_: object, reached: asyncio.Event = reached, **__: object) -> None:
            reached.set()
            if way == "cancel":
                await asyncio.Event().wait()
            raise RuntimeError("this step fails")

        with monkeypatch.context() as patch:
            patch.setattr(step, fail)
            start = asyncio.ensure_future(launcher.launch(request(gpus=1)))
            await asyncio.wait_for(reached.wait(), 60.0)
            if way == "cancel":
                start.cancel()
            with pytest.raises(RuntimeError if way == "raise" else asyncio.CancelledError):
                await start
        assert cluster.groups() == {foreign}, step
        await wait_until(lambda: cluster.actors() == ["Marker"], f"no engine's actor is left after {step}")
    engine = await launcher.launch(request(gpus=2))
    assert engine.exit() is None, "what the failed starts held is free again"


async def test_a_cancelled_wait_for_the_group_itself_leaves_none(
    make_launcher: MakeLauncher, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is cancelled while Ray makes the group removes it, though it never had it in hand."""
    import threading

    from ray.util import placement_group

    asked, go = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        asked.set()
        assert go.wait(20.0)
        return placement_group(*arguments)

    monkeypatch.setattr("trimtab_manager.launch.ray.groups.placement_group", slow)
    launcher = make_launcher()
    start = asyncio.ensure_future(launcher.launch(request(gpus=1)))
    await wait_until(asked.is_set, "the group is being made")
    start.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not any(name.startswith("trimtab/") for name in cluster.groups())


async def test_a_group_is_removed_when_ray_has_placed_it(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it does: what Ray is reserving then never comes back (ray#64693)."""
    from trimtab_manager.launch.ray.groups import Group, remove_group

    states, seen = iter(["PENDING", "PREPARED", "CREATED", "CREATED", "REMOVED"]), []

    def table(_: object) -> dict[str, str]:
        seen.append(next(states))
        return {"state": seen[-1]}

    monkeypatch.setattr("trimtab_manager.launch.ray.groups.placement_group_table", table)
    monkeypatch.setattr("trimtab_manager.launch.ray.groups.remove_placement_group", lambda _: seen.append("removal"))
    await remove_group(Group("trimtab/x", handle=cast("Any", None), owned=True))
    assert seen == ["PENDING", "PREPARED", "CREATED", "removal", "CREATED", "REMOVED"]


async def test_waiting_for_resources_ends_and_says_what_is_missing(
    make_launcher: MakeLauncher, cluster: RayCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A group that cannot be placed: lines say what is wanted and available, and the error says it at the deadline."""
    caplog.set_level("INFO", "trimtab_manager.launch.ray.groups")
    launcher = make_launcher(placement_deadline_s=1.0, progress_interval_s=0.3)
    with pytest.raises(
        LaunchError, match=r"not placed within 1\.0 s .*GPU: wanted 8, available 4 of 4, at most 2 on a node"
    ):
        await launcher.launch(request(gpus=8))
    lines = [record.message for record in caplog.records if "waiting for placement group" in record.message]
    assert 1 <= len(lines) <= 3
    assert "1 bundle wants GPU: wanted 8, available 4 of 4" in lines[0]
    assert not any(name.startswith("trimtab/") for name in cluster.groups())


async def test_closing_ends_a_start_that_waits(make_launcher: MakeLauncher, cluster: RayCluster) -> None:
    """The start fails because of that, its group is gone, and nothing is launched any more."""
    launcher = make_launcher(run_id="closing")
    start = asyncio.ensure_future(launcher.launch(request(gpus=8)))
    await wait_until(lambda: any("closing" in name for name in cluster.groups()), "the group is waited for")
    await launcher.close()
    with pytest.raises(LaunchError, match="closed during the start"):
        await start
    assert not any(name.startswith("trimtab/") for name in cluster.groups())
    with pytest.raises(LaunchError, match="the launcher is closed"):
        await launcher.launch(request())


async def test_b79_the_janitor_removes_what_dead_runs_left_and_nothing_else(
    make_launcher: MakeLauncher, foreign: str, foreign_group: Callable[..., Any], cluster: RayCluster
) -> None:
    """A new run removes groups with our tag whose run is dead; a living run's and everybody else's stay."""
    living = make_launcher(run_id="living")
    await living.launch(request())
    foreign_group([{"CPU": 1}], strategy="PACK", name="trimtab/dead/policy/0#1")
    foreign_group([{"CPU": 1}], strategy="PACK", name="trimtab-lookalike/dead/policy")
    fresh = make_launcher(run_id="fresh")
    await fresh.launch(request())
    ours = {"trimtab/living/policy/0#1", "trimtab/fresh/policy/0#1"}
    await wait_until(
        lambda: cluster.groups() == {*ours, foreign, "trimtab-lookalike/dead/policy"}, "the dead run's group is gone"
    )


async def test_two_runs_that_live_have_two_ids(make_launcher: MakeLauncher) -> None:
    """A second manager with the id of a living one is refused; the id is free when the first is closed."""
    first, second = make_launcher(run_id="same"), make_launcher(run_id="same")
    await first.launch(request("policy/0"))
    with pytest.raises(LaunchError, match="another manager with run id same lives"):
        await second.launch(request("policy/1"))
    await first.close()
    await second.launch(request("policy/1"))


DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.ray_cluster.conftest import request
from trimtab_manager.launch.ray import ray_launcher

async def main(address, fake, folder, end):
    launcher = ray_launcher(Path(folder), address=address, run_id=f"driver-{end}", python=fake)
    engine = await launcher.launch(request(gpus=1, behave="family", file=f"{folder}/pids"))
    print(*engine.facts["pids"], flush=True)
    if end == "killed":
        sys.stdin.read()
    raise RuntimeError("the driver fails, and closes nothing")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("end", ["killed", "raises"])
async def test_b79_a_driver_that_ends_leaves_no_group_and_no_engine(
    cluster: RayCluster, groups_unchanged: None, tmp_path: Path, end: str
) -> None:
    """SIGKILL of the driver, or an exception nobody catches: Ray ends its actors, and the engines end with those."""
    log = (tmp_path / "driver.log").open("wb")
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, cluster.address, write_fake(tmp_path), str(tmp_path), end,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
    )  # fmt: skip
    try:
        assert driver.stdout is not None
        line = await asyncio.wait_for(driver.stdout.readline(), 60.0)
        assert line, (tmp_path / "driver.log").read_text()
        if end == "killed":
            os.kill(driver.pid, signal.SIGKILL)
        code = await asyncio.wait_for(driver.wait(), 60.0)
        assert code == (-signal.SIGKILL if end == "killed" else 1)
    finally:
        if driver.returncode is None:
            driver.kill()
            await driver.wait()
        log.close()
    family = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(family) == 4
    await wait_until(
        lambda: not any("driver" in name for name in cluster.groups()), "Ray removed the group", deadline_s=30.0
    )
    await all_gone(family)

"""Engines that span nodes of a Ray cluster, and what dies with what."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ray_cluster.conftest import request
from tests.support.waiting import wait_until
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ray_cluster.conftest import MakeLauncher
    from tests.support.ray_cluster import RayCluster
    from trimtab_manager.launch.ray.engine import RayEngine

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def all_gone(pids: list[int]) -> None:
    """Waits until none of the processes runs."""
    await wait_until(lambda: not any(map(lives, pids)), f"processes {pids} have ended")


def pids_of(engine: RayEngine) -> list[int]:
    """Process ids of the engine's first process on each node."""
    return [pid for pid in engine.facts["pids"] if pid is not None]


async def known_pids(engine: RayEngine, count: int) -> list[int]:
    """The same, once every node has reported."""
    await wait_until(lambda: len(pids_of(engine)) == count, "every node reported its process")
    return pids_of(engine)


async def test_an_engine_spans_nodes_with_the_head_first(make_launcher: MakeLauncher, cluster: RayCluster) -> None:
    """The processes meet at the head's address, each knows its rank, and one URL is known: the head's."""
    launcher = make_launcher(bind="0.0.0.0")
    engine = await launcher.launch(request(gpus=2, nodes=2))
    head, follower = engine.facts["nodes"]
    assert head["node_id"] != follower["node_id"]
    assert sorted([head["gpus"], follower["gpus"]]) == [[0, 1], [4, 5]]
    rendezvous = f"--dist-init-addr {head['address']}:{int(head['ports'].partition('-')[0]) + 2}"
    for rank, command in enumerate(engine.facts["command"]):
        assert f"--nnodes 2 --node-rank {rank} {rendezvous}" in command
    assert engine.url.endswith(f":{head['ports'].partition('-')[0]}")
    pids = await known_pids(engine, 2)
    await engine.stop(2.0)
    assert not any(map(lives, pids))


async def test_nodes_come_from_where_the_bundles_are(
    make_launcher: MakeLauncher, foreign_group: Callable[..., Any]
) -> None:
    """A head may be on the second node: nothing is derived from an index."""
    from ray.util import placement_group_table

    group = foreign_group([{"GPU": 1}] * 4, strategy="PACK")
    nodes = placement_group_table(group)["bundles_to_node_id"]
    launcher = make_launcher(group=group)
    engine = await launcher.launch(request(gpus=1, nodes=2, bundle_indices=(3, 0)))
    assert [node["node_id"] for node in engine.facts["nodes"]] == [nodes[3], nodes[0]]
    with pytest.raises(LaunchError, match="policy/1 spans one node, and Ray placed its bundles otherwise"):
        await launcher.launch(request("policy/1", gpus=2, bundle_indices=(1, 2)))


async def test_a_follower_that_does_not_start_fails_the_whole_engine(make_launcher: MakeLauncher) -> None:
    """The error is the follower's, with its log, while the head still waits; nothing is left of either."""
    launcher = make_launcher()
    with pytest.raises(LaunchError, match=r"(?s)node 1 \(pid \d+\) exited with code 3.*NCCL error: peer"):
        await launcher.launch(request(nodes=2, behave="node 1 dies"))


async def test_any_nodes_death_is_the_engines(make_launcher: MakeLauncher) -> None:
    """A follower's process is killed: the handle says so though the head serves, and a stop ends the head."""
    launcher = make_launcher()
    engine = await launcher.launch(request(nodes=2))
    head, follower = await known_pids(engine, 2)
    os.kill(follower, signal.SIGKILL)
    ended = await asyncio.wait_for(engine.exited(), 10.0)
    assert (ended.what, ended.signal) == ("node 1", "SIGKILL")
    assert engine.exit() == ended
    assert lives(head)
    await engine.stop(2.0)
    assert not lives(head)


async def test_the_death_of_an_actor_is_the_engines(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """Somebody kills the actor: the handle says so, and all that the engine started goes, sessions of its own too."""
    launcher = make_launcher()
    engine = await launcher.launch(request(behave="family", file=tmp_path / "pids"))
    family = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(family) == 4
    actor = engine.facts["nodes"][0]["actor_pid"]
    os.kill(actor, signal.SIGKILL)
    ended = await asyncio.wait_for(engine.exited(), 20.0)
    assert (ended.what, ended.pid) == ("actor", actor)
    assert ended.evidence
    await engine.stop(2.0)
    assert not any(map(lives, family))


async def test_a_removed_group_is_the_engines_end(
    make_launcher: MakeLauncher, foreign_group: Callable[..., Any], tmp_path: Path
) -> None:
    """The owner of a given group removes it: Ray kills the actor, and no process of the engine stays on the GPUs."""
    from ray.util import remove_placement_group

    group = foreign_group([{"GPU": 1}], strategy="PACK")
    launcher = make_launcher(group=group)
    engine = await launcher.launch(request(gpus=1, behave="family", file=tmp_path / "pids"))
    family = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    remove_placement_group(group)
    ended = await asyncio.wait_for(engine.exited(), 20.0)
    assert "placement group was removed" in ended.evidence
    await all_gone(family)

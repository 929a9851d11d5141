"""Engines on a Ray cluster: where they run, what they get, and what is left of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.ray_cluster.conftest import request
from tests.support.ray_cluster import VISIBLE
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ray_cluster.conftest import MakeLauncher
    from tests.support.ray_cluster import RayCluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

GPUS_OF = {"127.0.0.3": [0, 1], "127.0.0.4": [4, 5]}


def shown(file: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment that a fake server wrote down."""
    words = file.read_text().split("\0")
    environment = dict(word.split("=", 1) for word in words if word.partition("=")[0].isupper() and "=" in word)
    return words, environment


def flag(words: list[str], name: str) -> str:
    """The value of a flag."""
    return words[words.index(f"--{name}") + 1]


async def test_an_engine_makes_a_group_and_takes_it_along(make_launcher: MakeLauncher, cluster: RayCluster) -> None:
    """Without a given group an engine has one with our tag, whose GPUs are its own, and removes it when it stops."""
    launcher = make_launcher(run_id="run-1")
    engine = await launcher.launch(request(gpus=2))
    assert "trimtab/run-1/policy/0#1" in cluster.groups()
    assert cluster.actors() == ["EngineNode", "Marker"]
    node = engine.facts["nodes"][0]
    assert node["gpus"] == GPUS_OF[node["address"]]
    assert engine.exit() is None
    assert launcher.statistics().engines == ("policy/0#1",)
    await engine.stop(2.0)
    assert (await engine.exited()).signal == "SIGTERM"
    assert launcher.statistics().engines == ()
    assert not any(name.startswith("trimtab/run-1/") for name in cluster.groups())
    assert await refused(engine.url)


async def test_b57_gpus_come_from_the_bundles_of_a_given_group(
    make_launcher: MakeLauncher, foreign_group: Callable[..., Any], cluster: RayCluster, tmp_path: Path
) -> None:
    """Engines run where their bundles are, with the GPUs pinned there; the group is its maker's and stays.

    On the node that shows Ray GPUs 4 and 5 an engine sees both and counts from the first; on the other it sees all.
    """
    group = foreign_group([{"GPU": 1}] * 4, strategy="PACK", name="trainer/actors")
    launcher = make_launcher(group=group)
    seen = {}
    for index in (1, 2):
        engine_id, file = f"policy/{index}", tmp_path / f"shown-{index}"
        engine = await launcher.launch(request(engine_id, gpus=1, bundle_indices=(index,), behave="shows", file=file))
        words, environment = shown(file)
        node = engine.facts["nodes"][0]
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        base = int(flag(words, "base-gpu-id")) if "--base-gpu-id" in words else 0
        seen[index] = (node["node_id"], node["gpus"], visible)
        assert node["gpus"] == [GPUS_OF[node["address"]][index % 2]]
        assert base == index % 2
    nodes = await group_nodes(group)
    assert {index: node for index, (node, _, _) in seen.items()} == {index: nodes[index] for index in (1, 2)}
    assert {visible for _, _, visible in seen.values()} == set(VISIBLE)
    await launcher.close()
    assert "trainer/actors" in cluster.groups()


async def group_nodes(group: Any) -> dict[int, str]:
    """Node of each bundle, as Ray says it."""
    from ray.util import placement_group_table

    found: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return found


async def test_the_actor_takes_nothing_of_the_bundle(
    make_launcher: MakeLauncher, foreign_group: Callable[..., Any]
) -> None:
    """A trainer that holds most of a GPU is no obstacle; an engine holds nothing of it that the trainer could miss."""
    import ray

    group = foreign_group([{"GPU": 1}], strategy="PACK")
    trainers = [hold(group, 0.6)]
    launcher = make_launcher(group=group)
    await launcher.launch(request(gpus=1))
    trainers.append(hold(group, 0.4))
    for trainer in trainers:
        await ray_ready(trainer)
        ray.kill(trainer)


async def test_a_gpu_that_others_hold_wholly_is_an_error(
    make_launcher: MakeLauncher, foreign_group: Callable[..., Any]
) -> None:
    """Without a share left nobody says which GPU a bundle has: the start ends at its deadline and names the bundle."""
    import ray

    group = foreign_group([{"GPU": 1}], strategy="PACK", name="trainer/full")
    trainer = hold(group, 1.0)
    await ray_ready(trainer)
    launcher = make_launcher(group="trainer/full", placement_deadline_s=1.0)
    with pytest.raises(LaunchError, match=r"bundles \[0\] of placement group trainer/full gave no share"):
        await launcher.launch(request(gpus=1))
    ray.kill(trainer)


class Holder:
    """An actor of somebody else."""

    def ready(self) -> bool:
        """Whether it is there."""
        return True


def hold(group: Any, gpus: float) -> Any:
    """An actor that holds a share of bundle 0."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    return ray.remote(num_cpus=0, num_gpus=gpus)(Holder).options(scheduling_strategy=strategy).remote()


async def ray_ready(actor: Any) -> None:
    """Waits for an actor."""
    assert await actor.ready.remote()


async def test_a_simulated_engine_serves(make_launcher: MakeLauncher, cluster: RayCluster) -> None:
    """The other kind of engine is launched the same way, on a CPU."""
    launcher = make_launcher()
    engine = await launcher.launch(request(engine="sim", api_key="secret"))
    async with aiohttp.ClientSession() as client, client.get(f"{engine.url}/model_info") as refusal:
        assert refusal.status == 401
    headers = {"Authorization": "Bearer secret"}
    async with aiohttp.ClientSession(headers=headers) as client, client.get(f"{engine.url}/model_info") as answer:
        assert (await answer.json())["model_path"] == "models/tiny"
    assert "secret" not in str(engine.facts)


async def test_b77_a_wildcard_is_bound_and_never_advertised(make_launcher: MakeLauncher) -> None:
    """An address that means every host is refused before a process runs; the text says what to set."""
    launcher = make_launcher(advertise="0.0.0.0")
    with pytest.raises(LaunchError, match=r"0\.0\.0\.0 cannot be advertised.*set the advertised address") as caught:
        await launcher.launch(request())
    assert "Traceback" not in str(caught.value)


async def test_ipv6_addresses_have_brackets(make_launcher: MakeLauncher) -> None:
    """An engine that binds all IPv6 addresses is reached by the one that leads to the router."""
    launcher = make_launcher(bind="::", router="::1", python=None)
    engine = await launcher.launch(request(engine="sim"))
    assert engine.url.startswith("http://[::1]:")
    async with aiohttp.ClientSession() as client, client.get(f"{engine.url}/health") as answer:
        assert answer.status == 200


async def test_a_start_that_fails_says_why_and_leaves_nothing(make_launcher: MakeLauncher) -> None:
    """The error has exit code, log, command, node and ports, as that of an engine of this machine has."""
    launcher = make_launcher()
    with pytest.raises(LaunchError) as caught:
        await launcher.launch(request(gpus=1, behave="trace"))
    text = str(caught.value)
    for part in ("policy/0 (generation 1) did not start", "exited with code 1", "no such model", "--port", "node_id"):
        assert part in text


async def test_a_taken_port_costs_another_try(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """An engine that finds its port in use is started again on another block."""
    launcher = make_launcher()
    engine = await launcher.launch(request(behave="port taken once", file=tmp_path / "port"))
    assert not engine.url.endswith(f":{(tmp_path / 'port').read_text()}")


async def test_the_environment_is_the_nodes_not_the_workers(make_launcher: MakeLauncher, tmp_path: Path) -> None:
    """Ray tells its workers how many threads to use; an engine does not inherit that, and gets what its model says."""
    launcher = make_launcher()
    await launcher.launch(request(behave="shows", file=tmp_path / "shown", env_vars={"WANTED": "yes"}))
    _, environment = shown(tmp_path / "shown")
    assert "OMP_NUM_THREADS" not in environment
    assert environment["WANTED"] == "yes"
    assert "127.0.0.1" in environment["NO_PROXY"].split(",")


async def refused(url: str) -> bool:
    """Whether nobody listens there."""
    async with aiohttp.ClientSession() as client:
        try:
            async with client.get(url):
                return False
        except aiohttp.ClientConnectorError:
            return True


async def test_stopping_again_joins_and_shortens_the_grace(make_launcher: MakeLauncher) -> None:
    """A second stop with less grace ends an engine that ignores SIGTERM; both return when it is gone."""
    launcher = make_launcher()
    engine = await launcher.launch(request(behave="stubborn"))
    patient = asyncio.ensure_future(engine.stop(600.0))
    await engine.stop(0.0)
    await patient
    assert await refused(engine.url)

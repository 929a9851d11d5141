"""One Ray cluster for all tests of the folder, and launchers on it that end with the test.

The tests run in an environment with Ray (``make test-ray``). Elsewhere they skip and say how to install it; with
``TRIMTAB_REQUIRE_RAY=1`` they fail instead, so that a pipeline cannot pass by testing nothing.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_sglang import write_fake
from tests.support.ray_cluster import RayCluster
from trimtab_manager.launch.ray import ray_launcher
from trimtab_manager.launch.types import LaunchRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from trimtab_manager.launch.ray.launcher import RayLauncher

    MakeLauncher = Callable[..., RayLauncher]


def request(engine_id: str = "policy/0", **fields: Any) -> LaunchRequest:
    """A request for a fake SGLang server; ``behave`` and ``file`` go to it."""
    arguments: dict[str, Any] = {name: str(fields.pop(name)) for name in ("behave", "file") if name in fields}
    whole = {"generation": 1, "engine": "sglang", "model_path": "models/tiny", "served_model_name": "tiny"}
    return LaunchRequest(engine_id, **{**whole, "deadline_s": 60.0, "server_args": arguments, **fields})


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head without GPUs and two nodes with two fake GPUs each; this process is connected to it."""
    if importlib.util.find_spec("ray") is None:
        problem = "Ray is not installed in this environment: run `make test-ray`"
        if os.environ.get("TRIMTAB_REQUIRE_RAY") == "1":
            pytest.fail(f"this run requires Ray: {problem}", pytrace=False)
        pytest.skip(problem)
    with closing(RayCluster()) as running:
        yield running


@pytest.fixture
def groups_unchanged(cluster: RayCluster) -> Iterator[None]:
    """At the end there are the placement groups and actors that there were before."""
    before = cluster.groups()
    yield
    assert cluster.groups() == before
    assert cluster.settled_actors() == []


@pytest.fixture
def foreign_group(cluster: RayCluster, groups_unchanged: None) -> Iterator[Callable[..., Any]]:
    """``foreign_group(bundles, **options)``: a placed group of somebody else, who removes it when the test is over."""
    from ray.util import remove_placement_group

    groups: list[Any] = []

    def make(bundles: list[dict[str, float]], **options: Any) -> Any:
        groups.append(cluster.group(bundles, **options))
        return groups[-1]

    yield make
    for group in groups:
        remove_placement_group(group)


@pytest.fixture
async def make_launcher(cluster: RayCluster, groups_unchanged: None, tmp_path: Path) -> AsyncIterator[MakeLauncher]:
    """``make_launcher(**options)`` over the fake server; closed at the end, which leaves no group and no actor."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> RayLauncher:
            options = {"python": write_fake(tmp_path), "stop_grace_s": 2.0, "placement_deadline_s": 30.0, **options}
            launcher = ray_launcher(tmp_path / "logs", **options)
            stack.push_async_callback(launcher.close)
            return launcher

        yield make

"""The part of the Ray launcher that needs no Ray: nodes from bundles, tags, and what is said where Ray is missing."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from trimtab_manager.launch.ray import ray_launcher
from trimtab_manager.launch.ray.bundles import NodeShare, claim, ordered, own_bundles, shares
from trimtab_manager.launch.ray.tags import check_run_id, group_name, left_over, marker_name, run_of
from trimtab_manager.launch.ray.waiting import to_its_end
from trimtab_manager.launch.types import LaunchError, LaunchRequest

if TYPE_CHECKING:
    from pathlib import Path

PLACED = {0: "a", 1: "a", 2: "b", 3: "b"}


def request(**fields: Any) -> LaunchRequest:
    """A request for ``policy/0``."""
    return LaunchRequest("policy/0", 1, "sglang", "models/tiny", "tiny", **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bundle_indices": (1,)}, [NodeShare("a", (1,))]),
        ({"bundle_indices": (3, 2)}, [NodeShare("b", (3, 2))]),
        ({"nodes": 2, "bundle_indices": (2, 3, 0, 1)}, [NodeShare("b", (2, 3)), NodeShare("a", (0, 1))]),
        ({"nodes": 2}, [NodeShare("a", (0, 1)), NodeShare("b", (2, 3))]),
    ],
)
def test_nodes_follow_from_where_the_bundles_are(fields: dict[str, Any], expected: list[NodeShare]) -> None:
    """The first bundle's node is the head, wherever it is; without bundles in the plan all are the engine's."""
    assert list(shares(request(**fields), PLACED)) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bundle_indices": (1, 2)}, r"spans one node, and Ray placed its bundles otherwise: \[1\] on a; \[2\] on b"),
        ({"nodes": 2, "bundle_indices": (0, 1)}, r"spans 2 nodes, .*: \[0, 1\] on a"),
        ({"nodes": 2, "bundle_indices": (0, 1, 2)}, "as many bundles on each"),
        ({"nodes": 3, "bundle_indices": (0, 2, 1)}, "spans 3 nodes"),
        ({"bundle_indices": (4,)}, r"bundles \[4\], and the group has 0 to 3"),
        ({"bundle_indices": (1, 1)}, "a bundle twice"),
    ],
)
def test_bundles_that_fit_no_engine_are_refused(fields: dict[str, Any], message: str) -> None:
    """The error names the engine, and the bundles with their nodes."""
    with pytest.raises(LaunchError, match=message):
        shares(request(**fields), PLACED)


def test_an_own_group_has_a_bundle_per_node() -> None:
    """The GPUs of a node are one bundle, and nodes are kept apart; an engine without GPUs takes a CPU."""
    assert own_bundles(request(gpus=4)) == ([{"GPU": 4}], "STRICT_PACK")
    assert own_bundles(request(gpus=8, nodes=2)) == ([{"GPU": 8}] * 2, "STRICT_SPREAD")
    assert own_bundles(request()) == ([{"CPU": 1}], "STRICT_PACK")


@pytest.mark.parametrize(("gpus", "expected"), [(1, 0.01), (0.005, 0.005), (4, 4)])
def test_what_is_claimed_to_learn_the_gpus(gpus: float, expected: float) -> None:
    """A fraction where Ray allows one; of several GPUs in one bundle it gives only whole ones."""
    assert claim(gpus) == expected


def test_gpus_are_ordered_by_number() -> None:
    """Ray names them in no order, and as text: 10 comes after 9."""
    assert ordered(["10", "9", "GPU-b", "GPU-a"]) == [9, 10, "GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("name", "run"),
    [
        (group_name("4f1c", "policy/0#1"), "4f1c"),
        ("trimtab/4f1c/", None),
        ("trimtab/4f1c", None),
        ("trimtab//x", None),
        ("mytrimtab/4f1c/x", None),
        ("trimtab-x/4f1c/x", None),
        ("", None),
    ],
)
def test_b79_a_group_is_ours_by_its_tag_alone(name: str, run: str | None) -> None:
    """What is not exactly of our form is somebody else's."""
    assert run_of(name) == run


def test_b79_only_groups_of_dead_runs_are_left_over() -> None:
    """A living run's, our own, those that are removed already, and everybody else's are not."""
    states = {
        "trimtab/dead/a": "CREATED",
        "trimtab/dead/b": "PENDING",
        "trimtab/dead/c": "REMOVED",
        "trimtab/living/a": "CREATED",
        "trimtab/own/a": "CREATED",
        "trainer/actors": "CREATED",
        "": "CREATED",
    }
    table = {name: {"name": name, "state": state} for name, state in states.items()}
    assert left_over(table, {marker_name("living")}, "own") == ["trimtab/dead/a", "trimtab/dead/b"]


@pytest.mark.parametrize("run_id", ["", "a/b", "a b"])
def test_a_run_id_must_fit_into_a_tag(run_id: str) -> None:
    """A tag with it could not be read back."""
    with pytest.raises(ValueError, match="run id"):
        check_run_id(run_id)


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray is an extra: its absence is told when a launcher is made, not by a traceback."""
    for name in [name for name in sys.modules if name.startswith("trimtab_manager.launch.ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LaunchError, match=r"pip install 'trimtab-manager\[ray\]'"):
        ray_launcher(tmp_path)


async def test_a_cancellation_waits_for_the_end_of_a_step() -> None:
    """A step that must not be left half done is finished first; the cancellation then goes on."""
    go, done = asyncio.Event(), []

    async def step() -> None:
        await go.wait()
        done.append(True)

    task = asyncio.ensure_future(to_its_end(step()))
    await asyncio.sleep(0)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]

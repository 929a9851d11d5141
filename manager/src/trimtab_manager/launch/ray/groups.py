"""Placement groups: ours, made with our tag and removed on every way out, and given ones, which are only looked at."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from trimtab_manager.launch.ray.tags import REMOVED, group_name
from trimtab_manager.launch.ray.waiting import in_thread, to_its_end
from trimtab_manager.launch.types import LaunchError

log = logging.getLogger(__name__)

_POLL_S = 0.05
_POLL_MAX_S = 1.0
_REMOVE_DEADLINE_S = 30.0
_PLACING_S = 1.0
"""How long a group that is to be removed may take to be placed first; one that cannot be placed holds nothing."""


@dataclass(frozen=True)
class Group:
    """A placement group.

    Attributes:
        name: Its name, for people; a given one may have none.
        handle: Ray's own object.
        owned: Whether we made it, and so remove it.
    """

    name: str
    handle: PlacementGroup
    owned: bool

    @property
    def bundles(self) -> Sequence[Mapping[str, float]]:
        """What each of its bundles reserves."""
        bundles: Sequence[Mapping[str, float]] = self.handle.bundle_specs
        return bundles

    async def nodes(self) -> dict[int, str]:
        """Node id of each bundle, as Ray placed them."""
        table = await in_thread(placement_group_table, self.handle)
        return {int(index): str(node) for index, node in table["bundles_to_node_id"].items()}


def given(handle: PlacementGroup) -> Group:
    """A group that somebody else made and removes."""
    return Group(placement_group_table(handle)["name"] or handle.id.hex(), handle, owned=False)


def find_group(name: str) -> Group:
    """The group with this name, as somebody else's, whatever the namespace it was made in. Blocks.

    Raises:
        LaunchError: There is none, or several.
    """
    table = {key: entry for key, entry in placement_group_table().items() if entry["state"] != REMOVED}
    found = [key for key, entry in table.items() if entry["name"] == name]
    if len(found) != 1:
        names = ", ".join(sorted(entry["name"] for entry in table.values() if entry["name"])) or "none"
        raise LaunchError(f"{len(found)} placement groups are named {name!r}; the cluster has: {names}")
    return Group(name, PlacementGroup(ray.PlacementGroupID(bytes.fromhex(found[0]))), owned=False)


async def make_group(run_id: str, what: str, bundles: Sequence[Mapping[str, float]], strategy: str) -> Group:
    """Asks Ray for a group of ours. It is not placed yet.

    Args:
        run_id: The run it belongs to.
        what: What it is for, such as ``policy/0#2``.
        bundles: What each bundle reserves.
        strategy: ``PACK``, ``STRICT_PACK``, ``SPREAD`` or ``STRICT_SPREAD``.
    """
    name = group_name(run_id, what)

    async def step() -> Group:
        handle = await asyncio.to_thread(placement_group, [dict(each) for each in bundles], strategy, name)
        return Group(name, handle, owned=True)

    task = asyncio.ensure_future(step())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await remove_group(await to_its_end(_result(task)))
        raise


async def _result(task: asyncio.Future[Group]) -> Group:
    return await task


async def wait_placed(
    group: Group, *, deadline_s: float, progress_interval_s: float, say: Callable[[str], None] = log.info
) -> None:
    """Returns when every bundle is placed.

    Args:
        group: Ours or a given one.
        deadline_s: From now.
        progress_interval_s: Between two lines that say what is wanted and what there is.
        say: Takes such a line.

    Raises:
        LaunchError: The deadline passed, or somebody removed the group.
    """
    started = time.monotonic()
    next_line_s, pause_s = progress_interval_s, _POLL_S
    while True:
        elapsed = time.monotonic() - started
        state = (await in_thread(placement_group_table, group.handle)).get("state", REMOVED)
        if state == "CREATED":
            return
        if state == REMOVED:
            raise LaunchError(f"placement group {group.name} was removed by somebody while it was waited for")
        if elapsed >= deadline_s:
            raise LaunchError(
                f"placement group {group.name} was not placed within {deadline_s:.1f} s (state {state}): "
                f"{await in_thread(_wanted, group)}. Free resources, add nodes, or ask for fewer engines"
            )
        if elapsed >= next_line_s:
            next_line_s += progress_interval_s
            say(
                f"waiting for placement group {group.name}, {elapsed:.0f} s of {deadline_s:.0f} s: "
                f"{await in_thread(_wanted, group)}"
            )
        await asyncio.sleep(max(0.0, min(pause_s, deadline_s - elapsed)))
        pause_s = min(_POLL_MAX_S, pause_s * 2)


async def remove_group(group: Group) -> None:
    """Removes a group of ours and waits until Ray says so; a given one is left alone. Idempotent.

    Not interrupted by a cancellation.
    """
    if group.owned:
        await to_its_end(_remove(group))


async def _remove(group: Group) -> None:
    # Ray loses what it is just reserving for a group that is removed meanwhile (ray#64693): it never comes back.
    await _until(group, lambda state: state in {"CREATED", REMOVED}, _PLACING_S)
    await asyncio.to_thread(remove_placement_group, group.handle)
    if not await _until(group, lambda state: state == REMOVED, _REMOVE_DEADLINE_S):
        log.warning("placement group %s is still listed %.0f s after its removal", group.name, _REMOVE_DEADLINE_S)


async def _until(group: Group, holds: Callable[[str], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds((await asyncio.to_thread(placement_group_table, group.handle)).get("state", REMOVED)):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _wanted(group: Group) -> str:
    """What the bundles want in all, and what the cluster has of that."""
    wanted: Counter[str] = Counter()
    for bundle in group.bundles:
        wanted.update(bundle)
    free, total = ray.available_resources(), ray.cluster_resources()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = ", ".join(
        f"{name}: wanted {amount:g}, available {free.get(name, 0):g} of {total.get(name, 0):g}, at most "
        f"{max((node.get(name, 0) for node in nodes), default=0):g} on a node"
        for name, amount in sorted(wanted.items())
    )
    return f"{len(group.bundles)} {'bundle wants' if len(group.bundles) == 1 else 'bundles want'} {each}"

"""Which GPUs a bundle holds: asked on the node, by a task that takes a share of the bundle for a moment.

Ray pins GPUs to a bundle when it places it, and says which ones only to whoever holds some of them. The actor of an
engine holds none (the bundle reserves them), so a task asks in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trimtab_manager.launch.gpus import Gpu
from trimtab_manager.launch.ray.bundles import SHARE, NodeShare, claim, ordered
from trimtab_manager.launch.ray.groups import Group
from trimtab_manager.launch.types import LaunchError, LaunchRequest


async def assigned_gpus(
    request: LaunchRequest, group: Group, share: NodeShare, *, planned: Sequence[Gpu], deadline_s: float
) -> tuple[Gpu, ...]:
    """GPUs of the node that the engine has there, in the order of its bundles; as Ray names them, index or UUID.

    Args:
        request: The engine.
        group: Its placement group.
        share: Its part on the node.
        planned: Those that the plan assigned it there; empty: any.
        deadline_s: For the bundles to have a share free.

    Raises:
        LaunchError: They are not as many as it needs, or not those of the plan, or no answer came in time.
    """
    if request.gpus == 0:
        return ()
    answers = [_ask(group, index) for index in share.bundles]
    gathered: asyncio.Future[list[Any]] = asyncio.gather(*answers)
    try:
        found = await asyncio.wait_for(gathered, deadline_s)
    except asyncio.TimeoutError:
        raise LaunchError(
            f"{request.engine_id}: bundles {list(share.bundles)} of placement group {group.name} gave no share of "
            f"their GPUs for {deadline_s:.0f} s: others hold all of it. Leave {SHARE} of each GPU free"
        ) from None
    finally:
        for answer in answers:
            ray.cancel(answer)
    gpus = tuple(gpu for ids in found for gpu in ids)
    _check(request, gpus, group.bundles, share)
    if planned and set(planned) != set(gpus):
        raise LaunchError(
            f"{request.engine_id}: the plan gives it GPUs {list(planned)} of node {share.node_id[:8]}, and its bundles "
            f"{list(share.bundles)} hold {list(gpus)}: the group was placed anew since the plan was made; plan again"
        )
    return tuple(planned) or gpus


def _ask(group: Group, index: int) -> Any:
    strategy = PlacementGroupSchedulingStrategy(group.handle, placement_group_bundle_index=index)
    gpus = claim(group.bundles[index].get("GPU", 0))
    return ray.remote(num_cpus=0, num_gpus=gpus, max_retries=3)(gpu_ids).options(scheduling_strategy=strategy).remote()


def gpu_ids() -> list[Gpu]:
    """The task: what Ray assigned to it."""
    ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return ordered(ids)


def _check(
    request: LaunchRequest, gpus: tuple[Gpu, ...], bundles: Sequence[Mapping[str, float]], share: NodeShare
) -> None:
    if len(gpus) != request.gpus:
        raise LaunchError(
            f"{request.engine_id} needs {request.gpus} GPUs on node {share.node_id[:8]}, and its bundles there hold "
            f"{list(gpus)}: {[dict(bundles[index]) for index in share.bundles]}"
        )

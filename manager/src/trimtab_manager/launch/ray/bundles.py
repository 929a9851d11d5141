"""From bundles to the nodes of an engine. Pure: what Ray placed comes in, what the engine gets comes out.

A node is known by its Ray id, never by its address (several raylets can share one) and never by arithmetic on ranks: a
replica may begin in the middle of a node, and nodes differ in size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab_manager.launch.gpus import Gpu
from trimtab_manager.launch.types import LaunchError, LaunchRequest

SHARE = 0.01
"""What is taken for a moment of a bundle with one GPU, on which trainers and other engines hold fractions too."""


@dataclass(frozen=True)
class NodeShare:
    """What an engine has on one node.

    Attributes:
        node_id: Ray's id of the node.
        bundles: Its bundles there, in the order of the plan; the actor runs on the first.
    """

    node_id: str
    bundles: tuple[int, ...]


def own_bundles(request: LaunchRequest) -> tuple[list[dict[str, float]], str]:
    """Bundles and strategy of a group for this engine alone: one bundle per node.

    An engine without GPUs takes one CPU per node, since a bundle cannot be empty.
    """
    bundle: dict[str, float] = {"GPU": request.gpus} if request.gpus else {"CPU": 1}
    return [bundle] * request.nodes, "STRICT_SPREAD" if request.nodes > 1 else "STRICT_PACK"


def shares(request: LaunchRequest, node_of: Mapping[int, str]) -> tuple[NodeShare, ...]:
    """The nodes of an engine, the head first.

    Args:
        request: With the bundles of the plan; none: all of the group.
        node_of: Node id of each bundle.

    Raises:
        LaunchError: A bundle does not exist, or the bundles are not on as many nodes as the engine spans, evenly.
    """
    wanted = request.bundle_indices or tuple(sorted(node_of))
    if missing := [index for index in wanted if index not in node_of]:
        raise LaunchError(
            f"{request.engine_id}: the plan gives it bundles {missing}, and the group has 0 to {len(node_of) - 1}"
        )
    if len(set(wanted)) != len(wanted):
        raise LaunchError(f"{request.engine_id}: the plan gives it a bundle twice: {list(wanted)}")
    parts: list[NodeShare] = []
    for index in wanted:
        if parts and parts[-1].node_id == node_of[index]:
            parts[-1] = NodeShare(parts[-1].node_id, (*parts[-1].bundles, index))
        else:
            parts.append(NodeShare(node_of[index], (index,)))
    distinct = len({part.node_id for part in parts}) == len(parts)
    even = len({len(part.bundles) for part in parts}) == 1
    if len(parts) != request.nodes or not distinct or not even:
        placed = "; ".join(f"{list(part.bundles)} on {part.node_id[:8]}" for part in parts)
        raise LaunchError(
            f"{request.engine_id} spans {_nodes(request.nodes)}, and Ray placed its bundles otherwise: {placed}. "
            "Choose bundles by where they are (ray.util.placement_group_table), or make the group with another strategy"
        )
    return tuple(parts)


def claim(gpus: float) -> float:
    """How many GPUs to ask for in a bundle with ``gpus`` to learn all of them. Ray has fractions of one GPU only."""
    return min(gpus, SHARE) if gpus <= 1 else gpus


def ordered(ids: Sequence[str]) -> list[Gpu]:
    """Indices by number, then UUIDs; Ray gives them in no order."""
    return [*sorted(int(each) for each in ids if each.isdigit()), *sorted(each for each in ids if not each.isdigit())]


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes, with as many bundles on each"

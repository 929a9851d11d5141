"""Removing placement groups that a dead run left: ours by their tag, and nobody else's.

Ray itself removes a group with the driver or the actor that made it. What is left for the janitor are the groups of a
manager that ended inside a driver which goes on, a notebook or a trainer.
"""

from __future__ import annotations

import logging

import ray
from ray.util import list_named_actors, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from trimtab_manager.launch.ray.tags import NAMESPACE, left_over

log = logging.getLogger(__name__)


def sweep(own_run: str) -> list[str]:
    """Remove the groups of dead runs; their names. Blocks."""
    table = placement_group_table()
    markers = {each["name"] for each in list_named_actors(all_namespaces=True) if each["namespace"] == NAMESPACE}
    names = []
    for group_id in left_over(table, markers, own_run):
        names.append(table[group_id]["name"])
        log.warning("removing placement group %s, whose run is dead", names[-1])
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group_id))))
    return names

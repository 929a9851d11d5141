"""Names by which a run knows its own placement groups again: ``trimtab/<run id>/<what>``.

The tag is the whole proof of ownership. A group whose name is not of this form was made by somebody else and is never
removed, whatever state it is in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

NAMESPACE = "trimtab"
"""Ray namespace of the markers of runs, so that runs of different drivers find each other's."""
REMOVED = "REMOVED"
"""State of a group that is gone; Ray's table goes on listing it."""
_RUN = re.compile(r"[A-Za-z0-9_.-]+")
_TAGGED = re.compile(rf"trimtab/({_RUN.pattern})/.+")


def check_run_id(run_id: str) -> str:
    """The id itself. Raises ValueError if a tag with it could not be read back."""
    if not _RUN.fullmatch(run_id):
        raise ValueError(f"run id {run_id!r} is refused: letters, digits, '_', '.' and '-' are allowed")
    return run_id


def group_name(run_id: str, what: str) -> str:
    """Name of a placement group of a run, such as ``trimtab/4f1c/policy/0#2``."""
    return f"trimtab/{run_id}/{what}"


def marker_name(run_id: str) -> str:
    """Name of the actor that lives as long as the run."""
    return f"run/{run_id}"


def run_of(name: str) -> str | None:
    """The run that made the group with this name; None for somebody else's."""
    found = _TAGGED.fullmatch(name)
    return None if found is None else found.group(1)


def left_over(table: Mapping[str, Mapping[str, Any]], markers: AbstractSet[str], own_run: str) -> list[str]:
    """Ids of the groups of runs that have no marker.

    Args:
        table: Ray's table of groups, by id.
        markers: Names of the actors in our namespace, read *after* the table: a run is marked before it makes groups.
        own_run: The run that asks, whose groups it removes itself.
    """
    found = []
    for group_id, entry in table.items():
        run = run_of(entry["name"])
        if run not in (None, own_run) and entry["state"] != REMOVED and marker_name(run) not in markers:
            found.append(group_id)
    return found

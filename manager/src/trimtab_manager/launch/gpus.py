"""Which GPUs a process sees, and which of them are an engine's.

A scheduler names GPUs of the node; a process counts only those it sees. The one function that translates is here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab_manager.launch.types import LaunchError

VARIABLE = "CUDA_VISIBLE_DEVICES"

Gpu = int | str
"""A GPU of the node: its index, or the form with its UUID (``GPU-...``, ``MIG-...``)."""


@dataclass(frozen=True)
class GpuBinding:
    """How a process gets its GPUs.

    Attributes:
        environment: What to set in its environment; empty where it sees all of the node.
        base: Index of its first GPU among those it then sees; the others follow it.
    """

    environment: Mapping[str, str]
    base: int


def bind_gpus(visible: str | None, assigned: Sequence[Gpu], *, uuids: Sequence[str] = ()) -> GpuBinding:
    """From what the launching process sees and the GPUs assigned on the node, to what the engine's process needs.

    GPUs that follow each other among the visible ones are named by the index of the first, and the process sees what
    the launching one sees: processes that share GPUs (a trainer, an engine) then agree on every index. Others are made
    to follow each other: the process sees just them, in the order of assignment.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES`` of the launching process; None if unset: it sees the whole node.
        assigned: Node indices, or UUIDs.
        uuids: UUID of each GPU of the node by index, to translate between the two forms.

    Raises:
        LaunchError: One is assigned twice, or is not visible.
    """
    if not assigned:
        return GpuBinding({VARIABLE: ""}, 0)
    if visible is None:
        places = [_node_index(gpu, uuids) for gpu in assigned]
        seen = None
    else:
        seen = visible_gpus(visible)
        places = [_place(gpu, seen, visible, uuids) for gpu in assigned]
    if len(set(places)) != len(places):
        raise LaunchError(f"a GPU is assigned twice: {', '.join(map(str, assigned))}")
    if places == list(range(places[0], places[0] + len(places))):
        return GpuBinding({} if visible is None else {VARIABLE: visible}, places[0])
    return GpuBinding({VARIABLE: ",".join(str(place if seen is None else seen[place]) for place in places)}, 0)


def visible_gpus(visible: str) -> tuple[Gpu, ...]:
    """What a value of the variable names. CUDA stops at the first entry that names no GPU, such as ``-1``."""
    seen: list[Gpu] = []
    for entry in (entry.strip() for entry in visible.split(",")):
        if entry.isdigit():
            seen.append(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            seen.append(entry)
        else:
            break
    return tuple(seen)


def node_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> tuple[Gpu, ...]:
    """The GPUs that this process may use: those it sees, or all whose device files are there."""
    if (visible := environment.get(VARIABLE)) is not None:
        return visible_gpus(visible)
    return tuple(
        sorted(int(file.name[6:]) for file in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", file.name))
    )


def _node_index(gpu: Gpu, uuids: Sequence[str]) -> int:
    if isinstance(gpu, int):
        return gpu
    found = [index for index, uuid in enumerate(uuids) if _same(gpu, uuid)]
    if len(found) != 1:
        raise LaunchError(f"the assigned GPU {gpu} is none of this node's{_listed(uuids)}")
    return found[0]


def _place(gpu: Gpu, seen: Sequence[Gpu], visible: str, uuids: Sequence[str]) -> int:
    forms: set[Gpu] = {gpu}
    if isinstance(gpu, int):
        forms |= {*uuids[gpu : gpu + 1]}
    else:
        forms |= {index for index, uuid in enumerate(uuids) if _same(gpu, uuid)}
    for place, entry in enumerate(seen):
        if any(_same(entry, form) for form in forms):
            return place
    raise LaunchError(
        f"the assigned GPU {gpu} is not visible: {VARIABLE} is {visible!r}. Assign one of these, or make it visible to "
        f"the process that launches"
    )


def _same(one: Gpu, other: Gpu) -> bool:
    """Whether two names are of one GPU; a UUID may be cut short."""
    if isinstance(one, int) or isinstance(other, int):
        return one == other
    return one.startswith(other) or other.startswith(one)


def _listed(uuids: Sequence[str]) -> str:
    return f": {', '.join(uuids)}" if uuids else ", whose UUIDs are not known"

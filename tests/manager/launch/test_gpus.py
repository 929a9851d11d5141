"""B57: which of the GPUs that a process sees are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trimtab_manager.launch.gpus import VARIABLE, Gpu, bind_gpus, node_gpus, visible_gpus
from trimtab_manager.launch.types import LaunchError

if TYPE_CHECKING:
    from pathlib import Path

UUIDS = ("GPU-aaaa0000", "GPU-bbbb1111", "GPU-cccc2222", "GPU-dddd3333")


@pytest.mark.parametrize(
    ("visible", "assigned", "seen", "base"),
    [
        (None, [6], None, 6),
        (None, [2, 3], None, 2),
        (None, [1, 3], "1,3", 0),
        (None, ["GPU-cccc2222"], None, 2),
        ("4,5,6,7", [6], "4,5,6,7", 2),
        ("4,5,6,7", [6, 7], "4,5,6,7", 2),
        ("4,5,6,7", [7, 6], "7,6", 0),
        ("7,5", [5], "7,5", 1),
        ("0, 1", [1], "0, 1", 1),
        ("GPU-dddd3333,GPU-bbbb1111", ["GPU-bbbb1111"], "GPU-dddd3333,GPU-bbbb1111", 1),
        ("GPU-dddd3333,GPU-bbbb1111", [1], "GPU-dddd3333,GPU-bbbb1111", 1),
        ("GPU-dddd,GPU-bbbb", ["GPU-bbbb1111"], "GPU-dddd,GPU-bbbb", 1),
        ("3,1", ["GPU-bbbb1111"], "3,1", 1),
        ("MIG-1,MIG-2", ["MIG-2"], "MIG-1,MIG-2", 1),
        ("4,5,6,7", [], "", 0),
        (None, [], "", 0),
    ],
)
def test_b57_the_table(visible: str | None, assigned: list[Gpu], seen: str | None, base: int) -> None:
    """Visible list and assigned ids give the child's visible list (unset: the whole node) and its first index."""
    binding = bind_gpus(visible, assigned, uuids=UUIDS)
    assert (binding.environment.get(VARIABLE), binding.base) == (seen, base)


def test_b57_engines_that_share_a_node() -> None:
    """Four engines of two GPUs each: no index is used twice."""
    indices = [bind_gpus(None, [gpu, gpu + 1]).base for gpu in range(0, 8, 2)]
    assert indices == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("visible", "assigned", "text"),
    [
        ("4,5", [6], "the assigned GPU 6 is not visible: CUDA_VISIBLE_DEVICES is '4,5'"),
        ("", [0], "the assigned GPU 0 is not visible"),
        ("0,-1,1", [1], "the assigned GPU 1 is not visible"),
        ("GPU-aaaa0000", ["GPU-bbbb1111"], "the assigned GPU GPU-bbbb1111 is not visible"),
        ("GPU-eeee", [5], "the assigned GPU 5 is not visible"),
        (None, ["GPU-eeee"], "the assigned GPU GPU-eeee is none of this node's: GPU-aaaa0000, "),
        ("4,5", [5, 5], "a GPU is assigned twice: 5, 5"),
        ("4,5", [5, "GPU-x"], "is not visible"),
    ],
)
def test_b57_what_cannot_be(visible: str | None, assigned: list[Gpu], text: str) -> None:
    """An engine is never put on a GPU that was not assigned to it."""
    with pytest.raises(LaunchError, match=text.replace("(", r"\(")):
        bind_gpus(visible, assigned, uuids=UUIDS)


def test_the_gpus_of_a_node(tmp_path: Path) -> None:
    """Those that are visible, or all that have a device file."""
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert node_gpus({}, tmp_path) == (0, 2, 10)
    assert node_gpus({VARIABLE: "2,GPU-a"}, tmp_path) == (2, "GPU-a")
    assert visible_gpus("NoDevFiles") == ()

"""What engines expect, and the differences that are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trimtab import InvalidRequest
from trimtab_manager.weights.manifest import TensorSpec, check_tensors, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {"a": TensorSpec((4, 2), "bfloat16"), "b": TensorSpec((4,), "int64")}


def write(folder: Path, name: str, head: object) -> None:
    """A safetensors file without its numbers."""
    text = json.dumps(head).encode()
    (folder / name).write_bytes(len(text).to_bytes(8, "little") + text)


def test_the_heads_of_all_shards_are_read(tmp_path: Path) -> None:
    """Names, shapes and types, by torch's names; metadata is none."""
    write(tmp_path, "a.safetensors", {"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [4, 2]}})
    write(tmp_path, "b.safetensors", {"b": {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]}})
    assert read_manifest(tmp_path) == EXPECTED


@pytest.mark.parametrize("content", [b"", b"\0" * 8, b"\xff" * 16, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0nope"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    """The message has the file and the way out."""
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"x\.safetensors is not a safetensors file.*give the manifest"):
        read_manifest(tmp_path)


def test_a_folder_without_any_says_what_to_do(tmp_path: Path) -> None:
    """A repository's name instead of a folder, for instance."""
    with pytest.raises(InvalidRequest, match="no safetensors file of org/name can be read here: give the manifest"):
        read_manifest("org/name")
    with pytest.raises(InvalidRequest, match="no safetensors file"):
        read_manifest(tmp_path)


def test_what_fits_passes() -> None:
    """The same, and floating-point numbers of another width, which loaders convert."""
    check_tensors(EXPECTED, EXPECTED, partial=False)
    check_tensors({**EXPECTED, "a": TensorSpec((4, 2), "float32")}, EXPECTED, partial=False)
    check_tensors({"b": EXPECTED["b"]}, EXPECTED, partial=True)


@pytest.mark.parametrize(
    ("given", "partial", "words"),
    [
        ({**EXPECTED, "c": EXPECTED["a"]}, False, "1 unknown to the engines: c"),
        ({"a": EXPECTED["a"]}, False, "1 missing: b"),
        (
            {**EXPECTED, "a": TensorSpec((2, 4), "bfloat16")},
            False,
            r"1 of another shape or type: a \(bfloat16\[2, 4\], expected bfloat16\[4, 2\]\)",
        ),
        ({"b": TensorSpec((4,), "float32")}, True, "of another shape or type: b"),
        ({"b": TensorSpec((4,), "int32")}, True, "of another shape or type: b"),
        ({}, True, "there are none"),
        ({f"x{number}": EXPECTED["a"] for number in range(9)}, True, "9 unknown to the engines: x0, .*x4 and 4 more"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, TensorSpec], partial: bool, words: str) -> None:
    """Each difference with its first tensors."""
    with pytest.raises(InvalidRequest, match=words):
        check_tensors(given, EXPECTED, partial=partial)

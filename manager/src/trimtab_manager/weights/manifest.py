"""What an engine expects: names, shapes and types of its tensors.

A tensor of a wrong shape kills an SGLang server, and a name that it does not know passes unnoticed. So everything is
compared before a byte is sent. An engine cannot be asked: ``/weights_checker`` names its own, fused tensors, and
``/get_weights_by_name`` tells no first dimension. The checkpoint that it was started with has exactly what its loader
takes, and the head of a safetensors file lists it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trimtab.errors import InvalidRequest

MAX_HEADER_BYTES = 100 * 1024 * 1024
"""The limit of the format."""

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""The names of safetensors, and those of torch."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor.

    Attributes:
        shape: Its dimensions.
        dtype: Its type by torch's name, without the ``torch.``.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_floating(self) -> bool:
        """Whether its numbers are floating-point ones, which a loader converts between widths."""
        return "float" in self.dtype

    def __str__(self) -> str:
        """``float32[64, 320]``."""
        return f"{self.dtype}{list(self.shape)}"


Manifest = Mapping[str, TensorSpec]


def read_manifest(folder: str | Path) -> Manifest:
    """The tensors of a checkpoint, from the heads of its safetensors files.

    Raises:
        InvalidRequest: There are none that this process can read; the message has the way out.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    advice = "give the manifest of the engines' tensors (name -> TensorSpec) with the source"
    if not files:
        raise InvalidRequest(f"no safetensors file of {folder} can be read here: {advice}")
    found: dict[str, TensorSpec] = {}
    for file in files:
        found.update(_head(file, advice))
    return found


def check_tensors(given: Manifest, expected: Manifest, *, partial: bool) -> None:
    """Compare what would be sent with what the engines expect.

    Raises:
        InvalidRequest: It names every kind of difference with its first tensors. Nothing was sent.
    """
    problems = [
        _listed("unknown to the engines", sorted(set(given) - set(expected))),
        "" if partial else _listed("missing", sorted(set(expected) - set(given))),
        _listed(
            "of another shape or type",
            [
                f"{name} ({spec}, expected {expected[name]})"
                for name, spec in given.items()
                if name in expected and not _fits(spec, expected[name])
            ],
        ),
        "" if given else "there are none",
    ]
    if found := [problem for problem in problems if problem]:
        raise InvalidRequest(f"the tensors do not fit, nothing was sent: {'; '.join(found)}")


def _fits(given: TensorSpec, expected: TensorSpec) -> bool:
    converts = given.is_floating and expected.is_floating
    return given.shape == expected.shape and (given.dtype == expected.dtype or converts)


def _listed(what: str, names: list[str], most: int = 5) -> str:
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {what}: {', '.join(names[:most])}{more}"


def _head(file: Path, advice: str) -> dict[str, TensorSpec]:
    try:
        with file.open("rb") as stream:
            return _parse(stream)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{file} is not a safetensors file ({error}): {advice}") from error


def _parse(stream: BinaryIO) -> dict[str, TensorSpec]:
    size = int.from_bytes(stream.read(8), "little")
    if not 0 < size <= MAX_HEADER_BYTES:
        raise ValueError(f"its head claims {size} bytes")
    head = json.loads(stream.read(size))
    return {
        name: TensorSpec(tuple(entry["shape"]), DTYPES.get(entry["dtype"], entry["dtype"].lower()))
        for name, entry in head.items()
        if name != "__metadata__"
    }

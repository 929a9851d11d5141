"""Tensors in buckets. The tensors here only look like torch's: torch is not installed beside the manager."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trimtab import InvalidRequest
from trimtab_manager.weights import Distributed, FromDisk, Tensors
from trimtab_manager.weights.manifest import TensorSpec
from trimtab_manager.weights.payload import buckets, pairs, specs


@dataclass(frozen=True)
class Fake:
    """What the manager asks of a tensor."""

    shape: tuple[int, ...]
    dtype: str = "torch.float32"

    def element_size(self) -> int:
        """Bytes of a number."""
        return 4

    def numel(self) -> int:
        """Numbers."""
        count = 1
        for size in self.shape:
            count *= size
        return count


def test_tensors_may_come_in_three_ways() -> None:
    """A mapping, pairs, or a function that gives them."""
    tensor = Fake((2,))
    assert pairs({"a": tensor}) == pairs([("a", tensor)]) == pairs(lambda: iter([("a", tensor)])) == [("a", tensor)]
    assert specs([("a", tensor)]) == {"a": TensorSpec((2,), "float32")}


def test_what_is_no_tensor_is_named() -> None:
    """Lists and repeated names are refused."""
    with pytest.raises(InvalidRequest, match=r"'a' must be a name with a torch\.Tensor, got list"):
        pairs({"a": [1, 2]})
    with pytest.raises(InvalidRequest, match="given twice"):
        pairs([("a", Fake((1,))), ("a", Fake((1,)))])


def test_buckets_are_bounded() -> None:
    """Tensors keep their order; one that is larger than a bucket is alone."""
    tensors = [(name, Fake((size,))) for name, size in (("a", 2), ("b", 2), ("c", 1), ("d", 9), ("e", 1))]
    assert [[name for name, _ in bucket] for bucket in buckets(tensors, 16)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_sources_refuse_what_cannot_be() -> None:
    """Each rule with its message."""
    with pytest.raises(InvalidRequest, match="path of new weights must not be empty"):
        FromDisk("")
    with pytest.raises(InvalidRequest, match="bucket_bytes must be positive, got 0"):
        Tensors({}, bucket_bytes=0)
    with pytest.raises(InvalidRequest, match="master_address must not be empty"):
        Distributed({}, master_address="")
    with pytest.raises(InvalidRequest, match="group_name must not be empty"):
        Distributed({}, master_address="a", group_name="")

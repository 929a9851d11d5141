"""Named tensors as SGLang takes them: in buckets of bounded size, each a pickled list of pairs.

Torch is imported only here and in ``broadcast``, and only when tensors are given.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab.errors import InvalidRequest
from trimtab_manager.weights.manifest import Manifest, TensorSpec
from trimtab_manager.weights.source import NamedTensors

Pair = tuple[str, Any]


def pairs(tensors: NamedTensors) -> list[Pair]:
    """The tensors in the order in which they are given.

    Raises:
        InvalidRequest: Something is no tensor, or a name comes twice.
    """
    given = tensors() if callable(tensors) else tensors
    listed: list[tuple[Any, Any]] = list(given.items() if isinstance(given, Mapping) else given)
    for name, tensor in listed:
        if not isinstance(name, str) or not hasattr(tensor, "element_size"):
            raise InvalidRequest(f"{name!r} must be a name with a torch.Tensor, got {type(tensor).__name__}")
    names = {name for name, _ in listed}
    if len(names) != len(listed):
        raise InvalidRequest("a tensor is given twice: each name may come once")
    return listed


def specs(tensors: Sequence[Pair]) -> Manifest:
    """Names, shapes and types of tensors."""
    return {name: TensorSpec(tuple(tensor.shape), dtype_name(tensor)) for name, tensor in tensors}


def dtype_name(tensor: Any) -> str:
    """``float32`` for ``torch.float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def size_bytes(tensor: Any) -> int:
    """Bytes of the numbers of a tensor."""
    return int(tensor.numel()) * int(tensor.element_size())


def buckets(tensors: Sequence[Pair], bucket_bytes: int) -> Iterator[list[Pair]]:
    """The tensors in order, in lists of at most ``bucket_bytes``; a larger tensor is alone in its list."""
    bucket: list[Pair] = []
    held = 0
    for name, tensor in tensors:
        size = size_bytes(tensor)
        if bucket and held + size > bucket_bytes:
            yield bucket
            bucket, held = [], 0
        bucket.append((name, tensor))
        held += size
    if bucket:
        yield bucket


def serialize(bucket: Sequence[Pair]) -> str:
    """A bucket as text: base64 of the pickled pairs, with the numbers inside.

    The sharing of memory between processes that torch's own queues use must not be asked for: a server of another
    process tree cannot open what it is given, and dies. So is a tensor that is a view of a larger one, whose pickle
    would hold all of that.
    """
    plain = [(name, tensor.detach().cpu().contiguous().clone()) for name, tensor in bucket]
    stream = io.BytesIO()
    pickle.dump(plain, stream, protocol=pickle.HIGHEST_PROTOCOL)
    return base64.b64encode(stream.getbuffer()).decode("ascii")

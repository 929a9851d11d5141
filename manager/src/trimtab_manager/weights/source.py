"""Where new weights come from: one frozen description per kind of transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.errors import InvalidRequest

if TYPE_CHECKING:
    from trimtab_manager.weights.manifest import Manifest

NamedTensors = Mapping[str, Any] | Iterable[tuple[str, Any]] | Callable[[], Iterable[tuple[str, Any]]]
"""Names with ``torch.Tensor``s: a mapping, an iterable of pairs, or a function that gives such an iterable."""

BUCKET_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class FromDisk:
    """A checkpoint that the engines read by themselves.

    Attributes:
        path: As the engines' hosts see it.
        load_format: SGLang's name of the format; None: the one each engine was started with.
    """

    path: str
    load_format: str | None = None

    def __post_init__(self) -> None:
        """Refuse an empty path: SGLang would look for a model of that name."""
        if not self.path:
            raise InvalidRequest("the path of new weights must not be empty")


@dataclass(frozen=True)
class Tensors:
    """Tensors of this process, sent inside the control calls; for weights that fit into messages.

    Attributes:
        tensors: The new values, by Hugging Face name. An iterable is read once.
        bucket_bytes: Most bytes of tensors in one call; a single larger tensor is a bucket of its own.
        manifest: What the engines expect; None: read from the checkpoint they were started with.
        partial: Whether tensors of the manifest may be missing and keep their values. Such an update does not repair an
            engine that an earlier one left in doubt.
    """

    tensors: NamedTensors = field(repr=False)
    bucket_bytes: int = BUCKET_BYTES
    manifest: Manifest | None = field(default=None, repr=False)
    partial: bool = False

    def __post_init__(self) -> None:
        """Refuse a bucket that holds nothing."""
        check_bucket(self.bucket_bytes)


@dataclass(frozen=True)
class Distributed:
    """Tensors of this process, broadcast to the engines over ``torch.distributed``; this process is rank 0.

    Attributes:
        tensors: As for ``Tensors``.
        master_address: Address of this host as the engines reach it.
        master_port: Free port on it; 0 picks one.
        backend: ``nccl`` for tensors on a GPU, ``gloo`` for tensors in memory.
        group_name: Name of the process group; it exists for the time of one update.
        bucket_bytes: As for ``Tensors``.
        manifest: As for ``Tensors``.
        partial: As for ``Tensors``.
    """

    tensors: NamedTensors = field(repr=False)
    master_address: str
    master_port: int = 0
    backend: str = "nccl"
    group_name: str = "trimtab_weights"
    bucket_bytes: int = BUCKET_BYTES
    manifest: Manifest | None = field(default=None, repr=False)
    partial: bool = False

    def __post_init__(self) -> None:
        """Refuse what no group can be made of."""
        check_bucket(self.bucket_bytes)
        if not self.master_address:
            raise InvalidRequest("master_address must not be empty: it is where the engines find rank 0")
        if not self.group_name:
            raise InvalidRequest("group_name must not be empty")


@dataclass(frozen=True)
class Label:
    """No transfer: whoever gives this knows that the engines run these weights already. Nothing is aborted."""


Source = FromDisk | Tensors | Distributed | Label


def check_bucket(bucket_bytes: int) -> None:
    """Raises ``InvalidRequest`` for a size that is none."""
    if bucket_bytes <= 0:
        raise InvalidRequest(f"bucket_bytes must be positive, got {bucket_bytes}")


def kind_of(source: Source) -> str:
    """``disk``, ``tensor``, ``distributed`` or ``none``."""
    if isinstance(source, FromDisk):
        return "disk"
    if isinstance(source, Tensors):
        return "tensor"
    return "distributed" if isinstance(source, Distributed) else "none"

"""Stand-in for SGLang's compiled kernels, of which only CUDA builds are released.

On the CPU path of a dense model SGLang imports names such as ``verify_tree_greedy_cpu`` from here (for speculative
decoding and KV moves) and never calls them. Every name therefore exists, and calling one fails with its name.
Registering no torch operators is deliberate: SGLang then takes its plain PyTorch implementations.
"""

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.0.0+trimtab.cpu"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Return a function that raises ``NotImplementedError`` naming the kernel; dunder names stay absent."""
    if name.startswith("__"):
        raise AttributeError(name)

    def missing_kernel(*_args: object, **_options: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build; the test shim only lets it be imported")

    missing_kernel.__name__ = name
    return missing_kernel

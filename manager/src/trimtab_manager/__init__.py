"""Manager of trimtab: the lifecycle of SGLang engines, and the simulated engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab_manager.fleet import InferenceManager

__all__ = ["InferenceManager"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: a simulated engine needs none of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("trimtab_manager.fleet"), name)

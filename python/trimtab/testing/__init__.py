"""Helpers for tests of code that uses trimtab: pools that are ready, and engines that do as they are told.

Nothing but the standard library, and threads instead of an event loop, so that plain and async tests use them alike.
For pytest, ``pytest_plugins = ["trimtab.testing.fixtures"]`` in a ``conftest.py`` gives both as fixtures. (For an
engine that behaves like SGLang, with batching and timing, see ``trimtab_manager.sim``.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trimtab._core import Pool
from trimtab.testing.engine import Answer, EngineRequest, ScriptedEngine, answer, complete, cut, held, reset

__all__ = [
    "Answer",
    "EngineRequest",
    "ScriptedEngine",
    "answer",
    "complete",
    "cut",
    "held",
    "reset",
    "serving_pool",
]


def serving_pool(
    engines: Iterable[str | ScriptedEngine] = ("127.0.0.1:1", "127.0.0.1:2"),
    *,
    version: int | None = 1,
    owners: Iterable[str] = ("train", "eval"),
    on_ambiguous: Literal["settle", "resolve", "fail_pool"] = "fail_pool",
) -> Pool:
    """A pool as a controller leaves it after its first publication: it serves, and its owners have acknowledged.

    Args:
        engines: Addresses, which nobody contacts, or scripted engines.
        version: The published version; ``None`` leaves the pool waiting for its first one.
        owners: Owners to attach.
        on_ambiguous: What an execution with an unknown end means.
    """
    pool = Pool("rollout/default", await_version=True, on_ambiguous=on_ambiguous)
    for engine in engines:
        pool.add_backend(engine.authority if isinstance(engine, ScriptedEngine) else engine)
    if version is not None:
        pool.publish("first", version)
    for owner in owners:
        pool.attach_owner(owner, version)
    return pool

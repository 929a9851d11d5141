"""What the running test created: the end-of-test check looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.engine import ScriptedEngine


class Registry:
    """Pools, data planes and engines of the current test.

    Pools and data planes register themselves: :func:`watch_core` wraps the two methods that every one of them passes
    through, so a test cannot forget it.
    """

    def __init__(self) -> None:
        self.pools: list[Any] = []
        self.planes: list[Any] = []
        self.engines: list[ScriptedEngine] = []

    def clear(self) -> None:
        """Forget everything: a new test begins."""
        self.pools.clear()
        self.planes.clear()
        self.engines.clear()

    def pool(self, pool: Any) -> None:
        """Remember a pool (``trimtab.Pool``)."""
        if not any(known is pool for known in self.pools):
            self.pools.append(pool)

    def plane(self, plane: Any) -> None:
        """Remember a started data plane."""
        self.planes.append(plane)

    def engine(self, engine: ScriptedEngine) -> None:
        """Remember an engine."""
        if engine not in self.engines:
            self.engines.append(engine)


registry = Registry()
"""The one of this process: tests run one after another."""


def watch_core(core: Any) -> None:
    """Make every pool that gets a backend, and every data plane that starts, known to the registry.

    A second call changes nothing.
    """
    if getattr(core, "_watched_by_tests", False):
        return
    add_backend, start = core.Pool.add_backend, core.DataPlane.start

    def watched_add(pool: Any, *args: Any, **kwargs: Any) -> Any:
        registry.pool(pool)
        return add_backend(pool, *args, **kwargs)

    def watched_start(*args: Any, **kwargs: Any) -> Any:
        plane = start(*args, **kwargs)
        registry.plane(plane)
        return plane

    core.Pool.add_backend = watched_add
    core.DataPlane.start = staticmethod(watched_start)
    core._watched_by_tests = True

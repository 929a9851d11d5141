"""A manager that acts on nothing: what a gateway asks of it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.fleet import EngineResult, ModelStanding, OperationResult, TopologyCount


class Recorder:
    """A manager that writes down what it is asked and answers what it was given."""

    def __init__(self, *rows: EngineResult, error: TrimtabError | None = None) -> None:
        self.calls: list[tuple[str, str, str | None, dict[str, Any]]] = []
        self._rows = rows
        self._error = error

    def topology_count(self) -> TopologyCount:
        """Of no role: the gateway counts itself."""
        return TopologyCount("recorder", {})

    def standing(self, role: str, model: str) -> ModelStanding | None:
        """Nothing to tell."""
        del role, model
        return None

    async def pause(self, role: str, model: str | None = None, *, mode: str = "abort") -> OperationResult:
        """Record ``pause``."""
        return self._answer("pause", role, model, mode=mode)

    async def resume(self, role: str, model: str | None = None) -> OperationResult:
        """Record ``continue``."""
        return self._answer("continue", role, model)

    async def flush(self, role: str, model: str | None = None) -> OperationResult:
        """Record ``flush``."""
        return self._answer("flush", role, model)

    async def drain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """Record ``drain``."""
        return self._answer("drain", role, model, engine=engine)

    async def undrain(self, role: str, model: str | None = None, *, engine: str | None = None) -> OperationResult:
        """Record ``undrain``."""
        return self._answer("undrain", role, model, engine=engine)

    async def sleep(self, role: str, model: str | None = None) -> OperationResult:
        """Record ``sleep``."""
        return self._answer("sleep", role, model)

    async def wake(self, role: str, model: str | None = None, *, tags: Sequence[str] | None = None) -> OperationResult:
        """Record ``wake``."""
        return self._answer("wake", role, model, tags=tags)

    async def update_from_disk(
        self, role: str, model: str | None = None, *, path: str, version: int, flush: str = "flush"
    ) -> OperationResult:
        """Record ``update_from_disk``."""
        return self._answer("update_from_disk", role, model, path=path, version=version, flush=flush)

    async def scale(
        self, role: str, model: str | None = None, *, replicas: int, group: str | None = None
    ) -> OperationResult:
        """Record ``scale``."""
        return self._answer("scale", role, model, replicas=replicas, group=group)

    async def add_engine(
        self, url: str, role: str, model: str | None = None, *, capacity: float | None = None
    ) -> OperationResult:
        """Record ``add_engine``."""
        return self._answer("add_engine", role, model, url=url, capacity=capacity)

    async def remove_engine(self, engine: str, role: str, model: str | None = None) -> OperationResult:
        """Record ``remove_engine``."""
        return self._answer("remove_engine", role, model, engine=engine)

    def _answer(self, operation: str, role: str, model: str | None, **arguments: Any) -> OperationResult:
        self.calls.append((operation, role, model, arguments))
        if self._error is not None:
            raise self._error
        return OperationResult(operation, role, model or "policy", self._rows, 1.25, weight_version=7)

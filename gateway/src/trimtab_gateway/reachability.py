"""Says in the log when a model can serve, and when it no longer can.

A model that is starting has no verdict yet: an engine counts once a probe has reached it or failed. The first verdict
and every change of it are written, once; so are engines that did not answer their first probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab._core import BackendStatistics, PoolStatistics
    from trimtab_gateway.snapshot import ModelSnapshot, Snapshot

logger = get_logger("gateway")
_SHOWN_ENGINES = 5


class ReachabilityLog:
    """Remembers the last verdict on each pool."""

    def __init__(self) -> None:
        self._ready: dict[str, bool] = {}
        self._all_judged: set[str] = set()

    def observe(self, snapshot: Snapshot, *, is_managed: bool = False) -> None:
        """Compare a snapshot with the last verdicts and write what changed.

        Args:
            snapshot: What is published.
            is_managed: Somebody brings up the engines: that a model has none at first says nothing yet.
        """
        for role in snapshot.roles.values():
            for model in role.models:
                if model.pool.backends or model.pool.name in self._ready or not is_managed:
                    self._observe(model)

    def _observe(self, model: ModelSnapshot) -> None:
        pool = model.pool
        if pool.update is not None or model.state == "paused":
            # The last verdict stands: an update is no outage.
            return
        ready = model.state == "ready"
        judged = all(map(_is_judged, pool.backends))
        if self._ready.get(pool.name) != ready and (ready or judged):
            self._ready[pool.name] = ready
            if ready:
                logger.info("model is ready", pool=pool.name, engines=_reached(pool))
            else:
                message = "no engine can serve; /ready answers 503 until one does"
                logger.warning(message, pool=pool.name, engines=_reached(pool), urls=_urls(pool.backends))
        if judged and pool.backends and pool.name not in self._all_judged:
            self._all_judged.add(pool.name)
            silent = [backend for backend in pool.backends if backend.health == "unproven"]
            if silent and ready:
                message = "engines did not answer; each is used once it does"
                logger.warning(message, pool=pool.name, engines=_reached(pool), urls=_urls(silent))


def _is_judged(backend: BackendStatistics) -> bool:
    return backend.draining or backend.health != "unproven" or backend.failures > 0


def _reached(pool: PoolStatistics) -> str:
    return f"{sum(backend.eligible for backend in pool.backends)}/{len(pool.backends)}"


def _urls(backends: Sequence[BackendStatistics]) -> list[str]:
    urls = [backend.url for backend in backends[:_SHOWN_ENGINES]]
    return urls if len(backends) <= _SHOWN_ENGINES else [*urls, f"{len(backends) - _SHOWN_ENGINES} more"]

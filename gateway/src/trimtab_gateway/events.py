"""State changes of the pools, and requests that could not be served, as log lines.

A pool keeps its events in a bounded ring; whoever drains them writes them. One engine that dies may re-pin ten thousand
sessions, so equal lines are written once with their number, and one drain writes at most :data:`MAX_LINES` lines per
pool.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab._core import DataPlane, Pool

MAX_LINES = 20
logger = get_logger("pool")


def log_events(pools: Iterable[Pool]) -> None:
    """Drain the events of every pool into the log."""
    for pool in pools:
        lines, dropped = pool.take_events()
        counted = list(Counter(lines).items())
        if len(counted) > MAX_LINES:
            counted.sort(key=lambda entry: not entry[0].startswith("backend"))
        for line, times in counted[:MAX_LINES]:
            fields = {"times": times} if times > 1 else {}
            logger.info(line, pool=pool.name, **fields)
        unwritten = sum(times for _, times in counted[MAX_LINES:]) + dropped
        if unwritten:
            logger.info("more state changes were not written", pool=pool.name, count=unwritten)


def log_failures(data_plane: DataPlane) -> None:
    """Write what could not be served since the last call: one line per error code and engine."""
    for failure in data_plane.take_failures():
        known = {key: value for key, value in failure.items() if value is not None and key != "message"}
        logger.warning("requests failed", **known, last=failure["message"])

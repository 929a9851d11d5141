"""The frozen object that feeds tests, ``/metrics`` and ``/status``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab_gateway.control.exposition import Durations
    from trimtab_gateway.snapshot import Snapshot


@dataclass(frozen=True)
class GatewayStatistics:
    """A gateway at one moment.

    Attributes:
        snapshot: Roles, models, pools and backends.
        data_plane: Counters of the data plane since it started; empty before.
        uptime_s: Seconds since the gateway started.
        loop_lags: How late timers ran, of the loops ``control`` and ``data``.
    """

    snapshot: Snapshot
    data_plane: Mapping[str, Any]
    uptime_s: float
    loop_lags: Mapping[str, Durations] = field(default_factory=dict)

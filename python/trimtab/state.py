"""Where a pool is in its life."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["PoolState"]

PoolState: TypeAlias = Literal["init", "serving", "quiescing", "drained", "updating", "failed", "closed"]
"""``init``: before the first published version. ``serving``: leases can be granted. ``quiescing``, ``drained`` and
``updating``: an update is in progress. Nothing leaves ``failed`` and ``closed``."""

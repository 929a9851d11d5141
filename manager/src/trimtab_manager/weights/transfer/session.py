"""The session that newer SGLang servers want around tensors: ``/begin_weight_update`` to ``/end_weight_update``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_manager.engine.errors import Refused
from trimtab_manager.weights.fan_out import repeat

if TYPE_CHECKING:
    from trimtab_manager.engine.client import EngineClient

NOT_FOUND = 404
ALREADY_OPEN = "already open"
NONE_OPEN = "no weight-update session is open"


async def begin(client: EngineClient, at_s: float) -> bool:
    """Open one; whether the server has sessions. One that a controller left open when it died is closed first."""
    try:
        await repeat(lambda limit_s: client.begin_weight_update(timeout_s=limit_s), at_s)
    except Refused as refused:
        if refused.status == NOT_FOUND:
            return False
        if ALREADY_OPEN not in refused.body:
            raise
        # Ours, whose answer was lost, or of a controller that is gone: nothing tells, and starting over serves both.
        await end(client, at_s)
        await client.begin_weight_update(timeout_s=client.timeout_s)
    return True


async def end(client: EngineClient, at_s: float) -> None:
    """Close it. One that is closed already is no error: an answer may have been lost."""
    try:
        await repeat(lambda limit_s: client.end_weight_update(timeout_s=limit_s), at_s)
    except Refused as refused:
        if NONE_OPEN not in refused.body:
            raise

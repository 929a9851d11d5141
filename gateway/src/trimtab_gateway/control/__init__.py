"""The control app: everything the gateway answers that is not a generation.

The data plane owns the public port and sends what it does not serve itself to this app over a private Unix socket. No
handler calls an engine or waits for one: every answer comes from the published snapshot, so that the control app
answers while every engine is dead.
"""

from __future__ import annotations

from trimtab_gateway.control.app import create_app

__all__ = ["create_app"]

"""The workers API of sglang-router: engines that come and go while the gateway runs.

Launchers of slime and NeMo-RL start an engine and then tell a router about it: ``POST /workers``, later
``DELETE /workers/<id>``. The same calls with the same shapes work here, so that such a launcher needs another address
and no other code. A worker is a backend of a pool: nothing is kept beside the pool but what the pool does not know
(the URL as it was written, labels).

Every endpoint needs the admin key. With several pools the prefix ``/<role>`` or ``model_id`` in the body says which.
"""

from __future__ import annotations

from trimtab_gateway.control.workers.fleet import Workers
from trimtab_gateway.control.workers.routes import add_routes

__all__ = ["Workers", "add_routes"]

"""Who answers at an address: the incarnation we know, or another server that has its port now.

A port is reused within seconds, and a release meant for a sleeping engine kills the busy one that has its place. SGLang
has no instance id and tells no pid (0.5.23). Of what it tells, ``/server_info`` has the ``startup_time`` of each
scheduler, durations of its own start in nanoseconds' digits, and ``random_seed``, drawn at each start unless
``--random-seed`` fixes it: together they are different for any two starts, and the same as long as one lives. Their
digest is the ``incarnation``. Neither work nor sleep nor an update moves it (seen). Older servers have no
``startup_time``; with a fixed seed two starts of one of those cannot be told apart.

The pid that a launcher knows is checked as well, by its handle: a process that ended cannot be the one that answers.
"""

from __future__ import annotations

from trimtab_manager.engine.client import EngineClient
from trimtab_manager.engine.errors import IdentityChanged


async def verify_identity(client: EngineClient, incarnation: str, *, timeout_s: float) -> None:
    """Asks the server at the address who it is.

    Raises:
        IdentityChanged: Another one.
        ControlError: It did not say; a hung scheduler never does.
    """
    server = await client.server_info(timeout_s=timeout_s)
    if server.incarnation != incarnation:
        raise IdentityChanged(
            f"engine {client.engine}: another server answers at {client.url} (incarnation {server.incarnation} with "
            f"{server.model_path}, expected {incarnation}); nothing was sent to it. The engine's own process is gone: "
            "replace it"
        )

"""Connecting to a cluster, with an end: ``ray.init`` waits for ever for a head that does not answer."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import ray

from trimtab_manager.launch.types import LaunchError

CONNECT_DEADLINE_S = 60.0
"""For the head to answer; it takes a second."""


async def connect(address: str | None) -> None:
    """Makes this process a driver of the cluster.

    Args:
        address: ``host:port`` of its head; ``auto`` or None: the one of ``RAY_ADDRESS``, or the cluster on this
            machine.

    Raises:
        LaunchError: There is none, or it does not answer.
    """
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where.startswith("ray://"):
        raise LaunchError(
            f"{where} is a Ray Client address, through which engines cannot be watched: run the manager on a node of "
            f"the cluster, with the address host:port of its head (6379 by default), or with auto"
        )
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    # A thread that nothing waits for at exit: there is no way to end a call of ray.init.
    threading.Thread(target=_init, args=(where, loop, answer), name="trimtab-ray-init", daemon=True).start()
    try:
        await asyncio.wait_for(answer, CONNECT_DEADLINE_S)
    except asyncio.TimeoutError:
        raise LaunchError(
            f"the Ray cluster at {where} did not answer within {CONNECT_DEADLINE_S:.0f} s: is its head there "
            f"(`ray status --address {where}`), and reached from here?"
        ) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LaunchError(
            f"no Ray cluster at {where}: {error} Start one with `ray start`, or set its address"
        ) from error


def _init(where: str, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[None]) -> None:
    failure: Exception | None = None
    try:
        # "auto" fails where there is no cluster; None would start one on this machine, which nobody asked for.
        # Its lines would mix with ours on stderr, and what its workers print is in the logs of the cluster.
        ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # noqa: BLE001  # raised where it is waited for
        failure = error
    if not loop.is_closed():
        loop.call_soon_threadsafe(_tell, answer, failure)


def _tell(answer: asyncio.Future[None], failure: Exception | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(None)
    else:
        answer.set_exception(failure)

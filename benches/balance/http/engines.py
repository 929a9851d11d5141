"""Simulated engines in a process of their own: ``python -m benches.balance.http.engines COUNT TIME_SCALE``.

Prints one JSON line, the list of ports, and serves until stdin ends. All are ``ENGINE``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import uvloop

from benches.balance.fleet import EngineModel
from trimtab_manager.sim import running_engine

ENGINE = EngineModel(
    decode_step_s=0.03,
    decode_request_step_s=0.001,
    decode_kv_token_s=1e-6,
    prefill_tokens_per_s=4_000.0,
    kv_tokens=12_000,
    max_running=64,
)
"""``fleet.TP4`` in about a tenth of its size: slow enough to be simulated on the cores of a laptop."""

CONTEXT_TOKENS = 6_144
TIME_SCALE = 0.25
"""Real seconds per modelled one: a decode step is then 8 ms, which timers keep."""


async def serve(count: int, time_scale: float) -> None:
    """Serve until stdin ends."""
    # Idle connections stay: the race of a request with their end is not what is measured here.
    config = replace(ENGINE.config(time_scale=time_scale, context_tokens=CONTEXT_TOKENS), keep_alive_s=3600.0)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running_engine(config)) for _ in range(count)]
        print(json.dumps([int(server.url.rpartition(":")[2]) for server in servers]), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    # sglang-router asks each engine in HTTP/2 first, and takes the refusal well.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))

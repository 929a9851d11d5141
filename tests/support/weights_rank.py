"""An engine that really joins the process group of an update, and is killed at its first broadcast.

Run with the interpreter of the SGLang environment, which has torch, as ``-m tests.support.weights_rank MODEL_PATH``. It
prints its port when it serves. What it answers besides is what an update asks of an engine before the transfer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import datetime, timezone
from typing import Any

from aiohttp import web

OK = {"success": True, "message": "Success.", "status": "ok"}


def join(order: dict[str, Any]) -> None:
    """Join as SGLang does, beside a default group of its own."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    from torch.distributed.rendezvous import rendezvous

    rank, world, name = order["rank_offset"], order["world_size"], order["group_name"]
    address = f"tcp://{order['master_address']}:{order['master_port']}"
    store, _, _ = next(rendezvous(address, rank, world, timeout=dist.default_pg_timeout))
    prefixed = dist.PrefixStore(name, store)
    backend, timeout = c10d.Backend(order["backend"]), dist.default_pg_timeout
    c10d._new_process_group_helper(world, rank, [], backend, prefixed, group_name=name, timeout=timeout)


def application(model_path: str) -> web.Application:
    """Its endpoints."""

    async def model_info(_: web.Request) -> web.Response:
        return web.json_response({"model_path": model_path, "served_model_name": "rank", "weight_version": "1"})

    async def server_info(_: web.Request) -> web.Response:
        return web.json_response({"model_path": model_path, "version": "0", "tp_size": 1})

    async def loads(_: web.Request) -> web.Response:
        rank = {"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0, "timestamp": time.time()}
        now = datetime.now(timezone.utc).isoformat()
        return web.json_response({"timestamp": now, "loads": [rank]})

    async def generate(_: web.Request) -> web.Response:
        meta = {"cached_tokens": 0, "weight_version": "1", "finish_reason": {"type": "length", "length": 1}}
        return web.json_response({"text": "", "output_ids": [1], "meta_info": meta})

    async def init(request: web.Request) -> web.Response:
        await asyncio.to_thread(join, await request.json())
        return web.json_response(OK)

    async def receive(_: web.Request) -> web.Response:
        os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("unreachable: the process is dead")

    async def fine(_: web.Request) -> web.Response:
        return web.json_response(OK)

    app = web.Application()
    app.router.add_get("/model_info", model_info)
    app.router.add_get("/server_info", server_info)
    app.router.add_get("/v1/loads", loads)
    app.router.add_post("/generate", generate)
    app.router.add_post("/init_weights_update_group", init)
    app.router.add_post("/update_weights_from_distributed", receive)
    for path in ("/pause_generation", "/continue_generation", "/begin_weight_update", "/abort_request"):
        app.router.add_post(path, fine)
    return app


async def serve(model_path: str) -> None:
    """Serve until killed."""
    import torch  # before the port is told: the import takes seconds

    del torch
    runner = web.AppRunner(application(model_path))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

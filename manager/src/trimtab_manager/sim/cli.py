"""``trimtab sim-engine``: a simulated engine as a process of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click
import uvloop

from trimtab_manager.sim.config import SimConfig
from trimtab_manager.sim.engine import SimEngine
from trimtab_manager.sim.faults import Fault
from trimtab_manager.sim.server import SimServer

CRASH_EXIT_CODE = 137
"""What a shell reports for a process that died of SIGKILL, which is how a crashed SGLang server ends."""

_DEFAULTS = {field.name: field.default for field in fields(SimConfig)}


Command = Callable[..., None]


def _option(flag: str, name: str, text: str) -> Callable[[Command], Command]:
    default = _DEFAULTS[name]
    return click.option(flag, name, type=type(default), default=default, show_default=True, help=text)


def _parse_faults(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[Fault, ...]:
    try:
        return tuple(map(Fault.parse, given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("sim-engine")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option(
    "--port", default=30000, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@_option("--model-name", "model_name", "Served model name.")
@_option("--model-path", "model_path", "Path of the weights; equal paths give equal greedy output.")
@_option("--max-running-requests", "max_running_requests", "Size of the running batch.")
@_option("--max-total-tokens", "max_total_tokens", "Size of the KV cache in tokens.")
@_option("--context-length", "context_length", "Longest prompt plus output in tokens.")
@_option("--vocab-size", "vocab_size", "Token ids at or above it crash the engine.")
@_option("--prefill-tokens-per-s", "prefill_tokens_per_s", "Prompt tokens computed per second.")
@_option("--decode-step-s", "decode_step_s", "Time of a decode step of one request.")
@_option("--decode-request-step-s", "decode_request_step_s", "What each further request of the batch adds to a step.")
@_option("--decode-kv-token-s", "decode_kv_token_s", "What each token of the batch's contexts adds to a step.")
@_option("--time-scale", "time_scale", "Real seconds per modelled second; 0 never waits.")
@_option("--seed", "seed", "Seed of sampled output.")
@_option("--keep-alive-s", "keep_alive_s", "Close idle connections after this time.")
@click.option(
    "--enable-memory-saver",
    "memory_saver",
    is_flag=True,
    help="Really give memory back: die of a step without it, lose released weights.",
)
@click.option("--api-key", default=None, envvar="TRIMTAB_SIM_API_KEY", help="Require 'Authorization: Bearer KEY'.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    callback=_parse_faults,
    help="Arm a fault: kind[@bytes][:name=value,...], such as 'reset@100:times=1'. Repeatable.",
)
def command(host: str, port: int, faults: tuple[Fault, ...], **values: Any) -> None:
    """Run a simulated SGLang engine: same endpoints and failures, no GPU, no model."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        config = SimConfig(faults=faults, **values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        reason = uvloop.run(_serve(config, host, port))
    except OSError as error:
        reason = "the port is taken; choose another --port" if error.errno == errno.EADDRINUSE else error.strerror
        raise click.ClickException(f"cannot listen on {host}:{port}: {reason}") from error
    if reason is not None:
        click.echo(f"the engine crashed: {reason}", err=True)
        sys.stderr.flush()
        os._exit(CRASH_EXIT_CODE)  # as abrupt as the real one: no clean-up, no farewell


async def _serve(config: SimConfig, host: str, port: int) -> str | None:
    """Serve until SIGTERM, SIGINT or a crash; the reason of the crash."""
    server = SimServer(SimEngine(config), host, port)
    await server.start()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    click.echo(f"simulated engine {config.model_name} listening on {server.url}")
    waits: set[asyncio.Future[Any]] = {asyncio.create_task(stopped.wait()), server.crashed}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if server.crashed.done():
        return server.crashed.result()
    await server.stop()
    return None


if __name__ == "__main__":
    command()

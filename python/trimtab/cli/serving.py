"""Runs a gateway until a signal ends it. Imported by ``trimtab serve`` once its arguments are right."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

import click
import uvloop

from trimtab import __version__
from trimtab.errors import TrimtabError
from trimtab_gateway import Gateway
from trimtab_gateway.config.rules import is_loopback
from trimtab_gateway.log import configure_logging, get_logger

if TYPE_CHECKING:
    from trimtab_gateway import GatewayConfig

logger = get_logger("serve")
_MANY_DESCRIPTORS = 2**20
_FEW_DESCRIPTORS = 4096
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")


def serve(config: GatewayConfig, *, as_json: bool) -> None:
    """Serve until SIGINT or SIGTERM. Raises ``click.ClickException`` when the gateway cannot start."""
    configure_logging(sys.stderr, as_json=as_json)
    _raise_descriptor_limit()
    _mention_ignored_proxies()
    if not is_loopback(config.host) and config.client_key is None:
        message = "whoever can connect can run generations: give a client key (TRIMTAB_CLIENT_KEY, --client-key-file)"
        logger.warning(message, host=config.host)
    try:
        uvloop.run(_serve(config, as_json=as_json))
    except TrimtabError as error:
        raise click.ClickException(str(error)) from error


async def _serve(config: GatewayConfig, *, as_json: bool) -> None:
    stop = asyncio.Event()
    gateway = Gateway(config)
    loop = asyncio.get_running_loop()
    cuts: list[asyncio.Task[None]] = []

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            logger.info("ending now: running requests are cut", signal=number.name)
            cuts.append(loop.create_task(gateway.cut()))
        else:
            logger.info("stopping: running requests get a moment to finish", signal=number.name)
            stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    async with gateway:
        _announce(gateway, as_json=as_json)
        await stop.wait()
    await asyncio.gather(*cuts)
    logger.info("stopped")


def _announce(gateway: Gateway, *, as_json: bool) -> None:
    """The one line that says the gateway listens, where, and for which engines."""
    roles = {
        role.name: {model.name: [engine.url for engine in model.engines] for model in role.models}
        for role in gateway.config.roles
    }
    if as_json:
        ready = {"event": "listening", "version": __version__, "url": gateway.url, "pid": os.getpid(), "roles": roles}
        click.echo(json.dumps(ready))
        return
    pools = [
        f"{role}/{model} ({_counted(urls)})"
        for role, models in roles.items()
        for model, urls in models.items()
    ]
    click.echo(f"trimtab {__version__} listens on {gateway.url} for {', '.join(pools)}", err=True)


def _counted(urls: list[str]) -> str:
    if not urls:
        return "no engine yet: register one with POST /workers"
    return f"{len(urls)} {'engine' if len(urls) == 1 else 'engines'}: {_shortened(urls)}"


def _shortened(urls: list[str], shown: int = 4) -> str:
    names = [url.removeprefix("http://") for url in urls]
    return ", ".join(names[:shown]) + (f", {len(names) - shown} more" if len(names) > shown else "")


def _raise_descriptor_limit() -> None:
    """Use the descriptors this process may have: each running request holds two sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MANY_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        wanted = soft
    else:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:
            logger.warning("the descriptor limit could not be raised", limit=soft, reason=str(error))
            wanted = soft
    if 0 <= wanted < _FEW_DESCRIPTORS:
        logger.warning("few descriptors: raise 'ulimit -n'", limit=wanted, enough_for_requests=wanted // 2)


def _mention_ignored_proxies() -> None:
    # Names only: a proxy URL may hold a password.
    found = sorted(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])
    if found:
        logger.info("proxy variables of the environment are ignored: engines are reached directly", variables=found)

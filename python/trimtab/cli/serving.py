"""Runs a gateway until a signal ends it. Imported by ``trimtab serve`` once its arguments are right."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

import click
import uvloop

from trimtab import __version__
from trimtab.cli.stop_signals import StopSignals
from trimtab.errors import TrimtabError
from trimtab_gateway import Gateway
from trimtab_gateway.config.rules import is_loopback
from trimtab_gateway.descriptors import max_clients, needed, raise_limit
from trimtab_gateway.log import configure_logging, get_logger

if TYPE_CHECKING:
    from trimtab_gateway import GatewayConfig

logger = get_logger("serve")
_FEW_DESCRIPTORS = 4096
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")


def serve(config: GatewayConfig, *, as_json: bool) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises ``click.ClickException`` when the gateway cannot start."""
    with StopSignals() as stop:
        prepare(config, as_json=as_json)
        try:
            uvloop.run(_serve(config, stop, as_json=as_json))
        except TrimtabError as error:
            raise click.ClickException(str(error)) from error


def prepare(config: GatewayConfig, *, as_json: bool, log: TextIO | None = None) -> None:
    """What the process needs before a gateway runs in it: its log, descriptors, and warnings about its surroundings.

    Args:
        config: The gateway.
        as_json: Log JSON lines.
        log: Where to; None: stderr.
    """
    configure_logging(sys.stderr if log is None else log, as_json=as_json)
    _use_all_descriptors(config)
    _mention_ignored_proxies()
    if not is_loopback(config.host) and config.client_key is None:
        message = "whoever can connect can run generations: give a client key (TRIMTAB_CLIENT_KEY, --client-key-file)"
        logger.warning(message, host=config.host)


async def _serve(config: GatewayConfig, stop: StopSignals, *, as_json: bool) -> None:
    gateway = Gateway(config)
    async with stop.heard(gateway.cut), gateway:
        _announce(gateway, as_json=as_json)
        await stop.wait()
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
    pools = [f"{role}/{model} ({_counted(urls)})" for role, models in roles.items() for model, urls in models.items()]
    click.echo(f"trimtab {__version__} listens on {gateway.url} for {', '.join(pools)}", err=True)


def _counted(urls: list[str]) -> str:
    if not urls:
        return "no engine yet: register one with POST /workers"
    return f"{len(urls)} {'engine' if len(urls) == 1 else 'engines'}: {_shortened(urls)}"


def _shortened(urls: list[str], shown: int = 4) -> str:
    names = [url.partition("://")[2] for url in urls]
    return ", ".join(names[:shown]) + (f", {len(names) - shown} more" if len(names) > shown else "")


def _use_all_descriptors(config: GatewayConfig) -> None:
    limit, need = raise_limit(), needed(config)
    clients = max_clients(config)
    counted = {"limit": limit, "enough_for_clients": clients, "needed": "unknown" if need is None else need}
    if limit is None or clients is None:
        return
    if limit < (_FEW_DESCRIPTORS if need is None else need):
        message = "few descriptors: raise 'ulimit -n'; more clients than it is enough for are answered 503"
        logger.warning(message, **counted)
    else:
        logger.info("descriptors", **counted)


def _mention_ignored_proxies() -> None:
    # Names only: a proxy URL may hold a password.
    found = sorted(name for name in os.environ if name.lower() in _PROXY_VARIABLES and os.environ[name])
    if found:
        logger.info("proxy variables of the environment are ignored: engines are reached directly", variables=found)

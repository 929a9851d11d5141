"""Runs a fleet until a signal ends it: the one place where manager and gateway meet.

The manager outlives the gateway: at the end no request comes any more when the engines are stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import uvloop

from trimtab import __version__
from trimtab.cli.launchers import launchers_of, log_folder
from trimtab.cli.serving import prepare
from trimtab.cli.stop_signals import StopSignals
from trimtab.cli.up_view import Bringup
from trimtab.errors import TrimtabError
from trimtab_gateway import Gateway
from trimtab_gateway.log import get_logger
from trimtab_manager import InferenceManager

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.fleet import OperationResult
    from trimtab.spec import FleetSpec
    from trimtab_gateway import GatewayConfig

logger = get_logger("up")


def up(fleet: FleetSpec, config: GatewayConfig, *, as_json: bool) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises ``click.ClickException`` when something cannot start."""
    with StopSignals() as stop, Bringup(is_shown=not as_json and sys.stderr.isatty()) as bringup:
        prepare(config, as_json=as_json, log=bringup.log)
        try:
            with log_folder(fleet) as folder:
                uvloop.run(_Up(fleet, config, folder, bringup, as_json=as_json).run(stop))
        except TrimtabError as error:
            raise click.ClickException(str(error)) from error


class _Up:
    def __init__(
        self, fleet: FleetSpec, config: GatewayConfig, folder: Path, bringup: Bringup, *, as_json: bool
    ) -> None:
        self._fleet = fleet
        self._bringup = bringup
        self._as_json = as_json
        self._folder = folder
        self._gateway = Gateway(config)
        self._manager = InferenceManager(
            fleet.roles,
            pools={
                (role.name, model.name): self._gateway.pool(role.name, model.name)
                for role in fleet.roles
                for model in role.models
            },
            launchers=launchers_of(fleet, self._folder, bringup.tell),
            settings=fleet.manager,
            api_key=config.engine_key,
        )
        self._gateway.manage(self._manager)

    async def run(self, stop: StopSignals) -> None:
        async with stop.heard(self._hurry), self._manager:
            async with self._gateway:
                self._say("listening", url=self._gateway.url, pid=os.getpid(), engine_logs=str(self._folder))
                await self._until(stop)
            self._bringup.end()
            logger.info("stopping the engines")
        logger.info("stopped")

    async def _until(self, stop: StopSignals) -> None:
        self._bringup.follow(self._manager)
        starting = asyncio.create_task(self._manager.activate(), name="trimtab-up-activate")
        stopping = asyncio.create_task(stop.wait(), name="trimtab-up-stop")
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                results = starting.result()
                self._bringup.end()
                self._announce(results)
                await stopping
        finally:
            for task in (starting, stopping):
                task.cancel()
                with suppress(asyncio.CancelledError, TrimtabError):
                    await task

    def _announce(self, results: Sequence[OperationResult]) -> None:
        for result in results:
            up = [row.engine for row in result.engines if row.status == "ok"]
            self._say("started", model=f"{result.role}/{result.model}", up=len(up), engines=len(result.engines))
        self._say("ready" if all(result.ok for result in results) else "degraded", url=self._gateway.url)

    def _say(self, event: str, **facts: object) -> None:
        """One line for people on stderr, or one JSON line on stdout for programs."""
        if self._as_json:
            click.echo(json.dumps({"event": event, "version": __version__, **facts}))
            return
        logger.info(event, **facts)

    async def _hurry(self) -> None:
        """Requests are cut and processes killed."""
        await asyncio.gather(self._gateway.cut(), self._manager.kill())

"""``trimtab up``: engines, their manager, the router and the gateway, from one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.bad_configuration import BadConfigurationError
from trimtab.cli.lazy import needs_server_packages

if TYPE_CHECKING:
    from trimtab.spec import FleetSpec
    from trimtab_gateway import GatewayConfig


@click.command("up")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--host", metavar="IP", help="Address of the gateway, instead of the file's.")
@click.option(
    "--port", metavar="PORT", type=int, help="Port of the gateway, instead of the file's; 0 takes a free one."
)
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines, and print what is up as JSON lines to stdout.")
def command(*, file: Path, host: str | None, port: int | None, as_json: bool) -> None:
    """Start the engines of FILE, and serve them behind one address.

    \b
    trimtab check trimtab.toml
    trimtab up trimtab.toml

    The gateway listens at once; models serve as their engines come up. An engine that dies is replaced. Ends on Ctrl-C
    or SIGTERM: running requests get five seconds, then the engines are stopped. A second signal stops them at once.
    However this process ends, no engine that it started outlives it.
    """  # noqa: D301 -- click's mark for "do not rewrap" is the backspace character itself
    overrides: dict[str, Any] = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    with needs_server_packages():
        fleet, config = _read(file, overrides)
        from trimtab.cli.up_run import up
    up(fleet, config, as_json=as_json)


def _read(file: Path, overrides: dict[str, Any]) -> tuple[FleetSpec, GatewayConfig]:
    from trimtab.cli.compose import gateway_config
    from trimtab.spec import ConfigError, load_fleet
    from trimtab.spec.error import located
    from trimtab_gateway.config import keys_of_environment

    try:
        fleet = load_fleet(file)
        with located(str(file), ": "):
            return fleet, gateway_config(fleet, **keys_of_environment(os.environ), **overrides)
    except ConfigError as error:
        raise BadConfigurationError(str(error)) from error

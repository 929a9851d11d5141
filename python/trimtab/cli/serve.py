"""``trimtab serve``: the gateway in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.bad_configuration import BadConfigurationError
from trimtab.cli.lazy import needs_server_packages

if TYPE_CHECKING:
    from trimtab_gateway import GatewayConfig


@click.command("serve")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML file with roles, models and engines (docs/configuration.md).",
)
@click.option(
    "--engine",
    "engines",
    metavar="ADDRESS[=CAPACITY]",
    multiple=True,
    help="A running SGLang engine, such as 10.0.0.1:30000 or http://10.0.0.1:30000=8. Repeat for each engine. "
    "The part after '=' is its capacity relative to the others (default 1).",
)
@click.option("--empty", is_flag=True, help="Start without engines: they are registered while it runs (POST /workers).")
@click.option("--role", metavar="NAME", help="Role of the engines, the first part of the URL (default: rollout).")
@click.option("--model", metavar="NAME", help="Name clients send as 'model'. Without it any name is accepted.")
@click.option("--host", metavar="IP", help="Address to listen on (default: 127.0.0.1).")
@click.option("--port", metavar="PORT", type=int, help="Port to listen on; 0 takes a free one (default: 8080).")
@click.option(
    "--client-key-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the key that clients must show; else TRIMTAB_CLIENT_KEY. Without one everybody is a client.",
)
@click.option(
    "--admin-key-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the key of the lease API; else TRIMTAB_ADMIN_KEY. A --host that others can reach needs one.",
)
@click.option(
    "--engine-key-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with the key of the engines (SGLang's --api-key); else TRIMTAB_ENGINE_KEY.",
)
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines, and print the ready line as JSON to stdout.")
def command(
    *,
    config_file: Path | None,
    engines: tuple[str, ...],
    empty: bool,
    role: str | None,
    model: str | None,
    host: str | None,
    port: int | None,
    client_key_file: Path | None,
    admin_key_file: Path | None,
    engine_key_file: Path | None,
    as_json: bool,
) -> None:
    """Serve running SGLang engines behind one address.

    \b
    trimtab serve --engine 10.0.0.1:30000=8 --engine 10.0.0.2:30000=2
    trimtab serve --config trimtab.toml

    Ends on Ctrl-C or SIGTERM: it stops accepting, gives running requests five seconds, then closes them. A second
    signal closes them at once.
    """  # noqa: D301 -- click's mark for "do not rewrap" is the backspace character itself
    overrides: dict[str, Any] = {}
    if host is not None:
        overrides["host"] = host
    if port is not None:
        overrides["port"] = port
    if client_key_file is not None:
        overrides["client_key_file"] = client_key_file
    if admin_key_file is not None:
        overrides["admin_key_file"] = admin_key_file
    if engine_key_file is not None:
        overrides["engine_key_file"] = engine_key_file
    if empty and (engines or config_file is not None):
        raise click.UsageError("--empty stands alone: engines of --engine or --config are not registered ones")
    if not (empty or engines or config_file is not None):
        raise click.UsageError(
            "nothing to serve: give --engine ADDRESS[=CAPACITY] at least once, --config FILE, or --empty for engines "
            "that are registered while it runs"
        )
    with needs_server_packages():
        config = _configuration(config_file, engines, role, model, overrides)
        from trimtab.cli.serving import serve
    serve(config, as_json=as_json)


def _configuration(
    file: Path | None, engines: tuple[str, ...], role: str | None, model: str | None, overrides: dict[str, Any]
) -> GatewayConfig:
    from trimtab_gateway.config import ConfigError, config_from_flags, keys_of_environment, load_config

    overrides = {**keys_of_environment(os.environ), **overrides}
    if file is not None:
        for flag, value in (("--engine", engines), ("--role", role), ("--model", model)):
            if value:
                raise click.UsageError(f"{flag} cannot be combined with --config: write it into {file}")
    try:
        if file is not None:
            return load_config(file, **overrides)
        return config_from_flags(engines, **({} if role is None else {"role": role}), model=model, **overrides)
    except ConfigError as error:
        raise BadConfigurationError(str(error)) from error

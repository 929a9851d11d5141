"""``trimtab check``: whether a configuration file is valid, and what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.bad_configuration import BadConfigurationError
from trimtab.cli.lazy import needs_server_packages

if TYPE_CHECKING:
    from trimtab.cli.resolved import Resolved


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the resolved configuration as JSON.")
def command(*, file: Path, as_json: bool) -> None:
    """Validate a configuration file of 'trimtab up' or 'trimtab serve' and print what it means.

    \b
    trimtab check trimtab.toml
    trimtab check trimtab.toml --json | jq '.resolved.manager'

    Every value that will be used is listed; those that the file leaves out are marked as defaults. The exit code is 2,
    with one message, when the file breaks a rule. Nothing is started.
    """  # noqa: D301 -- click's mark for "do not rewrap" is the backspace character itself
    from trimtab.cli.resolved import resolve
    from trimtab.spec.error import ConfigError, located

    try:
        with needs_server_packages(), located(str(file), ": "):
            resolved = resolve(file)
    except ConfigError as error:
        raise BadConfigurationError(str(error)) from error
    if as_json:
        click.echo(json.dumps(_document(file, resolved), ensure_ascii=False, indent=2))
        return
    from trimtab.cli.check_view import print_resolved

    print_resolved(file, resolved)


def _document(file: Path, resolved: Resolved) -> dict[str, object]:
    return {
        "file": str(file),
        "command": resolved.command,
        "resolved": resolved.table,
        "defaults": list(resolved.defaults()),
        "keys_of_environment": sorted(resolved.keys),
    }

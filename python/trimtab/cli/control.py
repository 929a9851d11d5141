"""``trimtab update``, ``drain`` and ``scale``: what a manager does to engines, asked of its gateway from a shell."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.fetch import post_json

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_PATIENCE_S = 3600.0

_common = (
    click.option("--url", default=DEFAULT_URL, show_default=True, help="Base URL of the gateway, or HOST:PORT."),
    click.option("--role", default="rollout", show_default=True, help="The role."),
    click.option("--model", help="The model. Default: the role's default one."),
    click.option(
        "--timeout", "timeout_s", type=float, default=DEFAULT_PATIENCE_S, show_default=True, help="Seconds to wait."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


def _with_common(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_common):
        function = option(function)
    return function


@click.command("update")
@click.option("--from-disk", "path", required=True, metavar="PATH", help="The new weights, on the engines' hosts.")
@click.option("--version", required=True, type=click.IntRange(0), help="The version that they are; it is published.")
@click.option(
    "--cache",
    type=click.Choice(("flush", "keep")),
    default="flush",
    show_default=True,
    help="What becomes of KV caches.",
)
@_with_common
def update(*, path: str, version: int, cache: str, **common: Any) -> None:
    """Give the engines of a model new weights, and publish their version.

    What runs is aborted, and its client gets the tokens so far. Until the version is published, requests that say how
    long they wait ('x-trimtab-wait') are held, and others refused (503). Needs a manager ('trimtab up'). With an admin
    key: TRIMTAB_ADMIN_KEY. Exit code 0: done on every engine; 1: not, the rows say why.
    """
    body = {"path": path, "version": version, "flush": cache}
    _run("update_weights/from_disk", body, watches=True, **common)


@click.command("drain")
@click.argument("engine", required=False)
@click.option("--undo", is_flag=True, help="Take it back into routing.")
@_with_common
def drain(*, engine: str | None, undo: bool, **common: Any) -> None:
    """Take ENGINE (or all) out of routing, and wait until nothing runs there.

    Its running requests finish, and its sessions move with their next turn. Needs a manager ('trimtab up'). With an
    admin key: TRIMTAB_ADMIN_KEY. Exit code 0: done on every engine; 1: not, the rows say why.
    """
    body = {} if engine is None else {"engine": engine}
    _run("undrain" if undo else "drain", body, watches=not undo, **common)


@click.command("scale")
@click.argument("replicas", type=click.IntRange(0))
@click.option("--group", help="The engine group. Default: the model's only one.")
@_with_common
def scale(*, replicas: int, group: str | None, **common: Any) -> None:
    """Have REPLICAS engines of a group.

    All new ones come in, or none; the latest leave first, and finish what they run. One that was given up is started
    again. Needs a manager ('trimtab up'). With an admin key: TRIMTAB_ADMIN_KEY. Exit code 0: done; 1: not, the message
    or the rows say why.
    """
    body = {"replicas": replicas, **({} if group is None else {"group": group})}
    _run("scale", body, watches=True, **common)


def _run(
    operation: str,
    body: dict[str, Any],
    *,
    url: str,
    role: str,
    model: str | None,
    timeout_s: float,
    as_json: bool,
    watches: bool,
) -> None:
    url = url if "://" in url else f"http://{url}"
    # Never a flag: the command lines of a machine are public.
    key = os.environ.get("TRIMTAB_ADMIN_KEY")
    named = body if model is None else {**body, "model": model}

    def call() -> dict[str, Any]:
        return post_json(url, f"/{role}/{operation}", named, key=key, timeout_s=timeout_s)

    if as_json:
        result = call()
        click.echo(json.dumps(result))
    else:
        from trimtab.cli.control_view import print_result, watching

        with watching(url, role, model, key=key, is_shown=watches):
            result = call()
        print_result(result)
    if not result.get("ok"):
        raise SystemExit(1)

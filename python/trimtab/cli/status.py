"""``trimtab status``: what a running gateway says about itself. Needs nothing but the client package."""

from __future__ import annotations

import json
import os

import click

from trimtab.cli.fetch import fetch_json

DEFAULT_URL = "http://127.0.0.1:8080"
_KEYS = {"version", "ready", "uptime_s", "roles", "data_plane"}


@click.command("status")
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Base URL of the gateway, or HOST:PORT.")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's status document as JSON.")
def command(url: str, *, as_json: bool) -> None:
    """Show pools, engines, load and health of a running gateway.

    A gateway with a client key wants to see it: TRIMTAB_CLIENT_KEY, else TRIMTAB_ADMIN_KEY.

    Exit code 0 means the gateway answered, ready or not; 1 that it did not.
    """
    url = url if "://" in url else f"http://{url}"
    # Never a flag: the command lines of a machine are public.
    key = os.environ.get("TRIMTAB_CLIENT_KEY") or os.environ.get("TRIMTAB_ADMIN_KEY")
    document = fetch_json(url, "/status", key=key)
    if not document.keys() >= _KEYS:
        raise click.ClickException(f"{url}/status answered another kind of document; is it a trimtab gateway?")
    if as_json:
        click.echo(json.dumps(document))
        return
    from trimtab.cli.status_view import print_status

    print_status(url, document)

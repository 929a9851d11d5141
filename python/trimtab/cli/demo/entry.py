"""The command line of ``trimtab demo``."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys

import click

from trimtab.cli.lazy import SERVER_PACKAGES, how_to_install

__all__ = ["command"]

MOST_ENGINES = 16  # all of them, the gateway and the clients share this machine


@click.command("demo")
@click.option(
    "--engines",
    type=click.IntRange(1, MOST_ENGINES),
    default=4,
    show_default=True,
    help="Simulated engines to start, of unequal capacity.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, 3600),
    default=20,
    show_default=True,
    help="How long sessions run; the last ones may end a little later.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object; the view goes to stderr.")
def command(engines: int, seconds: int, seed: int, as_json: bool) -> None:
    """Balance multi-turn sessions over simulated engines, live.

    Starts simulated SGLang engines and a gateway on this machine (no GPU needed), sends coding-agent sessions through
    it, and shows where they run. Ends with a summary, and with exit code 0 when no request failed, no session moved but
    away from a crowded engine, no lease stayed open and the gateway's, the engines' and the clients' counts agree.
    """
    missing = [package for module, package in SERVER_PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise click.ClickException(
            f"the demo runs the gateway and simulated engines, and {' and '.join(missing)} is not installed here."
            f" Install with: {how_to_install(*missing)}"
        )
    try:
        sys.exit(_run(engines, seconds, seed, as_json))
    except KeyboardInterrupt:  # before the event loop took the signal over, or after it gave it back
        sys.exit(128 + signal.SIGINT)


def _run(engines: int, seconds: int, seed: int, as_json: bool) -> int:
    """Run the demo and return the exit code."""
    from rich.console import Console

    from trimtab.cli.demo.fleet import FleetError
    from trimtab.cli.demo.interrupt import InterruptedRunError, run_until_signal
    from trimtab.cli.demo.report import report
    from trimtab.cli.demo.run import DemoConfig, run_demo
    from trimtab.errors import TrimtabError

    console = Console(stderr=as_json)
    try:
        summary = run_until_signal(run_demo(DemoConfig(engines, seconds, seed), console))
    except InterruptedRunError as stopped:
        console.print(f"\nStopped by {stopped}; the engines and the gateway are down.", highlight=False)
        return stopped.exit_code
    except (FleetError, TrimtabError) as error:
        raise click.ClickException(f"the demo could not start: {error}") from error
    console.print()
    console.print(report(summary))
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    return 0 if summary.passed else 1

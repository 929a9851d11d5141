"""The commands of ``trimtab``.

They are imported when they run, so that ``trimtab --help`` answers at once and a client that installed only ``trimtab``
has every command that needs no server.
"""

from __future__ import annotations

import click

from trimtab import __version__
from trimtab.cli.lazy import LazyCommand, LazyGroup

COMMANDS = (
    LazyCommand("up", "trimtab.cli.up:command", "Start engines, and serve them behind one address."),
    LazyCommand("serve", "trimtab.cli.serve:command", "Serve SGLang engines behind one address."),
    LazyCommand("check", "trimtab.cli.check:command", "Validate a configuration file and show what it means."),
    LazyCommand("status", "trimtab.cli.status:command", "Show pools, engines and load of a running gateway."),
    LazyCommand("update", "trimtab.cli.control:update", "Give the engines of a model new weights."),
    LazyCommand("drain", "trimtab.cli.control:drain", "Take an engine out of routing, and wait until it is idle."),
    LazyCommand("scale", "trimtab.cli.control:scale", "Have so many engines of a group."),
    LazyCommand("demo", "trimtab.cli.demo:command", "Balance sessions over simulated engines and watch it."),
    LazyCommand("sim-engine", "trimtab_manager.sim.cli:command", "Run a simulated SGLang engine."),
)


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trimtab")
def trimtab() -> None:
    """Load-balancing router for SGLang rollouts: sessions stay put, engines stay evenly loaded."""

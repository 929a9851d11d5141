"""A click group that imports a command when it is needed, and says what to install when it cannot."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SERVER_PACKAGES = {"trimtab_gateway": "trimtab-gateway", "trimtab_manager": "trimtab-manager"}


@dataclass(frozen=True)
class LazyCommand:
    """Where a command lives.

    Attributes:
        name: What the user types.
        target: ``module:attribute`` of the click command.
        summary: The line of ``trimtab --help``, which must not import the command to know it.
    """

    name: str
    target: str
    summary: str

    def load(self) -> click.Command:
        """Import the command. Raises ``click.ClickException`` when its distribution is not installed."""
        module, _, attribute = self.target.partition(":")
        with needs_server_packages():
            command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command


class LazyGroup(click.Group):
    """A group of :class:`LazyCommand`."""

    def __init__(self, *args: object, lazy: Sequence[LazyCommand] = (), **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # handed through to click untouched
        self._lazy = {each.name: each for each in lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order a newcomer needs them."""
        del ctx
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        del ctx
        lazy = self._lazy.get(cmd_name)
        return None if lazy is None else lazy.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of ``--help``, from the summaries."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(each.name, each.summary) for each in self._lazy.values()])


@contextmanager
def needs_server_packages() -> Iterator[None]:
    """Turn a missing distribution of trimtab, or of its dependencies, into what to type next."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = SERVER_PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise click.ClickException(
            f"this command needs {package}, which is not installed: {how_to_install(package)}"
        ) from error


def how_to_install(*packages: str) -> str:
    """What to type for distributions of trimtab: by name once they are released, by folder in a checkout."""
    folders = (f"./{package.removeprefix('trimtab-')}" for package in packages)
    return f"pip install {' '.join(packages)}, or in a checkout: pip install {' '.join(folders)}"

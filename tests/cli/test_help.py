"""``trimtab``, ``--help``, ``--version``: at once, and without the packages that servers need."""

from __future__ import annotations

import resource
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests.cli.processes import SCRIPT, run
from trimtab import __version__
from trimtab.cli.commands import COMMANDS, trimtab
from trimtab.cli.lazy import LazyCommand

HEAVY = ("aiohttp", "asyncio", "rich", "orjson", "prometheus_client", "structlog", "uvloop", "trimtab_gateway")


async def test_help_lists_every_command() -> None:
    """With one line each, and exit code 0."""
    result = await run("--help")
    assert result.code == 0
    for command in COMMANDS:
        assert f"\n  {command.name} " in result.out
        assert command.summary in result.out


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
async def test_every_command_has_a_help(command: str) -> None:
    """Every command loads, and says what it does."""
    result = await run(command, "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage: trimtab {command} ")
    assert "\\" not in result.out, "markup for the help formatter is shown as text"


async def test_version() -> None:
    """The version of the package."""
    result = await run("--version")
    assert (result.code, result.out) == (0, f"trimtab, version {__version__}\n")


async def test_an_unknown_command_is_a_usage_error() -> None:
    """Exit code 2, and where help is."""
    result = await run("srve")
    assert result.code == 2
    assert "No such command 'srve'" in result.err


def test_help_imports_nothing_heavy() -> None:
    """What makes a command line slow is what it imports."""
    script = (
        "import sys; from trimtab.cli.commands import trimtab; trimtab(['--help'], standalone_mode=False); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_answers_within_300_ms() -> None:
    """Of processor time, which is what it takes on a machine that does nothing else; the best of several runs."""

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([SCRIPT, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(measure() for _ in range(5)) < 0.3


@pytest.mark.parametrize(
    ("arguments", "module", "package"),
    [
        (["serve", "--engine", "h:1"], "trimtab_gateway", "trimtab-gateway"),
        (["sim-engine"], "trimtab_manager", "trimtab-manager"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], module: str, package: str
) -> None:
    """A client that installed ``trimtab`` alone gets no traceback."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    result = CliRunner().invoke(trimtab, arguments)
    assert result.exit_code == 1
    guidance = f"pip install {package}, or in a checkout: pip install ./{package.removeprefix('trimtab-')}"
    assert result.output == f"Error: this command needs {package}, which is not installed: {guidance}\n"


def test_a_broken_import_is_not_hidden() -> None:
    """Only a missing package of ours is explained; anything else is a defect to be seen."""
    with pytest.raises(ModuleNotFoundError):
        LazyCommand("x", "no_such_module_at_all:command", "").load()
    with pytest.raises(TypeError):
        LazyCommand("x", "os:sep", "").load()
    assert isinstance(COMMANDS[0].load(), click.Command)

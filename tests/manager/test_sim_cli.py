"""``trimtab sim-engine`` as a process."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from click.testing import CliRunner

from trimtab_manager.sim.cli import CRASH_EXIT_CODE, command
from trimtab_manager.sim.config import SimConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE_S = 30


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A running command and its URL; killed at the end unless it has ended."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trimtab_manager.sim.cli", "--port", "0", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert started.stdout is not None
        line = (await asyncio.wait_for(started.stdout.readline(), DEADLINE_S)).decode()
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)$", line)
        assert found is not None, line
        yield started, found[1]
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_and_ends_on_a_signal(web: aiohttp.ClientSession, number: signal.Signals) -> None:
    """Flags reach the engine; exit code 0."""
    async with process("--model-name", "mine", "--time-scale", "0", "--api-key", "k") as (started, url):
        async with web.get(f"{url}/model_info", headers={"authorization": "Bearer k"}) as answer:
            assert (await answer.json())["served_model_name"] == "mine"
        started.send_signal(number)
        assert await asyncio.wait_for(started.wait(), DEADLINE_S) == 0


@pytest.mark.slow
async def test_a_crash_ends_the_process(web: aiohttp.ClientSession) -> None:
    """With the exit code of a killed one, and the reason on the error stream."""
    async with process("--time-scale", "0") as (started, url):
        with pytest.raises(aiohttp.ClientError):
            async with web.post(f"{url}/generate", json={"input_ids": [99_999]}) as answer:
                await answer.read()
        assert await asyncio.wait_for(started.wait(), DEADLINE_S) == CRASH_EXIT_CODE
        assert started.stderr is not None
        assert b"the engine crashed: IndexError" in await started.stderr.read()


@pytest.mark.slow
async def test_a_taken_port_is_a_clear_error() -> None:
    """It names the address and the way out."""
    async with process() as (_, url):
        port = url.rpartition(":")[2]
        result = await asyncio.to_thread(CliRunner().invoke, command, ["--port", port])
    assert result.exit_code == 1
    assert result.output == f"Error: cannot listen on 127.0.0.1:{port}: the port is taken; choose another --port\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-running-requests", "0"], "max_running_requests must be a positive whole number, got 0"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--fault", "explode"], "unknown fault 'explode'; the kinds are hold"),
        (["--no-such-flag"], "No such option"),
    ],
)
def test_bad_arguments_are_usage_errors(arguments: list[str], message: str) -> None:
    """Exit code 2, and the rule that is broken."""
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_help_names_every_knob_with_its_default() -> None:
    """Nothing is hidden."""
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    for flag in ("--port", "--model-name", "--max-running-requests", "--time-scale", "--seed", "--api-key", "--fault"):
        assert flag in result.output
    assert "default: 32" in result.output


def test_every_field_has_a_flag_but_those_the_documentation_names() -> None:
    """The page that lists the fields says which of them no flag sets."""
    page = (Path(__file__).parents[2] / "docs" / "simulated-engine.md").read_text()
    _, _, rest = page.partition("Six fields have no flag:")
    without = set(re.findall(r"`(\w+)`", rest.partition(".\n")[0]))
    assert len(without) == 6
    assert {field.name for field in fields(SimConfig)} - {option.name for option in command.params} == without

"""``trimtab demo`` as a user runs it: a process, its output, its exit code."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest
from click.testing import CliRunner

from trimtab.cli.demo import command, entry

KEYS = [
    "engines",
    "capacities",
    "sessions",
    "turns",
    "requests",
    "errors",
    "output_tokens",
    "tokens_per_engine",
    "cv_output_tokens",
    "sticky_violations",
    "spilled",
    "leases_open",
    "requests_per_s",
]
STARTED = b"The gateway listens on"


async def start(*arguments: str) -> asyncio.subprocess.Process:
    """Start the demo with its output piped."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from trimtab.cli.demo import command; command(prog_name='trimtab demo')",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.slow
async def test_a_short_run_ends_with_one_json_object_and_no_error() -> None:
    """Stdout is the object alone; nothing failed, nothing moved without a reason, no lease open, the sums agree."""
    process = await start("--seconds", "3", "--engines", "3", "--json")
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert out.count(b"\n") == 1
    result = json.loads(out)
    assert list(result) == KEYS
    assert (result["errors"], result["sticky_violations"], result["leases_open"]) == (0, 0, 0)
    assert result["engines"] == len(result["capacities"]) == len(result["tokens_per_engine"]) == 3
    assert len(set(result["capacities"])) > 1
    assert sum(result["tokens_per_engine"]) == result["output_tokens"] > 0
    assert result["requests"] == result["turns"] > result["sessions"] > 0
    assert b"the demo passed" in err


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_stops_everything_cleanly(signum: signal.Signals, code: int) -> None:
    """Ctrl-C in the middle of the run: the exit code says so, and there is no traceback."""
    process = await start("--seconds", "60")

    async def stop_it() -> tuple[bytes, bytes]:
        assert process.stdout is not None
        await process.stdout.readuntil(STARTED)
        await process.stdout.readuntil(b"requests")  # the first line of the view: sessions are under way
        process.send_signal(signum)
        return await process.communicate()

    out, err = await asyncio.wait_for(stop_it(), 60)
    assert process.returncode == code, err.decode()
    assert err == b""
    assert f"Stopped by {signum.name}".encode() in out


def test_without_the_gateway_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client-only install gets the pip command instead of an import error."""
    monkeypatch.setattr(entry, "SERVER_PACKAGES", {"trimtab_gateway_missing": "trimtab-gateway"})
    result = CliRunner().invoke(command)
    assert result.exit_code == 1
    assert "pip install trimtab-gateway" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments", [["--engines", "0"], ["--engines", "17"], ["--seconds", "0"], ["--seconds", "2.5"], ["--seed", "x"]]
)
def test_impossible_options_are_usage_errors(arguments: list[str]) -> None:
    """Nothing starts; the message names the option."""
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output

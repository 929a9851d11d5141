"""The ``trimtab`` console script as a process: started, waited for by its own output, and always ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

SCRIPT = str(Path(sys.executable).with_name("trimtab"))
DEADLINE_S = 30.0


class Result:
    """A process that ended: exit code and text."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


async def run(*arguments: str, env: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> Result:
    """Run ``trimtab ARGUMENTS`` to its end."""
    process = await _spawn(arguments, env)
    out, err = await asyncio.wait_for(process.communicate(), deadline_s)
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


class Serving:
    """``trimtab serve --json`` that listens.

    Attributes:
        ready: The object it printed when it listened.
    """

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self._process = process
        self.ready = ready

    @property
    def url(self) -> str:
        """Its base URL."""
        return str(self.ready["url"])

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def said(self, event: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """The next line on stdout that is ``event``; those before it are dropped. Each may take so many seconds."""
        assert self._process.stdout is not None
        while line := await asyncio.wait_for(self._process.stdout.readline(), deadline_s):
            record: dict[str, Any] = json.loads(line)
            if record["event"] == event:
                return record
        raise AssertionError(f"it ended without saying {event!r}: {(await self.ended()).err}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def logged(self, event: str) -> dict[str, Any]:
        """The next log record whose event contains ``event``; those before it are dropped."""
        assert self._process.stderr is not None
        seen: list[bytes] = []
        while line := await asyncio.wait_for(self._process.stderr.readline(), DEADLINE_S):
            seen.append(line)
            record: dict[str, Any] = json.loads(line)
            if event in record["event"]:
                return record
        raise AssertionError(f"it ended without logging {event!r}: {seen!r}")

    async def ended(self, deadline_s: float = DEADLINE_S) -> Result:
        """Wait for its end."""
        out, err = await asyncio.wait_for(self._process.communicate(), deadline_s)
        assert self._process.returncode is not None
        return Result(self._process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def serving(
    *arguments: str, env: Mapping[str, str] | None = None, descriptors: int | None = None
) -> AsyncIterator[Serving]:
    """Run ``trimtab serve --json --port 0 ARGUMENTS`` for the length of the block, with ``descriptors`` at most."""
    async with _listening(("serve", "--json", "--port", "0", *arguments), env, descriptors) as served:
        yield served


@asynccontextmanager
async def up(file: Path, *, env: Mapping[str, str] | None = None) -> AsyncIterator[Serving]:
    """Run ``trimtab up FILE --json --port 0`` for the length of the block, which begins when it listens."""
    async with _listening(("up", str(file), "--json", "--port", "0"), env) as served:
        yield served


@asynccontextmanager
async def _listening(
    arguments: tuple[str, ...], env: Mapping[str, str] | None, descriptors: int | None = None
) -> AsyncIterator[Serving]:
    process = await _spawn(arguments, env, descriptors)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        if not line:
            _, err = await process.communicate()
            raise AssertionError(f"it did not start: {err.decode()}")
        yield Serving(process, json.loads(line))
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process as a user does, so that it removes its files; kill it when that does not work."""
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.communicate(), DEADLINE_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.communicate()
        raise


async def _spawn(
    arguments: tuple[str, ...], env: Mapping[str, str] | None, descriptors: int | None = None
) -> asyncio.subprocess.Process:
    limited = () if descriptors is None else ("sh", "-c", f'ulimit -n {descriptors} && exec "$0" "$@"')
    return await asyncio.create_subprocess_exec(
        *limited,
        SCRIPT,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )

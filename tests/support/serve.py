"""``trimtab serve`` as a process of its own: the composition that users run, observed only through its ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from tests.support.metrics import sum_metric
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COMMAND = (str(Path(sys.executable).with_name("trimtab")), "serve")
ROLE = "rollout"
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 15.0


class ServeError(AssertionError):
    """The gateway did not start or stop as it should; the message has the end of its log."""


class GatewayProcess:
    """A gateway over ``engines`` (URLs, all of one role and one model named ``tiny``); ``spill`` is the pool's knob."""

    def __init__(self, engines: Sequence[str], log: Path, flags: Sequence[str] = (), *, spill: bool = True) -> None:
        self._engines = engines
        self._flags = flags
        self._spill = spill
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "the gateway was not started"
        return self._process.pid

    @property
    def url(self) -> str:
        """The base URL of the whole gateway."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def role_url(self) -> str:
        """The base URL of the one role."""
        return f"{self.url}/{ROLE}"

    async def start(self) -> None:
        """Spawn it and wait until ``/ready`` says that every engine is eligible."""
        config = self._log.with_suffix(".toml")
        knobs = f"engines = {json.dumps(list(self._engines))}\nspill = {json.dumps(self._spill)}\n"
        config.write_text(f"[roles.{ROLE}.models.tiny]\n{knobs}")
        command = [*COMMAND, "--port", str(self.port), "--config", str(config), *self._flags]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - spawning takes a millisecond
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_DEADLINE_S
        async with aiohttp.ClientSession() as client:
            while not await self._all_eligible(client):
                if self._process.poll() is not None:
                    raise ServeError(f"the gateway exited with {self._process.returncode}:\n{self._tail()}")
                if time.monotonic() > deadline:
                    raise ServeError(f"the gateway was not ready after {START_DEADLINE_S:.0f} s:\n{self._tail()}")
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM; it has to exit with 0 before the deadline."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServeError(f"the gateway did not stop within {STOP_DEADLINE_S:.0f} s:\n{self._tail()}") from None
        if status != 0:
            raise ServeError(f"the gateway exited with {status} after SIGTERM:\n{self._tail()}")

    def kill(self) -> None:
        """SIGKILL to its group, and collect it."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_DEADLINE_S)

    async def _all_eligible(self, client: aiohttp.ClientSession) -> bool:
        try:
            async with client.get(f"{self.url}/ready") as answer:
                pools = (await answer.json())["pools"]
        except aiohttp.ClientError:
            return False
        return bool(sum(pool["eligible"] for pool in pools.values()) == len(self._engines))

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-50:])


class Observer:
    """What a gateway says about itself, over HTTP."""

    def __init__(self, client: aiohttp.ClientSession, gateway: GatewayProcess) -> None:
        self._client = client
        self._gateway = gateway

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples called ``name`` that carry ``labels``; 0 when there is none."""
        async with self._client.get(f"{self._gateway.url}/metrics") as answer:
            assert answer.status == 200
            text = await answer.text()
        return sum_metric(text, name, **labels)

    async def outstanding(self) -> int:
        """Unsettled leases on all backends."""
        return int(await self.metric("trimtab_outstanding"))

    async def leases(self, outcome: str) -> int:
        """Leases settled so far with ``outcome``."""
        return int(await self.metric("trimtab_leases_total", outcome=outcome))

    async def engines(self) -> dict[str, dict[str, Any]]:
        """The engines of the discovery document by id."""
        async with self._client.get(f"{self._gateway.role_url}/engines") as answer:
            assert answer.status == 200
            models = (await answer.json())["models"]
        return {engine["engine_id"]: engine for engine in models["tiny"]["engines"]}

    async def ready(self) -> tuple[int, dict[str, Any]]:
        """Status and answer of ``/ready``."""
        async with self._client.get(f"{self._gateway.url}/ready") as answer:
            return answer.status, cast("dict[str, Any]", await answer.json())


@contextmanager
def stopped_at_the_end(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """Stop ``gateway`` at the end. After a failure it is killed, so that the failure itself is what is reported."""
    try:
        yield gateway
        gateway.stop()
    finally:
        gateway.kill()


async def eventually(check: Callable[[], Any], expected: object, what: str, deadline_s: float = 10.0) -> None:
    """Await ``check()`` until it answers ``expected``.

    Raises:
        AssertionError: it did not within ``deadline_s``; the message has ``what`` and the last answer.
    """
    deadline = time.monotonic() + deadline_s
    while (value := await check()) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s} s: {what} (expected {expected!r}, last: {value!r})")
        await asyncio.sleep(0.05)

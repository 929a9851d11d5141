"""A gateway process that is killed while its clients hold leases, and started again on the same port."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trimtab
from tests.support.ports import free_ports
from tests.support.serve import COMMAND
from tests.support.waiting import wait_until
from trimtab import RouterAdmin, RouterClient, SyncRouterClient
from trimtab.testing import ScriptedEngine
from trimtab.wire import RetryPolicy

RETRY = RetryPolicy(timeout_s=10.0, horizon_s=60.0, first_delay_s=0.01, max_delay_s=0.1)

pytestmark = pytest.mark.slow


class Gateway:
    """``trimtab serve`` on one port, start after start."""

    def __init__(self, folder: Path, engines: list[ScriptedEngine], settings: str = "") -> None:
        self._config = folder / "trimtab.toml"
        self._log = folder / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]
        addresses = ", ".join(f'"{engine.authority}"' for engine in engines)
        self._config.write_text(
            f'[roles.rollout.models.policy]\nversioned = true\non_ambiguous = "fail_pool"\n{settings}\n'
            f"engines = [{addresses}]\n"
        )

    @property
    def url(self) -> str:
        """Where its lease API is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Spawns it; it is ready some time later."""
        command = [*COMMAND, "--config", str(self._config), "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL: nothing is said to anybody."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)

    def publish(self, version: int) -> dict[str, Any]:
        """What a controller does at its start: waits for the engines, publishes, and acknowledges for the trainer."""
        with RouterAdmin(self.url, retry=RETRY) as admin:
            deadline = time.monotonic() + 30
            while (status := admin.status(since=0))["census"]["eligible"] < 2:
                assert time.monotonic() < deadline, self._log.read_text()
            admin.attach_owner("train")
            admin.publish(f"start-{version}", version)
            admin.ack("train", version)
            return status

    def status(self) -> dict[str, Any]:
        """How its pool stands."""
        with RouterAdmin(self.url, retry=RETRY) as admin:
            return admin.status()


@pytest.fixture
def engines() -> Iterator[list[ScriptedEngine]]:
    """Two engines that run version 1."""
    with ScriptedEngine(weight_version=1) as one, ScriptedEngine(weight_version=1) as two:
        yield [one, two]


async def hold(api: RouterClient, *meanwhile: Callable[[], object]) -> None:
    """One execution, during which something happens."""
    async with api.lease("s"):
        for happens in meanwhile:
            happens()


async def test_a_killed_gateway_adopts_what_its_clients_hold(tmp_path: Path, engines: list[ScriptedEngine]) -> None:
    """SIGKILL under open leases of both kinds of client: no execution is lost, repeated or left counted."""
    gateway = Gateway(tmp_path, engines)
    gateway.start()
    try:
        await asyncio.to_thread(gateway.publish, 1)
        sync = SyncRouterClient(gateway.url, sender="threads/0", owner="train", retry=RETRY)
        await asyncio.to_thread(sync.open)
        async with RouterClient(gateway.url, sender="loop/0", owner="train", retry=RETRY) as api:
            held = [api.lease(f"s{number}") for number in range(4)]
            leases = [await context.__aenter__() for context in held]
            sync_context = sync.lease("t")
            await asyncio.to_thread(sync_context.__enter__)
            gateway.kill()
            late_context = api.lease("late", wait=60)
            waiting = asyncio.create_task(late_context.__aenter__())
            gateway.start()
            status = await asyncio.to_thread(gateway.publish, 1)
            assert status["version"] is None
            assert (await waiting).weight_version == 1
            await late_context.__aexit__(None, None, None)
            for context, lease in zip(held, leases, strict=True):
                lease.settle("completed", output_tokens=10)
                await context.__aexit__(None, None, None)
            await asyncio.to_thread(sync_context.__exit__, None, None, None)
            async with api.lease("s3") as again:
                assert (again.backend_id, again.sticky) == (leases[3].backend_id, True)
            counts = (await asyncio.to_thread(gateway.status))["counts"]
            assert (counts["outcomes"]["completed"], counts["output_tokens"]) == (7, 40)
            assert counts["outstanding"] == 0
        await asyncio.to_thread(sync.close)
    finally:
        gateway.kill()


async def test_recovery_by_restart(tmp_path: Path, engines: list[ScriptedEngine]) -> None:
    """``recovery = "restart"``: what was held is lost, its caller and everybody after it are told."""
    gateway = Gateway(tmp_path, engines, 'recovery = "restart"')
    gateway.start()
    try:
        await asyncio.to_thread(gateway.publish, 1)
        async with RouterClient(gateway.url, sender="loop/0", owner="train", retry=RETRY) as api:
            with pytest.raises(trimtab.RouterRestarted, match="must not be used"):
                await hold(api, gateway.kill, gateway.start)
            with pytest.raises(trimtab.PoolFailed, match="presented after a restart"):
                await hold(api)
        status = await asyncio.to_thread(gateway.status)
        assert status["failure"]["message"].startswith("1 leases that sender loop/0 presented after a restart")
    finally:
        gateway.kill()


async def test_restarts_under_load(tmp_path: Path, engines: list[ScriptedEngine]) -> None:
    """Killed again and again while many tasks acquire and settle: nobody notices, and nothing is left behind."""
    gateway = Gateway(tmp_path, engines)
    gateway.start()
    ended = 0
    done = False
    try:
        await asyncio.to_thread(gateway.publish, 1)

        async def work(api: RouterClient, session: str) -> None:
            nonlocal ended
            while not done:
                async with api.lease(session, wait=60) as lease:
                    assert lease.weight_version == 1
                    await asyncio.sleep(0.001)
                ended += 1
            await api.close_session(session)

        clients = [RouterClient(gateway.url, sender=f"loop/{n}", owner="train", retry=RETRY) for n in range(2)]
        await asyncio.gather(*(api.open() for api in clients))
        tasks = [asyncio.create_task(work(api, f"s{number}")) for api in clients for number in range(6)]
        for _ in range(3):
            enough = ended + 50
            await wait_until(lambda enough=enough: ended >= enough, "executions end", deadline_s=30)  # type: ignore[misc]
            gateway.kill()
            gateway.start()
            await asyncio.to_thread(gateway.publish, 1)
        enough = ended + 50
        await wait_until(lambda: ended >= enough, "executions end", deadline_s=30)
        done = True
        await asyncio.gather(*tasks)
        await asyncio.gather(*(api.close() for api in clients))
        status = await asyncio.to_thread(gateway.status)
        assert (status["state"], status["senders"]) == ("serving", [])
        assert (status["counts"]["outstanding"], status["counts"]["waiters"]) == (0, 0)
        assert (status["counts"]["sessions"], status["counts"]["tombstones"]) == (0, 0)
        assert status["counts"]["outcomes"]["completed"] == sum(status["counts"]["outcomes"].values())
    finally:
        gateway.kill()

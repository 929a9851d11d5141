"""Engines that are killed or stopped as processes, in every step of a fleet's own operations, under traffic.

``test_fleet_matrix.py`` has the faults that one connection shows; this has what only a process can do: die of SIGKILL,
and stand still after SIGSTOP, when it holds its connections and its port and answers nothing. In every cell the
survivor serves, the victim is replaced, a new update reaches everybody, and nothing is left: no process, no block of
ports, no lease.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.manager.fleet.conftest import KEY, QUICK, model_spec
from tests.support.faults import Traffic
from tests.support.waiting import wait_until
from trimtab.spec import EngineGroupSpec, InferenceRoleSpec
from trimtab_manager.fleet import InferenceManager
from trimtab_manager.launch.local import LocalLauncher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trimtab import Pool
    from trimtab.fleet import OperationResult

pytestmark = pytest.mark.slow

SURVIVOR, VICTIM = "policy/0", "policy/1"
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
GROUP = EngineGroupSpec(name="all", replicas=2, engine="sim", server_args={"time-scale": 0.05})
SETTINGS = replace(
    QUICK,
    start_deadline_s=10,
    stop_grace_s=1,
    control_timeout_s=0.5,
    pause_deadline_s=0.5,
    drain_deadline_s=2,
    flush_deadline_s=0.5,
    release_deadline_s=0.5,
    wake_deadline_s=2,
    restart_backoff_s=0.05,
    health_interval_s=0.2,
    health_timeout_s=0.5,
)
HOLD_S = 0.4
"""The victim takes so long for a call, so that the signal reaches it in the middle."""
LIMIT_S = 15.0
"""Above the sum of an operation's deadlines and repetitions, and far below for ever."""
REPLACED_S = 60.0
"""One start that runs into its deadline, and one that does not, on a busy machine."""


@dataclass
class Processes:
    """Two engines of a manager, each a process.

    Attributes:
        run_id: Marks every process of theirs.
        blocks: Every block of ports that an engine of theirs had.
        paused_and_eligible: What the watch saw.
    """

    manager: InferenceManager
    launcher: LocalLauncher
    pool: Pool
    http: aiohttp.ClientSession
    run_id: str
    blocks: set[str] = field(default_factory=set)
    paused_and_eligible: list[str] = field(default_factory=list)

    def url(self, engine: str) -> str:
        """Where it listens."""
        replica = self.manager.fleet("rollout").slot(engine).replica
        assert replica is not None
        return replica.url

    def generation(self, engine: str) -> int:
        """The published incarnation; 0: none is."""
        found = self.manager.topology("rollout").engine(engine)
        return 0 if found is None else found.generation

    def pids(self, incarnation: str | None = None) -> list[int]:
        """Living processes of the launcher, guards left out; or those of an incarnation such as ``policy/1#2``."""
        wanted = {f"TRIMTAB_RUN_ID={self.run_id}".encode()}
        if incarnation is not None:
            wanted.add(f"TRIMTAB_ENGINE={incarnation}".encode())
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                is_marked = folder.name.isdigit() and wanted <= {*(folder / "environ").read_bytes().split(b"\0")}
                if is_marked and b"guard.py" not in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def send(self, number: signal.Signals, incarnation: str) -> None:
        """A signal to the processes of an incarnation."""
        for pid in self.pids(incarnation):
            os.kill(pid, number)

    def blocks_held(self) -> set[str]:
        """Blocks of ports that were given to these engines and are still somebody's."""
        names = Path("/proc/net/unix").read_text()
        return {block for block in self.blocks if f"@trimtab-ports-{block.partition('-')[0]}-" in names}

    async def delayed(self, path: str) -> None:
        """The victim takes its time for the next call of ``path``."""
        fault = {"kind": "delay", "path": path, "delay_s": HOLD_S, "times": 1}
        async with self.http.post(f"{self.url(VICTIM)}/sim/faults", json=fault) as answer:
            assert answer.status == 200

    async def until_called(self, order: asyncio.Future[Any]) -> None:
        """Wait until the delayed call has arrived at the victim."""
        url = self.url(VICTIM)
        while not order.done():
            async with self.http.get(f"{url}/sim/faults") as answer:
                if not (await answer.json())["faults"]:
                    return
        raise AssertionError(f"the call was never sent: {order.result()}")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ask the engines all the time whether they are paused, and the router whether they are eligible."""

        async def watch() -> None:
            while True:
                for engine in (SURVIVOR, VICTIM):
                    await self._look(engine)
                await asyncio.sleep(0.005)

        task = asyncio.ensure_future(watch())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look(self, engine: str) -> None:
        before = self._eligible(engine)
        if before is None:
            return
        timeout = aiohttp.ClientTimeout(total=0.5)
        try:
            async with self.http.get(f"{self.url(engine)}/sim/statistics", timeout=timeout) as answer:
                paused = (await answer.json())["paused"]
        except (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError):
            return
        # Whoever fences and lifts the fence again in between has begun an update in between.
        if paused is not None and self._eligible(engine) == before:
            self.paused_and_eligible.append(f"{engine} is paused ({paused}) and eligible")

    def _eligible(self, engine: str) -> tuple[int, int] | None:
        statistics = self.pool.statistics()
        if statistics.state != "serving" or statistics.server_paused:
            return None
        found = [each.generation for each in statistics.backends if each.id == engine and each.eligible]
        self.blocks |= {
            block for replica in self.manager.fleet("rollout").replicas for block in replica.handle.facts["ports"]
        }
        return (found[0], statistics.generation) if found else None


@asynccontextmanager
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    """Engines that serve version 7; after the block nothing of them is left."""
    role = InferenceRoleSpec(role="rollout", models=(model_spec(group=GROUP),))
    pool = role.models[0].create_pool("rollout/policy")
    launcher = LocalLauncher(tmp_path, stop_grace_s=1)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http,
        InferenceManager([role], pools={KEY: pool}, launchers={"local": launcher}, settings=SETTINGS) as manager,
    ):
        (result,) = await manager.activate()
        assert result.ok, result
        assert (await manager.update_from_disk("rollout", path="sim://weights/7", version=7)).ok
        fleet = Processes(manager, launcher, pool, http, launcher.statistics().run_id)
        yield fleet
        began = time.monotonic()
        await manager.shutdown()
        assert time.monotonic() - began < LIMIT_S
        assert launcher.statistics().engines == ()
        assert fleet.pids() == []
        assert fleet.blocks
        assert fleet.blocks_held() == set()
        assert pool.statistics().outstanding == 0
        assert pool.backends() == []


async def everybody_serves(fleet: Processes, traffic: Traffic) -> None:
    """The victim is replaced, a new update reaches both, and both get requests."""
    await wait_until(lambda: fleet.generation(VICTIM) > 0, "the victim is replaced", deadline_s=REPLACED_S)
    assert (await fleet.manager.undrain("rollout")).ok
    result = await fleet.manager.update_from_disk("rollout", path="sim://weights/8", version=8)
    assert result.ok, result
    assert {each.id for each in fleet.pool.statistics().backends if each.eligible} == {SURVIVOR, VICTIM}
    served = traffic.completed
    await wait_until(lambda: traffic.completed > served + 6, "everybody serves")
    assert traffic.wrong == []
    assert fleet.paused_and_eligible == []


STEPS = {
    "pause": (None, "pause", "/pause_generation", "resume"),
    "resume": ("pause", "resume", "/continue_generation", None),
    "drain": (None, "drain", "/v1/loads", None),
    "sleep": (None, "sleep", "/release_memory_occupation", "wake"),
    "wake": ("sleep", "wake", "/resume_memory_occupation", None),
}
"""What comes before, the operation, its call in which the signal comes, and what undoes it for the others."""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("step", STEPS)
async def test_a_process_that_goes_in_one_step(tmp_path: Path, step: str, number: signal.Signals) -> None:
    """The operation ends in time with a row that says so; the survivor goes on, the victim comes back."""
    before, operation, path, undo = STEPS[step]
    async with processes(tmp_path) as fleet:
        manager = fleet.manager
        orders: dict[str, Callable[[], Awaitable[OperationResult]]] = {
            "pause": lambda: manager.pause("rollout"),
            "resume": lambda: manager.resume("rollout"),
            "drain": lambda: manager.drain("rollout", engine=VICTIM),
            "sleep": lambda: manager.sleep("rollout"),
            "wake": lambda: manager.wake("rollout"),
        }
        traffic = Traffic(fleet)
        async with fleet.watched(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            if before is not None:
                assert (await orders[before]()).ok
            await fleet.delayed(path)
            pids = fleet.pids(f"{VICTIM}#1")
            began = time.monotonic()
            order = asyncio.ensure_future(orders[operation]())
            await fleet.until_called(order)
            fleet.send(number, f"{VICTIM}#1")
            result = await order
            assert time.monotonic() - began < LIMIT_S
            rows = {row.engine: row for row in result.engines}
            assert rows[VICTIM].status != "ok", result
            assert VICTIM in (rows[VICTIM].error or "")
            assert all(row.status == "ok" for engine, row in rows.items() if engine != VICTIM), result
            if undo is not None:
                assert {row.status for row in (await orders[undo]()).engines if row.engine == SURVIVOR} == {"ok"}
            served = traffic.completed
            await wait_until(lambda: traffic.completed > served + 6, "the survivor serves")
            await wait_until(lambda: fleet.generation(VICTIM) != 1, "it is fenced")
            await everybody_serves(fleet, traffic)
            assert not set(pids) & set(fleet.pids())


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_a_process_that_goes_while_it_serves(tmp_path: Path, number: signal.Signals) -> None:
    """No operation: a detector finds it, its requests end, and it is replaced."""
    async with processes(tmp_path) as fleet:
        traffic = Traffic(fleet)
        async with fleet.watched(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            fleet.send(number, f"{VICTIM}#1")
            await wait_until(lambda: fleet.generation(VICTIM) != 1, "it is fenced")
            served = traffic.completed
            await wait_until(lambda: traffic.completed > served + 6, "the survivor serves")
            await everybody_serves(fleet, traffic)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_a_process_that_goes_while_it_starts(tmp_path: Path, number: signal.Signals) -> None:
    """The second incarnation never comes up: it is ended, and the third one serves."""
    async with processes(tmp_path) as fleet:
        traffic = Traffic(fleet)
        async with fleet.watched(), traffic.running():
            fleet.send(signal.SIGKILL, f"{VICTIM}#1")
            await wait_until(lambda: fleet.pids(f"{VICTIM}#2"), "its successor starts", deadline_s=REPLACED_S)
            fleet.send(number, f"{VICTIM}#2")
            await wait_until(lambda: fleet.generation(VICTIM) == 3, "another one serves", deadline_s=REPLACED_S)
            assert fleet.pids(f"{VICTIM}#2") == []
            await everybody_serves(fleet, traffic)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_a_process_that_goes_while_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """A removal ends in time whatever the engine does, and leaves nothing of it; a new one may take its place."""
    async with processes(tmp_path) as fleet:
        traffic = Traffic(fleet)
        async with fleet.watched(), traffic.running():
            await wait_until(lambda: traffic.completed > 6, "sessions run")
            await fleet.delayed("/v1/loads")
            began = time.monotonic()
            removal = asyncio.ensure_future(fleet.manager.remove_engine(VICTIM, "rollout"))
            await wait_until(lambda: fleet.generation(VICTIM) == 0, "it is unpublished")
            fleet.send(number, f"{VICTIM}#1")
            await removal
            assert time.monotonic() - began < LIMIT_S
            assert fleet.pids(f"{VICTIM}#1") == []
            assert (await fleet.manager.scale("rollout", replicas=2)).ok
            await everybody_serves(fleet, traffic)


async def test_a_shutdown_with_a_process_that_stands_still(tmp_path: Path) -> None:
    """The end of the manager waits for nobody who cannot answer; what is left is looked at by the fixture."""
    async with processes(tmp_path) as fleet:
        async with fleet.watched():
            await wait_until(lambda: fleet.blocks, "the watch has looked")
        fleet.send(signal.SIGSTOP, f"{VICTIM}#1")

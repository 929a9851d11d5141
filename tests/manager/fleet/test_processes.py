"""Engines as processes, requests over HTTP through a data plane, and SIGKILL in the middle of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.manager.fleet.conftest import KEY, QUICK, model_spec
from tests.support.waiting import wait_until
from trimtab.spec import EngineGroupSpec, InferenceRoleSpec
from trimtab_manager.fleet import InferenceManager
from trimtab_manager.launch.local import LocalLauncher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.lab import Gateway, Lab

pytestmark = [pytest.mark.slow]

E0, E1, E2 = "policy/0", "policy/1", "policy/2"
SIM = EngineGroupSpec(name="all", replicas=3, engine="sim", server_args={"time-scale": 0.2, "max-running-requests": 8})


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


class Served:
    """Three engines of a manager behind a data plane."""

    def __init__(self, manager: InferenceManager, gateway: Gateway) -> None:
        self.manager = manager
        self.gateway = gateway
        self.answers: list[tuple[int, str | None]] = []

    def pid(self, engine: str) -> int:
        """Of the engine's process."""
        replica = self.manager.fleet("rollout").slot(engine).replica
        assert replica is not None
        return int(replica.handle.facts["pids"][0])

    def generation(self, engine: str) -> int | None:
        """What is published."""
        found = self.manager.topology("rollout").engine(engine)
        return None if found is None else found.generation

    async def load(self, http: aiohttp.ClientSession, session: str) -> None:
        """Turns of one session, until cancelled."""
        body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 30, "ignore_eos": True}}
        headers = {"x-trimtab-session": session, "content-type": "application/json"}
        while True:
            async with http.post(
                f"{self.gateway.url}/rollout/generate", data=json.dumps(body), headers=headers
            ) as answer:
                await answer.read()
                self.answers.append((answer.status, answer.headers.get("x-trimtab-backend")))


@pytest.fixture
async def served(lab: Lab, tmp_path: Path) -> AsyncIterator[Served]:
    """A running fleet of processes."""
    role = InferenceRoleSpec(role="rollout", models=(model_spec(group=SIM),))
    pool = role.models[0].create_pool("rollout/policy")
    gateway = await lab.gateway(pools={KEY: pool}, probe_interval_s=0.2)
    launcher = LocalLauncher(tmp_path / "logs", stop_grace_s=2)
    async with InferenceManager([role], pools={KEY: pool}, launchers={"local": launcher}, settings=QUICK) as manager:
        (result,) = await manager.activate()
        assert result.ok, result
        yield Served(manager, gateway)


async def test_recovery_of_a_killed_engine_under_load(served: Served) -> None:
    """SIGKILL: survivors serve without a pause, every lease settles, and the next generation has the weights."""
    result = await served.manager.update_from_disk("rollout", path="sim://weights/7", version=7)
    assert result.ok, result
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        callers = [asyncio.create_task(served.load(http, f"s{number}")) for number in range(9)]
        try:
            await wait_until(lambda: len({where for _, where in served.answers}) == 3, "all three serve")
            pid = served.pid(E2)
            before = len(served.answers)
            os.kill(pid, signal.SIGKILL)
            await wait_until(lambda: served.generation(E2) is None, "E2 is fenced")
            fenced = len(served.answers)
            await wait_until(lambda: len(served.answers) > fenced + 30, "the survivors serve")
            after_fence = Counter(served.answers[fenced + 9 :])
            assert set(after_fence) <= {(200, E0), (200, E1), (200, E2)}
            await wait_until(lambda: served.generation(E2) == 2, "E2 is replaced", deadline_s=30)
            replaced = len(served.answers)
            http_2 = [asyncio.create_task(served.load(http, f"new{number}")) for number in range(6)]
            callers += http_2
            await wait_until(lambda: (200, E2) in served.answers[replaced:], "E2 serves again")
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
        failed = [answer for answer in served.answers[before:] if answer[0] != 200]
        assert len(failed) <= 9, failed
    await served.gateway.idle()
    assert served.pid(E2) != pid
    backend = next(each for each in served.gateway.pool.statistics().backends if each.id == E2)
    assert (backend.weight_version, backend.eligible) == (7, True)


async def test_a_stopped_engine_is_found_by_its_health_and_killed(lab: Lab, tmp_path: Path) -> None:
    """SIGSTOP: its process lives and answers nothing; the health detector has it replaced, and no process is left."""
    role = InferenceRoleSpec(role="rollout", models=(model_spec(group=replace(SIM, replicas=2)),))
    pool = role.models[0].create_pool("rollout/policy")
    await lab.gateway(pools={KEY: pool}, probe_interval_s=0.2)
    launcher = LocalLauncher(tmp_path / "logs", stop_grace_s=2)
    settings = replace(QUICK, health_interval_s=0.2, health_timeout_s=0.5)
    async with InferenceManager([role], pools={KEY: pool}, launchers={"local": launcher}, settings=settings) as manager:
        served = Served(manager, lab)  # type: ignore[arg-type]  # only pids and generations are asked for
        await manager.activate()
        pid = served.pid(E1)
        os.kill(pid, signal.SIGSTOP)
        await wait_until(lambda: served.generation(E1) == 2, "E1 is replaced", deadline_s=30)
        assert not is_alive(pid)
        assert {backend.id for backend in pool.statistics().backends} == {E0, E1}

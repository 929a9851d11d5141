"""A manager over real SGLang: launch, update, SIGKILL, recovery with the right weights, sleep and wake, and the end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.sglang_cpu.serve import ENVIRONMENT, FLAGS, SWITCHES
from tests.support.sglang_server import START_DEADLINE_S, session_members
from tests.support.waiting import wait_until
from trimtab.spec import EngineGroupSpec, InferenceModelSpec, InferenceRoleSpec, ManagerSpec
from trimtab_manager.fleet import InferenceManager
from trimtab_manager.launch.local import LocalLauncher

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

    from tests.support.lab import Gateway, Lab
    from tests.support.sglang_server import Installation
    from trimtab_manager.fleet import Replica

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(3 * START_DEADLINE_S)]

LAUNCHERS_OWN = ("--host", "--served-model-name")
E0, E1 = "tiny/0", "tiny/1"


def role_of(installation: Installation) -> InferenceRoleSpec:
    """Two engines of the tiny model on the CPU."""
    flags: dict[str, Any] = {flag[2:]: value for flag, value in FLAGS.items() if flag not in LAUNCHERS_OWN}
    flags |= {switch[2:]: True for switch in SWITCHES}
    group = EngineGroupSpec(name="cpu", replicas=2, server_args=flags, env_vars=ENVIRONMENT)
    model = InferenceModelSpec(
        name="tiny",
        model_path=str(installation.models[0]),
        engine_groups=(group,),
        weight_source="trainer",
        elastic_enabled=True,
    )
    return InferenceRoleSpec(role="rollout", models=(model,))


class Scene:
    """A manager, its data plane, and a client."""

    def __init__(self, manager: InferenceManager, gateway: Gateway, http: aiohttp.ClientSession) -> None:
        self.manager = manager
        self.gateway = gateway
        self.http = http

    def replica(self, engine: str) -> Replica:
        """A published engine."""
        replica = self.manager.fleet("rollout").slot(engine).replica
        assert replica is not None
        return replica

    def pid(self, engine: str) -> int:
        """Its main process."""
        return int(self.replica(engine).handle.facts["pids"][0])

    async def generate(self, url: str) -> tuple[list[int], str, str | None]:
        """Greedy tokens, the engine's word for its version, and which engine it was."""
        body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}}
        async with self.http.post(f"{url}/generate", json=body) as answer:
            document = await answer.json()
            assert answer.status == 200, document
            meta = document["meta_info"]
            return document["output_ids"], meta["weight_version"], answer.headers.get("x-trimtab-backend")

    async def through_gateway(self, count: int) -> list[tuple[list[int], str, str | None]]:
        """So many requests, one after another."""
        return [await self.generate(f"{self.gateway.url}/rollout") for _ in range(count)]


async def test_a_manager_over_real_engines(
    lab: Lab, sglang_installation: Installation, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The whole life of two engines; what the killed one's successor generates is what the survivor generates."""
    role = role_of(sglang_installation)
    pool = role.models[0].create_pool("rollout/tiny")
    gateway = await lab.gateway(pools={("rollout", "tiny"): pool}, probe_interval_s=0.5)
    launcher = LocalLauncher(tmp_path, python=str(sglang_installation.python), stop_grace_s=5)
    settings = ManagerSpec(start_deadline_s=START_DEADLINE_S, stop_grace_s=10, drain_deadline_s=60)
    async with InferenceManager(
        [role], pools={("rollout", "tiny"): pool}, launchers={"local": launcher}, settings=settings
    ) as manager:
        (result,) = await manager.activate()
        assert result.ok, result
        scene = Scene(manager, gateway, http)
        before = await scene.through_gateway(4)
        assert {engine for _, _, engine in before} == {E0, E1}

        result = await manager.update_from_disk("rollout", path=str(sglang_installation.models[1]), version=7)
        assert result.ok, result
        updated = await scene.through_gateway(4)
        assert {version for _, version, _ in updated} == {"7"}
        (tokens,) = {tuple(tokens) for tokens, _, _ in updated}
        assert tokens != tuple(before[0][0])

        pids = {engine: scene.pid(engine) for engine in (E0, E1)}
        members = session_members(pids[E1])
        os.kill(pids[E1], signal.SIGKILL)
        await wait_until(lambda: manager.topology("rollout").engine(E1) is None, "the dead engine is fenced")
        during = await scene.through_gateway(20)
        assert {engine for _, _, engine in during} == {E0}

        def replaced() -> bool:
            engine = manager.topology("rollout").engine(E1)
            return engine is not None and engine.generation == 2

        await wait_until(replaced, "the dead engine is replaced", deadline_s=START_DEADLINE_S)
        assert not [member for member in members if member in session_members(pids[E1])]
        after = await scene.through_gateway(6)
        assert {engine for _, _, engine in after} == {E0, E1}
        assert {(tuple(generated), version) for generated, version, _ in after} == {(tokens, "7")}
        assert await scene.generate(scene.replica(E1).url) == (list(tokens), "7", None)

        slept = await asyncio.gather(manager.sleep("rollout"), manager.sleep("rollout"))
        assert slept[0].ok, slept[0]
        assert pool.statistics().model_state == "sleeping"
        woken = await manager.wake("rollout")
        assert woken.ok, woken
        awake = await scene.through_gateway(4)
        assert {(tuple(generated), version) for generated, version, _ in awake} == {(tokens, "7")}

        last = [scene.pid(engine) for engine in (E0, E1)]
    await gateway.idle()
    assert [session_members(pid) for pid in last] == [[], []]
    assert pool.backends() == []

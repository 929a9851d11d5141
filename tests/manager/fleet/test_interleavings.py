"""Random interleavings of orders and requests over engines that die of misuse, as SGLang does: none of them dies."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.manager.fleet.conftest import running_fleet
from tests.support.waiting import wait_until
from trimtab.errors import TrimtabError
from trimtab_manager.engine.client import EngineClient

if TYPE_CHECKING:
    from tests.manager.fleet.conftest import Fleet

SEEDS = range(12)
ORDERS = 14
BODY = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}}


class Trial:
    """One fleet, its requests, and whoever gives it orders."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.random = random.Random(seed)
        self.version = 0
        self.served = 0
        self.wrong: list[str] = []

    async def request(self) -> None:
        """Requests one after another, each under a lease; an answer of other weights than the lease's is wrong."""
        clients: dict[str, EngineClient] = {}
        try:
            while True:
                await asyncio.sleep(0.001)
                try:
                    lease = self.fleet.pool.acquire()
                except TrimtabError:
                    continue
                client = clients.setdefault(lease.url, EngineClient(lease.url))
                outcome = "cancelled"
                try:
                    text = await client.transport.succeed("POST", "/generate", BODY, timeout_s=10)
                    meta = client.transport.json("POST /generate", text)["meta_info"]
                    is_aborted = meta["finish_reason"]["type"] == "abort"
                    outcome = "aborted" if is_aborted else "completed"
                    self.served += not is_aborted
                    if lease.weight_version is not None and meta["weight_version"] != str(lease.weight_version):
                        self.wrong.append(f"{meta['weight_version']} under a lease of {lease.weight_version}")
                except TrimtabError as error:
                    outcome = "failed"
                    self.wrong.append(str(error))
                finally:
                    lease.settle(outcome)  # type: ignore[arg-type]  # one of them
        finally:
            for client in clients.values():
                await client.close()

    async def order(self) -> None:
        """One random order; what does not fit is refused, and that is all that may happen."""
        manager = self.fleet.manager
        engine = self.random.choice([*self.fleet.fleet.slots])
        self.version += 1
        orders: list[Any] = [
            lambda: manager.sleep("rollout"),
            lambda: manager.wake("rollout"),
            lambda: manager.wake("rollout", tags=["weights"]),
            lambda: manager.pause("rollout", mode=self.random.choice(["abort", "in_place"])),
            lambda: manager.resume("rollout"),
            lambda: manager.flush("rollout"),
            lambda: manager.update_from_disk("rollout", path=f"sim://weights/{self.version}", version=self.version),
            lambda: manager.drain("rollout", engine=engine),
            lambda: manager.undrain("rollout", engine=engine),
            lambda: manager.scale("rollout", replicas=self.random.randint(1, 4)),
        ]
        try:
            await self.random.choice(orders)()
        except TrimtabError:
            return


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_engine_dies_of_any_interleaving(seed: int) -> None:
    """Orders overlap as they like; afterwards the model serves with every engine, and none was ever replaced."""
    async with running_fleet(3) as fleet:
        trial = Trial(fleet, seed)
        requests = [asyncio.create_task(trial.request()) for _ in range(4)]
        orders: set[asyncio.Task[None]] = set()
        try:
            for _ in range(ORDERS):
                orders.add(asyncio.create_task(trial.order()))
                await asyncio.sleep(trial.random.choice([0, 0.002, 0.05]))
            await asyncio.gather(*orders)
            for recover in (fleet.manager.wake, fleet.manager.resume, fleet.manager.undrain):
                try:
                    result = await recover("rollout")
                except TrimtabError:
                    continue
                assert result.ok, result
            served = trial.served
            await wait_until(lambda: trial.served > served + 8, "it serves")
        finally:
            for task in (*orders, *requests):
                task.cancel()
            await asyncio.gather(*orders, *requests, return_exceptions=True)
        assert trial.wrong == []
        assert set(fleet.published().values()) <= {1}
        assert fleet.eligible() == set(fleet.published())

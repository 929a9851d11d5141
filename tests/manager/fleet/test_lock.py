"""The lock of a fleet: updates refuse each other and wait for everything else."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.manual_time import ManualTime
from trimtab.errors import UpdateInProgress
from trimtab_manager.fleet.lock import FleetLock


async def test_a_second_update_is_refused_with_holder_and_age() -> None:
    """It does not wait, and says whom it would wait for."""
    time = ManualTime()
    lock = FleetLock("rollout/policy", clock=time.clock)
    async with lock.held_for_update("update to 7"):
        await time.advance(3)
        with pytest.raises(UpdateInProgress, match=r"update to 8 is refused, 'update to 7' has been running for 3.0 s"):
            async with lock.held_for_update("update to 8"):
                pass
    assert lock.holder is None


async def test_an_update_waits_for_a_publication_and_a_publication_for_an_update() -> None:
    """Whoever comes first goes first; the lock is free after an error."""
    lock = FleetLock("rollout/policy")
    order = []

    async def update() -> None:
        async with lock.held_for_update("update"):
            order.append("update")
            raise ValueError

    async def publish() -> None:
        async with lock.held("publication"):
            order.append("publication")

    async with lock.held("replacement"):
        tasks = [asyncio.create_task(update()), asyncio.create_task(publish())]
        await asyncio.sleep(0)
        assert order == []
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["update", "publication"]
    assert isinstance(results[0], ValueError)
    assert lock.holder is None

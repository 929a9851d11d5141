"""Clients and a controller over a network that loses and repeats every fifth message, while the weights change."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from tests.router.conftest import FAST, KEY, RunningRouter
from tests.support.relay import Action, Relay, answering, lose_reply, lose_request, repeated
from tests.support.waiting import wait_until
from trimtab import RouterAdmin, RouterClient

SENDERS, TASKS, UPDATES = 3, 8, 4
TROUBLES: tuple[Action, ...] = (lose_reply, lose_request, repeated, answering("502 Bad Gateway"))


@dataclass
class Run:
    """What everybody sees: the version that tokens carry now, and which one each execution carried."""

    chance: random.Random
    version: int = 1
    done: bool = False
    ended: list[int] = field(default_factory=list)

    async def work(self, api: RouterClient, session: str) -> None:
        """Runs one execution after the other; the version does not change while one runs."""
        while not self.done:
            async with api.lease(session, wait=30) as lease:
                assert lease.weight_version == self.version
                for _ in range(self.chance.randrange(3)):
                    await asyncio.sleep(0)
                assert lease.weight_version == self.version
                self.ended.append(self.version)

    async def control(self, admin: RouterAdmin) -> None:
        """Updates the weights again and again, each time after some executions on the version before."""
        for version in range(2, 2 + UPDATES):
            enough = len(self.ended) + 20
            await wait_until(lambda enough=enough: len(self.ended) >= enough, "executions end")  # type: ignore[misc]
            update = f"u-{version}"
            await asyncio.to_thread(admin.begin_update, update, to=version)
            await asyncio.to_thread(admin.drain, update, timeout=30)
            await asyncio.to_thread(admin.end_server_pause, update)
            # Nothing runs between the drain and the acknowledgement, so the label may change anywhere in between.
            self.version = version
            await asyncio.to_thread(admin.publish, update, version)
            await asyncio.to_thread(admin.ack, "train", version)
        self.done = True


@pytest.mark.slow
async def test_nothing_is_lost_or_done_twice(router: RunningRouter, relay: Relay) -> None:
    """Every execution carries the version of its time and is settled once; every table is empty at the end."""
    chance = random.Random(20)
    relay.otherwise = lambda _: chance.choice(TROUBLES) if chance.random() < 0.2 else None
    run = Run(chance)
    clients = [
        RouterClient(relay.url, sender=f"rollout/{number}", owner="train", key=KEY, retry=FAST)
        for number in range(SENDERS)
    ]
    sessions = [f"s{number}" for number in range(TASKS)]
    await asyncio.gather(*(api.open() for api in clients))
    with RouterAdmin(relay.url, key=KEY, retry=FAST) as admin:
        await asyncio.gather(run.control(admin), *(run.work(api, session) for api in clients for session in sessions))
    await asyncio.gather(*(api.close_session(session) for api in clients for session in sessions))
    # Whoever leaves makes one attempt, which shall arrive.
    relay.otherwise = lambda _: None
    await asyncio.gather(*(api.close() for api in clients))
    statistics = router.pool.statistics()
    assert set(run.ended) >= set(range(1, 1 + UPDATES))
    assert statistics.outcomes["completed"] == sum(statistics.outcomes.values()) == len(run.ended)
    assert (statistics.outstanding, statistics.sessions, statistics.waiters) == (0, 0, 0)
    assert (statistics.senders, statistics.tombstones, statistics.state) == ([], 0, "serving")

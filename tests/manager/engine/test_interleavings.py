"""Random orders at random moments against an engine that dies of every misuse."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.manager.engine.kit import SIM, controlled
from trimtab.errors import InvalidTransition
from trimtab_manager.engine.states import Dead, Draining, Ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.manager.engine.kit import Controlled
    from trimtab_manager.engine.engine import SGLangEngine
    from trimtab_manager.engine.types import PauseMode

ENGINES = 20
ROUNDS = 50
"""So many engines live through so many interleavings each: 1,000 in all."""

ACTIONS = 8

MODES: tuple[PauseMode, ...] = ("abort", "in_place", "retract")


async def restore(engine: SGLangEngine) -> None:
    """Loads the weights that the sleep lost."""
    await engine.client.update_from_disk("sim://weights/0", "1", flush=False)


class Round:
    """One interleaving: eight actions that begin at random moments, and what they may fail with."""

    def __init__(self, lab: Controlled, rng: random.Random) -> None:
        self.lab = lab
        self.rng = rng

    async def run(self) -> None:
        """All of it, to its end."""
        engine = self.lab.engine
        choices: list[Callable[[], Awaitable[object]]] = [
            lambda: self.lab.request(self.rng.randrange(1, 30)),
            lambda: self.lab.request(self.rng.randrange(1, 30)),
            engine.deactivate,
            engine.activate,
            lambda: engine.activate(["weights"]),
            lambda: engine.activate(["kv_cache", "cuda_graph"]),
            engine.drain,
            lambda: engine.drain(policy="abort"),
            engine.cancel_drain,
            engine.client.abort_all,
            self.update,
        ]
        await asyncio.gather(*[self.later(self.rng.choice(choices)) for _ in range(ACTIONS)])

    async def later(self, action: Callable[[], Awaitable[object]]) -> None:
        """At a random moment; an order that does not fit the state is refused, nothing else goes wrong."""
        for _ in range(self.rng.randrange(40)):
            await asyncio.sleep(0)
        with suppress(InvalidTransition):
            await action()

    async def update(self) -> None:
        """Pause, load, continue, as an update of the weights does it."""
        engine, mode = self.lab.engine, self.rng.choice(MODES)
        await engine.pause(mode)
        try:
            if isinstance(engine.state, Ready | Draining):
                await engine.client.update_from_disk("sim://weights/0", "1", flush=False)
        finally:
            await engine.resume()


async def settle(lab: Controlled) -> None:
    """Back to serving, by the orders that fit."""
    engine = lab.engine
    if isinstance(engine.state, Draining):
        await engine.cancel_drain()
    await engine.activate()
    await engine.resume()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(ENGINES))
async def test_b19_random_interleavings_kill_no_engine(seed: int) -> None:
    """50 interleavings of requests, sleep, wake, update, drain and abort; afterwards it serves every time."""
    rng = random.Random(seed)
    config = replace(SIM, memory_saver=True, weight_load_s=0.1)
    async with controlled(config, restore=restore) as lab:
        await lab.engine.activate()
        for number in range(ROUNDS):
            await Round(lab, rng).run()
            assert lab.sim.crashed is None, f"round {number}"
            assert not isinstance(lab.engine.state, Dead), lab.engine.state
            await settle(lab)
            assert lab.gate.is_open
            assert await lab.request(2) == "length"

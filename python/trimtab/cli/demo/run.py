"""One demo from start to summary."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from trimtab.cli.demo.driver import Driver
from trimtab.cli.demo.fleet import Fleet, running_fleet
from trimtab.cli.demo.frame import EngineRow, Frame
from trimtab.cli.demo.reconcile import Counts, find_disagreements, find_moves
from trimtab.cli.demo.summary import Summary
from trimtab.cli.demo.tally import Tally
from trimtab.cli.demo.view import watching
from trimtab.cli.demo.workload import WorkloadConfig, plan_sessions

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["DemoConfig", "run_demo"]

SESSIONS_PER_CAPACITY = 1.2
"""Sessions in flight per unit of capacity. With the tools' pauses most slots are busy and not all, so that a poor
choice of engine shows: as idle slots here and a queue there."""

LONGEST_TAIL_S = 3.0
"""New sessions stop this long before the end, or a quarter of a shorter run: about the length of a long session."""

SETTLE_DEADLINE_S = 5.0


@dataclass(frozen=True)
class DemoConfig:
    """What the command line asked for.

    Attributes:
        engines: Number of simulated engines.
        seconds: Length of the run; the last sessions may end a little later.
        seed: Seed of the workload.
    """

    engines: int
    seconds: int
    seed: int

    @property
    def admit_s(self) -> float:
        """How long new sessions start."""
        return self.seconds - min(LONGEST_TAIL_S, self.seconds / 4)


async def run_demo(config: DemoConfig, console: Console) -> Summary:
    """Start the fleet, drive the sessions through it, stop everything and return what came out."""
    workload = WorkloadConfig()
    console.print(f"Starting {config.engines} simulated engines and the gateway ...", highlight=False)
    async with running_fleet(config.engines, vocabulary=workload.vocabulary, seed=config.seed) as fleet:
        console.print(f"The gateway listens on {fleet.url}; sessions run for {config.seconds:g} s.\n", highlight=False)
        tally = Tally.over([engine.name for engine in fleet.engines])
        # No limits of its own: a request that waits in the client would not be the router's doing.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
            driver = Driver(
                http,
                f"{fleet.url}/generate",
                plans=plan_sessions(workload, config.seed),
                tally=tally,
                close_session=fleet.close_session,
                vocabulary=workload.vocabulary,
            )
            elapsed_s = await _drive(driver, config, fleet, tally, console)
        await fleet.settled(SETTLE_DEADLINE_S)
        return _conclude(fleet, tally, elapsed_s)


async def _drive(driver: Driver, config: DemoConfig, fleet: Fleet, tally: Tally, console: Console) -> float:
    """Run the sessions under the view; return the seconds from the first request to the last answer."""
    clock = asyncio.get_running_loop().time
    window = max(1, round(SESSIONS_PER_CAPACITY * sum(engine.capacity for engine in fleet.engines)))
    began = clock()
    async with watching(console, lambda: _frame(config, fleet, tally, clock() - began)):
        await driver.run(window=window, admit_s=config.admit_s)
        return clock() - began


def _frame(config: DemoConfig, fleet: Fleet, tally: Tally, elapsed_s: float) -> Frame:
    """Return this moment: load and sessions as the gateway sees them, tokens as the clients counted them."""
    standing = fleet.standing()
    return Frame(
        elapsed_s=elapsed_s,
        total_s=config.seconds,
        admitting=elapsed_s < config.admit_s,
        rows=tuple(
            EngineRow(
                engine=engine.name,
                capacity=engine.capacity,
                outstanding=standing[engine.name].outstanding,
                sessions=standing[engine.name].sessions,
                output_tokens=tally.engines[engine.name].output_tokens,
                cached_share=tally.engines[engine.name].cached_share,
                state="draining" if standing[engine.name].draining else standing[engine.name].health,
            )
            for engine in fleet.engines
        ),
        sessions_live=tally.sessions_live,
        sessions_done=tally.sessions_done,
        requests=tally.requests,
        errors=tally.errors,
        moves=tally.moves,
    )


def _conclude(fleet: Fleet, tally: Tally, elapsed_s: float) -> Summary:
    """Compare the books and sum up."""
    books = {
        "clients": {name: Counts(engine.requests, engine.output_tokens) for name, engine in tally.engines.items()},
        "gateway": fleet.gateway_book(),
        "engines": fleet.engine_book(),
    }
    return Summary.of(
        tally,
        [engine.capacity for engine in fleet.engines],
        elapsed_s=elapsed_s,
        leases_open=fleet.leases_open(),
        spilled=fleet.spilled(),
        disagreements=find_disagreements(books) + find_moves(fleet.engine_sessions(), tally.moved),
    )

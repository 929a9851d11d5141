"""Keeps a window of sessions in flight until the time is up, then lets them finish.

The window is closed-loop, as a trainer's is: when a session ends the next one starts. Admission stops a little before
the deadline because a session that has begun always runs to its end; stopping by length instead would favour short
sessions and flatter the balance.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab.cli.demo.answer import TurnError
from trimtab.cli.demo.client import send_turn
from trimtab.cli.demo.workload import seeded, token_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import aiohttp

    from trimtab.cli.demo.tally import Tally
    from trimtab.cli.demo.workload import SessionPlan

__all__ = ["Driver"]


class Driver:
    """Runs planned sessions against one gateway.

    Args:
        http: The client that holds the connections.
        url: Address of the gateway's ``/generate``.
        plans: Sessions to run, in order; without end.
        tally: Where every answer is counted.
        close_session: Called with the key of every session that ended.
        vocabulary: Token ids are below this.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        *,
        plans: Iterator[SessionPlan],
        tally: Tally,
        close_session: Callable[[str], object],
        vocabulary: int,
    ) -> None:
        self._http = http
        self._url = url
        self._plans = plans
        self._tally = tally
        self._close_session = close_session
        self._vocabulary = vocabulary

    async def run(self, *, window: int, admit_s: float) -> None:
        """Run ``window`` sessions at a time, starting new ones for ``admit_s`` seconds; return when all have ended.

        When it is cancelled or a session raises, it cancels every session and waits for them before it raises.
        """
        stop_at = asyncio.get_running_loop().time() + admit_s
        lanes = [asyncio.ensure_future(self._run_lane(stop_at)) for _ in range(window)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    async def _run_lane(self, stop_at: float) -> None:
        """Run one session after the other."""
        clock = asyncio.get_running_loop().time
        while clock() < stop_at:
            await self._run_session(next(self._plans))

    async def _run_session(self, plan: SessionPlan) -> None:
        """Run the turns of one session; a failed turn ends it, since the next one would build on nothing."""
        tally = self._tally
        tally.sessions_started += 1
        context = token_ids(seeded(plan.prompt_seed), plan.prompt_tokens, self._vocabulary)
        tool = seeded(plan.key)
        try:
            for turn in plan.turns:
                context += token_ids(tool, turn.added_tokens, self._vocabulary)
                tally.requests += 1
                result = await send_turn(
                    self._http,
                    self._url,
                    session=plan.key,
                    input_ids=context,
                    output_tokens=turn.output_tokens,
                    stream=turn.stream,
                )
                tally.record(plan.key, result)
                context += result.output_ids
                await asyncio.sleep(turn.pause_s)
        except TurnError as failure:
            tally.failures[str(failure)] += 1
        else:
            tally.sessions_done += 1
        finally:
            self._close_session(plan.key)

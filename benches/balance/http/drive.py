"""The same sessions over HTTP: what ``simulate`` does in virtual time, against real servers in scaled time."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from benches.balance.simulate import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benches.balance.workload import SessionPlan, Workload

TURN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Target:
    """Where requests go.

    Attributes:
        engines: The engines' addresses, whose statistics count.
        router: The router's address; ``None`` sends each task id to an engine in turn.
        finish: Path at the router that is told when a session is over, with the session appended.
    """

    engines: tuple[str, ...]
    router: str | None = None
    finish: str | None = None

    def url(self, plan: SessionPlan) -> str:
        """Where the requests of a session go."""
        return self.router or self.engines[plan.task % len(self.engines)]


async def drive(workload: Workload, target: Target, time_scale: float) -> Run:
    """Run the workload to its end. All times of the result are modelled seconds.

    Raises:
        RuntimeError: A turn was not answered with 200, or with other than its tokens.
    """
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=TURN_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        return await _Drive(workload, target, time_scale, client).run()


class _Drive:
    def __init__(self, workload: Workload, target: Target, time_scale: float, client: aiohttp.ClientSession) -> None:
        self._workload = workload
        self._target = target
        self._scale = time_scale
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._turns: list[float] = []
        self._groups: list[float] = []

    async def run(self) -> Run:
        window = asyncio.Semaphore(self._workload.window)
        durations = await asyncio.gather(*(self._group(group, window) for group in self._workload.groups))
        makespan_s = self._now_s()
        engines = [await self._statistics(engine) for engine in self._target.engines]
        return Run(
            makespan_s=makespan_s,
            durations_s=tuple(duration for group in durations for duration in group),
            turns_s=tuple(self._turns),
            output_tokens=tuple(engine["generated_tokens"] for engine in engines),
            lost_tokens=0,
            prompt_tokens=sum(engine["prompt_tokens"] for engine in engines),
            cached_tokens=sum(engine["cached_tokens"] for engine in engines),
            busy_s=(),
            moved=0,
            retractions=0,
            groups_s=tuple(self._groups),
        )

    async def _group(self, group: Sequence[SessionPlan], window: asyncio.Semaphore) -> list[float]:
        # Waiters of a semaphore are served in order: groups start in theirs.
        async with window:
            durations = await asyncio.gather(*(self._session(plan) for plan in group))
            self._groups.append(self._now_s())
            return durations

    async def _session(self, plan: SessionPlan) -> float:
        submitted_s = self._now_s()
        await asyncio.sleep(plan.start_s * self._scale)
        rng = random.Random(plan.name)
        context = _tokens(random.Random("shared"), plan.shared_tokens)
        context += _tokens(random.Random(f"task-{plan.task}"), plan.task_tokens)
        ended_s = submitted_s
        for number, turn in enumerate(plan.turns):
            if number:
                await asyncio.sleep(plan.turns[number - 1].tool_s * self._scale)
            context += _tokens(rng, turn.prompt_tokens - len(context))
            asked_s = self._now_s()
            context += await self._generate(plan, context, turn.output_tokens)
            ended_s = self._now_s()
            self._turns.append(ended_s - asked_s)
        if self._target.finish is not None and self._target.router is not None:
            async with self._client.post(self._target.router + self._target.finish + plan.name) as response:
                await response.read()
        return ended_s - submitted_s

    async def _generate(self, plan: SessionPlan, context: list[int], output: int) -> list[int]:
        url = self._target.url(plan) + "/generate"
        sampling = {"max_new_tokens": output, "ignore_eos": True, "temperature": 0}
        body = json.dumps({"input_ids": context, "sampling_params": sampling})
        # Each router has a name of its own for the session; the gateway's bench sends both, too.
        names = {"X-Session-ID": plan.name, "X-SMG-Routing-Key": plan.name, "Content-Type": "application/json"}
        async with self._client.post(url, data=body, headers=names) as response:
            text = await response.text()
            if response.status != 200:
                raise RuntimeError(f"{plan.name} at {url}: {response.status} {text[:200]}")
        answer: dict[str, Any] = json.loads(text)
        made: list[int] = answer["output_ids"]
        if len(made) != output:
            raise RuntimeError(f"{plan.name} at {url}: {len(made)} tokens instead of {output}: {answer['meta_info']}")
        return made

    async def _statistics(self, engine: str) -> dict[str, Any]:
        async with self._client.get(engine + "/sim/statistics") as response:
            found: dict[str, Any] = await response.json()
            return found

    def _now_s(self) -> float:
        return (self._loop.time() - self._began) / self._scale


def _tokens(rng: random.Random, count: int) -> list[int]:
    """Plain bytes: ids that no engine takes for special ones."""
    return list(rng.randbytes(max(count, 0)))

"""The engine under contract, simulated or real: one client for both."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.waiting import wait_until
from trimtab_manager.sim import SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SLOW_STEP_S = 0.03
"""Sleep before every step that makes a request last: about 25 tokens per second."""

GREEDY = {"temperature": 0, "ignore_eos": True}


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    content_type: str | None
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The events of a stream as JSON; the stream must end with ``[DONE]``."""
        *events, last, rest = self.text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]


class Target:
    """An engine at a URL with two sets of weights at hand; ``models[0]`` is loaded."""

    def __init__(self, url: str, models: tuple[str, str], http: aiohttp.ClientSession) -> None:
        self.url = url
        self.models = models
        self.http = http

    async def call(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        """One request; a body is sent as JSON unless ``data`` says otherwise."""
        if body is not None:
            options["json"] = body
        async with self.http.request(method, self.url + path, **options) as response:
            text = (await response.read()).decode()
            return Answer(response.status, response.headers.get("content-type"), dict(response.headers), text)

    async def get(self, path: str) -> Answer:
        """GET."""
        return await self.call("GET", path)

    async def post(self, path: str, body: object = None) -> Answer:
        """POST with a JSON body, or with none."""
        return await self.call("POST", path, body)

    async def generate(self, tokens: int = 4, **fields: Any) -> Answer:
        """``/generate`` of ``tokens`` greedy tokens on a short prompt; ``fields`` override the body."""
        params = {"max_new_tokens": tokens, **GREEDY, **fields.pop("params", {})}
        prompt = {} if fields.keys() & {"text", "input_ids"} else {"input_ids": [1, 2, 3]}
        return await self.post("/generate", {**prompt, "sampling_params": params, **fields})

    async def chat(self, tokens: int = 4, **fields: Any) -> Answer:
        """``/v1/chat/completions`` of ``tokens`` greedy tokens; ``fields`` override the body."""
        messages = [{"role": "user", "content": "hi"}]
        body = {"model": "any", "messages": messages, "max_tokens": tokens, **GREEDY, **fields}
        return await self.post("/v1/chat/completions", body)

    async def complete(self, tokens: int = 4, **fields: Any) -> Answer:
        """``/v1/completions`` of ``tokens`` greedy tokens; ``fields`` override the body."""
        body = {"model": "any", "prompt": "a", "max_tokens": tokens, **GREEDY, **fields}
        return await self.post("/v1/completions", body)

    async def slow_down(self) -> None:
        """Make requests last: from now on a token takes ``SLOW_STEP_S`` at least."""
        assert (await self.post("/slow_down", {"forward_sleep_time": SLOW_STEP_S})).status == 200

    async def speed_up(self) -> None:
        """End ``slow_down``."""
        assert (await self.post("/slow_down", {"forward_sleep_time": None})).status == 200

    async def pause(self, mode: str) -> None:
        """Pause, which must succeed."""
        assert (await self.post("/pause_generation", {"mode": mode})).status == 200

    async def resume(self) -> None:
        """Continue, which must succeed."""
        assert (await self.post("/continue_generation", {})).status == 200

    async def load(self) -> dict[str, Any]:
        """The one entry of ``/v1/loads``."""
        (load,) = (await self.get("/v1/loads")).json["loads"]
        assert isinstance(load, dict)
        return load

    async def until_load(self, running: int, waiting: int = 0) -> None:
        """Wait until the engine says that so many requests run and wait."""
        seen: tuple[int, int] | None = None

        async def look() -> None:
            nonlocal seen
            while seen != (running, waiting):
                load = await self.load()
                seen = (load["num_running_reqs"], load["num_waiting_reqs"])

        try:
            await asyncio.wait_for(look(), 20)
        except asyncio.TimeoutError:
            raise AssertionError(f"{running} running and {waiting} waiting never came; last seen: {seen}") from None

    @asynccontextmanager
    async def stream(self, tokens: int, *, begun: bool = True, **fields: Any) -> AsyncIterator[Stream]:
        """A ``/generate`` stream in progress: its first event has come, or only its head when not ``begun``."""
        body = {"input_ids": [1, 2, 3], "stream": True, "sampling_params": {"max_new_tokens": tokens, **GREEDY}}
        async with self.http.post(f"{self.url}/generate", json={**body, **fields}) as response:
            stream = Stream(response)
            if begun:
                await stream.next()
            yield stream


class Stream:
    """Events of a response as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last: Any = None

    async def next(self) -> Any:
        """The next event as JSON, or ``None`` for ``[DONE]``."""
        line = await self._response.content.readuntil(b"\n\n")
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return None
        self.last = json.loads(data)
        return self.last

    async def rest(self) -> Any:
        """Read to the end; the last event before ``[DONE]``."""
        while await self.next() is not None:
            pass
        return self.last


@asynccontextmanager
async def client(url: str, models: tuple[str, str]) -> AsyncIterator[Target]:
    """A target without a limit on connections, so that no request waits in the client."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield Target(url, models, http)


@asynccontextmanager
async def simulated(folder: Path, **fields: Any) -> AsyncIterator[Target]:
    """A simulated engine of the size of the real one of the tests."""
    models = (folder / "weights-0", folder / "weights-1")
    for model in models:
        model.mkdir()
    config = SimConfig(
        model_name="tiny",
        model_path=str(models[0]),
        max_running_requests=8,
        max_total_tokens=16_384,
        context_length=2_048,
        time_scale=0.1,
        **fields,
    )
    async with running_engine(config) as server, client(server.url, (str(models[0]), str(models[1]))) as target:
        yield target


async def finished(task: asyncio.Task[Answer], what: str) -> Answer:
    """The answer of a request that must come now."""
    await wait_until(task.done, what, deadline_s=20)
    return task.result()

"""Trajectories that live through an update of weights, and the update itself in the order of AReaL's training step.

The same code drives simulated engines and real SGLang servers, over HTTP only. A trajectory does what a rollout worker
does: it sends its context, and when the engine aborts the request it sends what it has so far again, to a new lease. It
never sends anything twice, and whatever is not an answer of an engine fails the test.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.serve import eventually
from tests.support.sglang_traffic import greedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aiohttp

    from trimtab import RouterAdmin, RouterClient

OWNER = "train"
WAIT_S = 60


@dataclass(frozen=True)
class Segment:
    """One request of a trajectory: what it sent, what came back, and what the lease said.

    Attributes:
        rid: The id the engine knows it by.
        context: Token ids that were sent.
        tokens: Token ids that came back.
        labels: The engine's version label of each of ``tokens``.
        version: The weight version of the lease.
        aborted: Whether the engine aborted it.
    """

    rid: str
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    version: int
    aborted: bool


@dataclass
class Trajectory:
    """One session that wants ``length`` tokens, in as many segments as it takes."""

    session: str
    prompt: tuple[int, ...]
    length: int
    segments: list[Segment] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All that came back so far."""
        return tuple(token for segment in self.segments for token in segment.tokens)

    async def proxied(self, http: aiohttp.ClientSession, role_url: str) -> None:
        """Run to its end through the gateway, which waits for the end of an update (``x-trimtab-wait``)."""
        headers = {"x-trimtab-session": self.session, "x-trimtab-wait": str(WAIT_S)}
        while len(self.tokens) < self.length:
            async with http.post(f"{role_url}/generate", json=self._body(), headers=headers) as answer:
                assert answer.status == 200, (answer.status, await answer.text())
                self._take(await answer.json(), int(answer.headers["x-trimtab-weight-version"]))

    async def direct(self, http: aiohttp.ClientSession, router: RouterClient) -> None:
        """Run to its end on engines that the router names, one lease for each request."""
        while len(self.tokens) < self.length:
            async with router.lease(self.session, wait=WAIT_S) as lease:
                async with http.post(f"{lease.url}/generate", json=self._body()) as answer:
                    assert answer.status == 200, (answer.status, await answer.text())
                    document = await answer.json()
                assert lease.weight_version is not None
                segment = self._take(document, lease.weight_version)
                lease.settle(
                    "aborted" if segment.aborted else "completed",
                    output_tokens=len(segment.tokens),
                    observed_weight_version=lease.weight_version,
                )
        await router.close_session(self.session)

    def _body(self) -> dict[str, Any]:
        rid = f"{self.session}.{len(self.segments)}"
        return greedy((*self.prompt, *self.tokens), self.length - len(self.tokens), rid=rid)

    def _take(self, document: dict[str, Any], version: int) -> Segment:
        meta, tokens = document["meta_info"], tuple(document["output_ids"])
        spans = meta["weight_versions"]
        labels = tuple(span["version"] for span in spans for _ in range(span["start"], span["end"]))
        assert len(labels) == len(tokens), meta
        aborted = meta["finish_reason"]["type"] == "abort"
        context = (*self.prompt, *self.tokens)
        self.segments.append(Segment(meta["id"], context, tokens, labels, version, aborted))
        return self.segments[-1]


async def call(http: aiohttp.ClientSession, url: str, body: dict[str, Any] | None = None) -> Any:
    """POST ``body``, or GET without one. It must answer 200; JSON is decoded."""
    async with http.request("GET" if body is None else "POST", url, json=body) as answer:
        text = await answer.text()
        assert answer.status == 200, (url, answer.status, text)
    return json.loads(text) if text.startswith(("{", "[")) else text


async def everywhere(http: aiohttp.ClientSession, engines: Sequence[str], path: str, body: dict[str, Any]) -> None:
    """The same call to every engine at once; each must answer 200."""
    await asyncio.gather(*(call(http, f"{url}{path}", body) for url in engines))


async def first_version(http: aiohttp.ClientSession, admin: RouterAdmin, engines: Sequence[str], version: int) -> None:
    """Label the weights the engines started with, and publish that label."""
    body = {"new_version": str(version), "abort_all_requests": False}
    await everywhere(http, engines, "/update_weight_version", body)
    await asyncio.to_thread(admin.attach_owner, OWNER)
    await asyncio.to_thread(admin.publish, f"u-{version}", version)
    await asyncio.to_thread(admin.ack, OWNER, version)


async def update_from_disk(
    http: aiohttp.ClientSession,
    admin: RouterAdmin,
    engines: Sequence[str],
    *,
    version: int,
    path: str,
    while_drained: Callable[[], None] = lambda: None,
) -> None:
    """One update of weights in the order of AReaL's training step; ``docs/operations.md`` has it as a diagram.

    Args:
        http: For the engines.
        admin: For the router.
        engines: Their base URLs.
        version: What the new weights are called.
        path: Where the engines find them.
        while_drained: Looks at the world when nothing may run.
    """
    update = f"u-{version}"
    await asyncio.to_thread(admin.fence, OWNER, "sender_pause")
    await asyncio.to_thread(admin.begin_update, update, to=version)
    await _all_arrived(http, admin, engines)
    await everywhere(http, engines, "/pause_generation", {})
    drained = await asyncio.to_thread(admin.drain, update, timeout=30)
    assert (drained["outstanding"], drained["server_paused"]) == (0, True)
    while_drained()
    await everywhere(http, engines, "/update_weights_from_disk", {"model_path": path, "weight_version": str(version)})
    await everywhere(http, engines, "/continue_generation", {})
    await everywhere(http, engines, "/slow_down", {"forward_sleep_time": None})
    await asyncio.to_thread(admin.end_server_pause, update)
    await asyncio.to_thread(admin.publish, update, version)
    await asyncio.to_thread(admin.ack, OWNER, version)
    await asyncio.to_thread(admin.unfence, OWNER, "sender_pause")


async def _all_arrived(http: aiohttp.ClientSession, admin: RouterAdmin, engines: Sequence[str]) -> None:
    """Wait until every lease has become a request that its engine knows.

    A request that was leased before the update but reaches its engine after the pause would wait there until the engine
    goes on, and the drain would wait for it: neither would ever end.
    """

    async def arrived() -> bool:
        status = await asyncio.to_thread(admin.status)
        loads = await asyncio.gather(*(call(http, f"{url}/v1/loads") for url in engines))
        running = sum(each["num_running_reqs"] + each["num_waiting_reqs"] for load in loads for each in load["loads"])
        return bool(running == status["counts"]["outstanding"])

    await eventually(arrived, True, "every leased request is at its engine")

"""What a probe finds out about engines of several generations, and what it says when something is missing."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from tests.manager.engine.scripted import scripted_control
from trimtab_manager.engine.capabilities import BEGIN_UPDATE, LIFECYCLE, PAUSE, ROUTING, UPDATES, probe
from trimtab_manager.engine.client import OLD_LOADS, EngineClient, Paths
from trimtab_manager.engine.errors import Malformed, MissingCapability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

INFO = {"model_path": "/m", "served_model_name": "m", "weight_version": "default"}
SERVER = {"model_path": "/m", "version": "x", "dp_size": 1, "max_running_requests": 16, "random_seed": 1}
CONTROL = (*LIFECYCLE, *UPDATES["disk"], *UPDATES["distributed"])

OLDEST = (*ROUTING, *CONTROL, "GET /get_model_info", "GET /get_server_info", f"GET {OLD_LOADS}")
"""Before ``/ready``, ``/v1/loads``, version labels, update sessions and pause modes."""

MIDDLE = (*ROUTING, *CONTROL, "GET /model_info", "GET /server_info", "GET /v1/loads", *UPDATES["none"])
"""After the renames."""

NEWEST = (*MIDDLE, "GET /ready", "POST /end_weight_update", BEGIN_UPDATE)
"""With update sessions."""


def loads(ranks: Iterable[int]) -> dict[str, Any]:
    """``/v1/loads`` of an engine with these ranks."""
    now_s = time.time()
    entry = {"timestamp": now_s, "num_running_reqs": 0, "num_waiting_reqs": 0, "max_running_requests": 4}
    timestamp = datetime.fromtimestamp(now_s, timezone.utc).isoformat()
    return {"timestamp": timestamp, "loads": [{**entry, "dp_rank": rank} for rank in ranks]}


@asynccontextmanager
async def fake(
    endpoints: Iterable[str],
    *,
    listed: bool = True,
    modes: tuple[str, ...] | None = ("abort", "in_place", "retract"),
    ranks: tuple[int, ...] = (0,),
) -> AsyncIterator[EngineClient]:
    """A client of an engine that serves these endpoints, and dies of every call that is not a read."""
    acted: list[str] = []
    answers: dict[str, Any] = {
        "/model_info": INFO,
        "/get_model_info": INFO,
        "/server_info": SERVER,
        "/get_server_info": SERVER,
        "/v1/loads": loads(ranks),
        OLD_LOADS: [{"dp_rank": rank, "num_reqs": 0, "num_waiting_reqs": 0} for rank in ranks],
    }
    app = web.Application()

    async def handle(request: web.Request) -> web.Response:
        if request.method == "POST" or request.path not in answers:
            acted.append(f"{request.method} {request.path}")
            return web.Response(status=500)
        return web.json_response(answers[request.path])

    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        method, _, path = endpoint.partition(" ")
        app.router.add_route(method, path, handle)
        paths.setdefault(path, {})[method.lower()] = {}
    if listed:
        properties = {} if modes is None else {"mode": {"enum": list(modes)}}
        schemas = {"PauseGenerationReqInput": {"properties": properties}}
        answers["/openapi.json"] = {"paths": paths, "components": {"schemas": schemas}}
        app.router.add_get("/openapi.json", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = EngineClient(f"http://127.0.0.1:{runner.addresses[0][1]}", engine="policy/0")
    try:
        yield client
        assert acted == []
    finally:
        await client.close()
        await runner.cleanup()


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("endpoints", "paths", "sessions"),
    [
        (OLDEST, Paths("/get_model_info", "/get_server_info", OLD_LOADS, None), False),
        (MIDDLE, Paths(ready=None), False),
        (NEWEST, Paths(), True),
    ],
)
async def test_b66_engines_of_three_generations(
    endpoints: tuple[str, ...], paths: Paths, sessions: bool, listed: bool
) -> None:
    """All pass, whether they list what they serve or not; the client then asks where the engine answers."""
    async with fake(endpoints, listed=listed) as client:
        found = await probe(client, update_kinds=("disk", "distributed"))
        assert (found.paths, client.paths, found.update_sessions) == (paths, paths, sessions)
        assert found.ranks == (0,)
        assert found.max_running_requests == (16 if paths.loads == OLD_LOADS else 4)
        assert found.pause_modes == ({"abort", "in_place", "retract"} if listed else {"abort"})
        assert (await client.loads()).idle


async def test_an_engine_without_pause_modes_knows_abort() -> None:
    """The one that every version has."""
    async with fake(MIDDLE, modes=None) as client:
        assert (await probe(client)).pause_modes == {"abort"}


@pytest.mark.parametrize("listed", [True, False])
async def test_b66_what_is_missing_is_named_at_the_start(listed: bool) -> None:
    """All of it at once, and the way out."""
    endpoints = [endpoint for endpoint in NEWEST if endpoint not in {PAUSE, *UPDATES["disk"]}]
    async with fake(endpoints, listed=listed) as client:
        with pytest.raises(MissingCapability, match=r"engine policy/0 does not serve .*lifecycle = false") as caught:
            await probe(client, update_kinds=("disk",))
        assert set(caught.value.missing) == {PAUSE, *UPDATES["disk"]}


async def test_b66_an_engine_that_is_only_routed_to_needs_less() -> None:
    """No endpoint of the lifecycle, not even its load."""
    async with fake((*ROUTING, "GET /model_info", "GET /server_info")) as client:
        found = await probe(client, routing_only=True)
        assert (found.lifecycle, found.ranks, found.max_running_requests) == (False, (), 16)
        with pytest.raises(MissingCapability, match="POST /pause_generation"):
            found.require(PAUSE, why="to update it")


async def test_something_that_is_no_engine_is_named_so() -> None:
    """Even when it is only to be routed to."""
    async with fake(()) as client:
        with pytest.raises(MissingCapability, match="is it an SGLang server"):
            await probe(client, routing_only=True)


async def test_b91_ranks_are_read_never_counted() -> None:
    """An engine owns ranks 4 to 7; a configuration that gives it rank 0 is wrong, and told so at registration."""
    async with fake(NEWEST, ranks=(6, 4, 7, 5)) as client:
        found = await probe(client)
        assert (found.ranks, found.max_running_requests) == ((4, 5, 6, 7), 16)
        found.require_ranks((4, 7))
        with pytest.raises(MissingCapability, match=r"DP rank 0.*its ranks are 4, 5, 6, 7"):
            found.require_ranks((0, 4))


async def test_a_list_of_something_else_is_no_list() -> None:
    """Another program on the port may answer 200 to anything."""
    async with scripted_control() as other:
        client = EngineClient(other.url)
        with pytest.raises(Malformed, match="lists no paths"):
            await probe(client)
        await client.close()

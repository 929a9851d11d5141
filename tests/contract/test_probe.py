"""What a capability probe reads, none of which does anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from trimtab_manager.engine.capabilities import LIFECYCLE, ROUTING, UPDATES, probe
from trimtab_manager.engine.client import EngineClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.contract.target import Target
    from trimtab_manager.engine.types import PauseMode


@pytest.fixture
async def client(engine: Target) -> AsyncIterator[EngineClient]:
    """Control of the engine."""
    client = EngineClient(engine.url)
    yield client
    await client.close()


@pytest.mark.parametrize("path", ["/pause_generation", "/release_memory_occupation", "/resume_memory_occupation"])
async def test_options_tells_the_methods_and_does_nothing(engine: Target, path: str) -> None:
    """405 with ``Allow`` for what is there, 404 for what is not."""
    answer = await engine.call("OPTIONS", path)
    assert answer.status == 405
    allow = next(value for name, value in answer.headers.items() if name.lower() == "allow")
    assert "POST" in allow
    assert (await engine.call("OPTIONS", "/get_load")).status == 404
    assert (await engine.get("/ready")).status == 200


async def test_openapi_lists_what_is_served(engine: Target) -> None:
    """Every path with its methods; the modes of a pause stand in the schema of its body."""
    document = (await engine.get("/openapi.json")).json
    for endpoint in (*ROUTING, *LIFECYCLE):
        method, _, path = endpoint.partition(" ")
        assert method.lower() in document["paths"][path]
    mode = document["components"]["schemas"]["PauseGenerationReqInput"]["properties"]["mode"]
    assert set(mode["enum"]) == {"abort", "in_place", "retract"}
    assert "/v1/models/{model}" in document["paths"] or "/v1/models/{name}" in document["paths"]


async def test_b66_a_probe_finds_out_and_changes_nothing(engine: Target, client: EngineClient) -> None:
    """Endpoints, pause modes, ranks, limits; afterwards the engine is ready as before."""
    found = await probe(client, update_kinds=("disk", "none"))
    assert found.serves(*ROUTING, *LIFECYCLE, *UPDATES["disk"], *UPDATES["none"])
    assert found.pause_modes == {"abort", "in_place", "retract"}
    assert (found.ranks, found.max_running_requests) == ((0,), 8)
    assert (found.model.model_path, found.model.weight_version) == (engine.models[0], "default")
    assert (found.server.version, found.weights_survive_release) == ("0.5.23", True)
    assert (await engine.get("/ready")).status == 200
    assert (await engine.generate(2)).status == 200


async def test_an_incarnation_stays_the_same(engine: Target, client: EngineClient) -> None:
    """Neither work nor an update of the weights moves it."""
    before = (await client.server_info()).incarnation
    await engine.generate(2)
    await client.update_from_disk(engine.models[1], "7", flush=True)
    await client.update_version("8")
    assert (await client.server_info()).incarnation == before
    assert (await client.model_info()).weight_version == "8"


async def test_loads_stay_fresh_in_a_pause_of_mode_abort(engine: Target, client: EngineClient) -> None:
    """That pause closes the door before the scheduler, which goes on and says so."""
    await client.pause("abort")
    first = await client.loads()
    assert first.idle
    assert first.age_s < 2
    for _ in range(100):
        if (second := await client.loads()).published_s != first.published_s:
            break
        await asyncio.sleep(0.05)
    assert second.published_s != first.published_s
    await client.resume()


@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_loads_go_stale_in_the_other_pauses(engine: Target, client: EngineClient, mode: PauseMode) -> None:
    """They stop the scheduler, which publishes no more: its last words prove nothing, and get older."""
    await engine.slow_down()
    async with engine.stream(500):
        await client.pause(mode)
        seen = [await client.loads()]
        while len(seen) < 3 or seen[-1].published_s != seen[-3].published_s:
            await asyncio.sleep(0.1)
            seen.append(await client.loads())
        assert seen[-1].age_s > seen[-2].age_s > seen[-3].age_s
        await engine.post("/abort_request", {"abort_all": True})
        await engine.speed_up()
        await client.resume()

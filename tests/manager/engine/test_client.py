"""Control calls: what is sent, and what an error says about what became of the call."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.manager.engine.scripted import CUT, HOLD, scripted_control
from tests.support.ports import free_ports
from tests.support.waiting import wait_until
from trimtab import InvalidRequest
from trimtab_manager.engine.client import OLD_LOADS, EngineClient, Paths
from trimtab_manager.engine.errors import Ambiguous, Deadline, Malformed, Refused, Unreachable
from trimtab_manager.sim import Fault, SimConfig, running_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from tests.manager.engine.scripted import ScriptedControl

SUCCESS = (200, {"success": True, "message": "Success."})


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedControl]:
    """An engine that answers as told."""
    async with scripted_control() as engine:
        yield engine


@pytest.fixture
async def client(scripted: ScriptedControl) -> AsyncIterator[EngineClient]:
    """A client of it."""
    client = EngineClient(scripted.url, engine="policy/0", timeout_s=5)
    yield client
    await client.close()


def only_request(engine: ScriptedControl) -> tuple[str, str, Any]:
    """Method, path and body of the one request that it got."""
    (asked,) = engine.asked
    return asked.method, asked.path, asked.body


async def test_b3_every_policy_flag_of_a_version_change_is_sent(
    client: EngineClient, scripted: ScriptedControl
) -> None:
    """SGLang's default would abort every request that runs."""
    scripted.next(SUCCESS)
    await client.update_version("8")
    assert only_request(scripted) == (
        "POST",
        "/update_weight_version",
        {"new_version": "8", "abort_all_requests": False},
    )


async def test_every_policy_flag_of_an_update_is_sent(client: EngineClient, scripted: ScriptedControl) -> None:
    """Also where SGLang's default is what we want."""
    scripted.next(SUCCESS)
    await client.update_from_disk("/models/8", "8", flush=False)
    _, _, body = only_request(scripted)
    assert body == {
        "model_path": "/models/8",
        "weight_version": "8",
        "load_format": None,
        "flush_cache": False,
        "abort_all_requests": False,
        "is_async": False,
        "keep_pause": False,
        "torch_empty_cache": False,
        "recapture_cuda_graph": False,
        "token_step": 0,
    }


@pytest.mark.slow
async def test_b3_a_label_change_touches_no_request(web: aiohttp.ClientSession) -> None:
    """16 streams; pause, update, label, continue: all complete, none aborted."""
    config = SimConfig(time_scale=0.05, max_running_requests=16, weight_load_s=0)
    body = {"text": "abc", "stream": True, "sampling_params": {"max_new_tokens": 300, "ignore_eos": True}}

    async def stream(url: str) -> str:
        async with web.post(f"{url}/generate", json=body) as response:
            events = (await response.read()).decode().split("\n\n")
        finish = json.loads(events[-3].removeprefix("data: "))["meta_info"]["finish_reason"]
        return str(finish["type"])

    async with running_engine(config) as server:
        client = EngineClient(server.url)
        streams = [asyncio.create_task(stream(server.url)) for _ in range(16)]
        await wait_until(lambda: server.engine.statistics().running == 16, "all run")
        await client.pause("in_place")
        await client.update_from_disk("sim://weights/1", "7", flush=False)
        await client.update_version("8")
        await client.resume()
        assert await asyncio.wait_for(asyncio.gather(*streams), 60) == ["length"] * 16
        assert server.engine.statistics().requests_aborted == 0
        assert (await client.model_info()).weight_version == "8"
        await client.close()


async def test_no_connection_is_an_error_of_its_own() -> None:
    """Nothing was sent, so anything may be sent again."""
    client = EngineClient(f"http://127.0.0.1:{free_ports(1)[0]}", engine="policy/0", timeout_s=5)
    with pytest.raises(Unreachable, match="engine policy/0: POST /release_memory_occupation was not sent") as caught:
        await client.release(["weights"])
    assert (caught.value.effect, caught.value.retryable) == ("none", True)
    await client.close()


async def test_a_lost_answer_is_ambiguous(client: EngineClient, scripted: ScriptedControl) -> None:
    """The engine read the call; it is sent once, whatever an HTTP library would like to repeat."""
    scripted.next(CUT)
    with pytest.raises(Ambiguous, match="answer broke off") as caught:
        await client.release(["weights"])
    assert (caught.value.effect, caught.value.retryable) == ("unknown", False)
    assert len(scripted.asked) == 1


async def test_a_call_has_a_deadline(client: EngineClient, scripted: ScriptedControl) -> None:
    """Then nobody knows; an ``Ambiguous`` of its own kind."""
    scripted.next(HOLD)
    with pytest.raises(Deadline, match=r"POST /pause_generation was not answered within 0\.1 s"):
        await client.pause("abort", timeout_s=0.1)
    assert issubclass(Deadline, Ambiguous)


@pytest.mark.parametrize(
    ("status", "error", "retryable"),
    [(status, Refused, False) for status in (307, 400, 401, 404)]
    + [(status, Refused, True) for status in (429, 502, 503)]
    + [(status, Ambiguous, False) for status in (500, 504)],
)
async def test_what_a_status_means(
    client: EngineClient, scripted: ScriptedControl, status: int, error: type[Refused | Ambiguous], retryable: bool
) -> None:
    """No redirect is followed; 500 and 504 come from calls that may have had their effect."""
    scripted.next((status, b"because"))
    with pytest.raises(error, match=f"{status} \\(because\\)") as caught:
        await client.resume()
    assert caught.value.retryable is retryable
    assert len(scripted.asked) == 1


async def test_false_success_is_a_refusal(client: EngineClient, scripted: ScriptedControl) -> None:
    """Some versions say so under a status of 200; the words of the engine are kept."""
    scripted.next((200, b'{"success":false,"message":"no such group"}'))
    with pytest.raises(Refused, match="no such group") as caught:
        await client.destroy_group("g")
    assert caught.value.status == 200


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'{"timestamp":"x","loads":[]}'])
async def test_an_answer_of_something_else_is_no_answer(
    client: EngineClient, scripted: ScriptedControl, body: bytes
) -> None:
    """Another program on the port answers 200, too."""
    scripted.next((200, body))
    with pytest.raises(Malformed, match="GET /v1/loads"):
        await client.loads()


async def test_no_proxy_of_the_environment_is_asked(
    client: EngineClient, scripted: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines are on the cluster's own network."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_ports(1)[0]}")
    scripted.next((200, {}))
    await client.resume()
    assert len(scripted.asked) == 1


async def test_the_key_is_sent_and_never_told(scripted: ScriptedControl) -> None:
    """As a bearer token, on every call."""
    client = EngineClient(scripted.url, api_key="top-secret")
    scripted.next((401, b"Unauthorized"))
    with pytest.raises(Refused) as caught:
        await client.abort_all()
    assert scripted.asked[0].authorization == "Bearer top-secret"
    assert "top-secret" not in str(caught.value)
    await client.close()


async def test_no_tags_and_no_prefix_would_mean_everything(client: EngineClient, scripted: ScriptedControl) -> None:
    """So they are not sent by accident."""
    with pytest.raises(ValueError, match="no tag means every tag"):
        await client.release([])
    with pytest.raises(ValueError, match="use abort_all"):
        await client.abort("")
    assert scripted.asked == []


async def test_b91_ranks_are_the_engines(client: EngineClient, scripted: ScriptedControl) -> None:
    """An engine may own ranks 4 to 7; loads of all of them are summed."""
    ranks = [
        {"timestamp": 100.0 - rank, "dp_rank": rank, "num_running_reqs": 1, "num_waiting_reqs": rank}
        | {"max_running_requests": 8, "queues": {"waiting": rank, "grammar": 1, "paused": 0, "retracted": 0}}
        for rank in (4, 5, 6, 7)
    ]
    body = {"timestamp": "1970-01-01T00:01:40+00:00", "loads": ranks}
    scripted.next((200, body))
    loads = await client.loads()
    assert [rank.rank for rank in loads.ranks] == [4, 5, 6, 7]
    assert (loads.running, loads.waiting, loads.max_running_requests) == (4, 22 + 4, 32)
    assert (loads.age_s, loads.published_s, loads.idle) == (7.0, 93.0, False)


async def test_loads_of_older_servers(client: EngineClient, scripted: ScriptedControl) -> None:
    """``/get_load`` counts what waits among all, and asks the scheduler for every answer."""
    client.paths = Paths(loads=OLD_LOADS)
    body = [{"dp_rank": 1, "num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 10}]
    scripted.next((200, body))
    loads = await client.loads()
    assert (loads.running, loads.waiting, loads.age_s, loads.published_s) == (3, 2, 0.0, None)


async def test_no_ranks_are_not_idle(client: EngineClient, scripted: ScriptedControl) -> None:
    """Nothing said is nothing known."""
    scripted.next((200, b'{"timestamp":"1970-01-01T00:01:40Z","loads":[]}'))
    assert not (await client.loads()).idle


async def test_a_reset_answer_is_ambiguous() -> None:
    """Also when the connection does not end in order."""
    async with running_engine(SimConfig(time_scale=0, faults=(Fault(kind="reset", path="/flush_cache"),))) as server:
        client = EngineClient(server.url)
        with pytest.raises(Ambiguous):
            await client.flush()
        await client.close()


async def test_reads_of_a_simulated_engine() -> None:
    """Model, server, loads, readiness and health."""
    async with running_engine(SimConfig(time_scale=0, max_running_requests=4)) as server:
        client = EngineClient(server.url)
        assert (await client.model_info()).weight_version == "default"
        assert (await client.server_info()).max_running_requests == 4
        loads = await client.loads()
        assert (loads.running, loads.waiting, loads.idle, loads.max_running_requests) == (0, 0, True, 4)
        assert loads.age_s < 1
        assert await client.ready()
        assert await client.health()
        await client.pause("retract")
        assert not await client.ready()
        assert not await client.health()
        await client.flush()
        await client.release(["weights", "kv_cache"])
        await client.wake(["weights", "kv_cache"])
        await client.resume()
        await client.close()


async def test_incarnations_differ_by_start_and_by_nothing_else() -> None:
    """Same configuration, same port numbers: two servers. One server: the same whatever it did."""
    async with running_engine(SimConfig(time_scale=0)) as one, running_engine(SimConfig(time_scale=0)) as two:
        clients = [EngineClient(server.url) for server in (one, two)]
        first, second = [(await client.server_info()).incarnation for client in clients]
        assert first != second
        await clients[0].update_from_disk("sim://weights/1", "1", flush=True)
        assert (await clients[0].server_info()).incarnation == first
        for client in clients:
            await client.close()


async def test_an_incarnation_does_not_depend_on_the_order_of_ranks(
    client: EngineClient, scripted: ScriptedControl
) -> None:
    """Schedulers answer in any order; one HTTP process may know less than another."""
    states = [{"startup_time": {"scheduler_e2e": seconds}} for seconds in (1.25, 1.5)]
    body = {"model_path": "/m", "random_seed": 1, "startup_time": {"tokenizer_e2e": 2.0}}
    scripted.next((200, {**body, "internal_states": states}))
    scripted.next((200, {**body, "startup_time": None, "internal_states": states[::-1]}))
    assert (await client.server_info()).incarnation == (await client.server_info()).incarnation


async def test_a_closed_client_sends_nothing_any_more(scripted: ScriptedControl) -> None:
    """A late order to an incarnation that was let go must not reach whoever has its port now, nor open a session."""
    client = EngineClient(scripted.url, engine="policy/0")
    await client.close()
    with pytest.raises(Unreachable, match=r"engine policy/0: .* let go of this incarnation"):
        await client.resume()
    assert scripted.asked == []


async def test_the_client_of_a_static_model_refuses_updates() -> None:
    """Whoever asks, and whichever kind: nothing is sent."""
    async with running_engine(SimConfig(time_scale=0)) as server:
        client = EngineClient(server.url, engine="genrm/0", static=True)
        updates = (
            client.update_from_disk("sim://weights/7", "7", flush=True),
            client.update_version("7"),
            client.begin_weight_update(),
            client.end_weight_update(),
            client.update_from_tensor(["x"], "7", flush=True),
            client.destroy_group("g"),
        )
        for update in updates:
            with pytest.raises(InvalidRequest, match=r"engine genrm/0 serves a static model: POST /.* was not sent"):
                await update
        assert (await client.model_info()).weight_version == "default"
        await client.close()

"""Calls of one turn of the event loop go out as one request, and nobody notices but the network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

import trimtab
from tests.router.conftest import FAST, KEY, RunningRouter
from tests.support.relay import Relay, answering, held, lose_reply, lose_request, repeated
from tests.support.waiting import wait_until
from trimtab import RouterClient
from trimtab.coalesce import Coalescer
from trimtab.wire import Batched, Call, Reply, TransportFault

TASKS = 20


@pytest.fixture
async def api(relay: Relay) -> AsyncIterator[RouterClient]:
    """A client behind the relay."""
    async with RouterClient(relay.url, sender="rollout/0", owner="train", key=KEY, retry=FAST) as api:
        yield api


def operations(relay: Relay) -> list[list[str]]:
    """What each batch that arrived asked for."""
    bodies = [json.loads(message.body) for message in relay.messages if message.line.endswith("/leases:batch")]
    return [[operation for request in body["requests"] for operation in request] for body in bodies]


async def run(api: RouterClient, session: str, *, wait: float = 0) -> str:
    """One execution; the id of its lease."""
    async with api.lease(session, wait=wait) as lease:
        return lease.id


async def gathered(api: RouterClient, *, wait: float = 0) -> list[str]:
    """Executions that begin in one turn."""
    return await asyncio.gather(*(run(api, f"s{number}", wait=wait) for number in range(TASKS)))


async def test_one_turn_is_one_request(router: RunningRouter, relay: Relay, api: RouterClient) -> None:
    """Twenty acquires at once are one request, and so are their settlements; each execution has a lease of its own."""
    ids = await gathered(api, wait=30)
    assert len(set(ids)) == TASKS
    assert operations(relay) == [["acquire"] * TASKS, ["settle"] * TASKS]
    assert relay.lines("/leases/") == []
    statistics = router.pool.statistics()
    assert (statistics.outcomes["completed"], statistics.outstanding, statistics.tombstones) == (TASKS, 0, TASKS)


async def test_one_call_is_no_batch(relay: Relay, api: RouterClient) -> None:
    """A call that is alone in its turn goes as it is."""
    await run(api, "s")
    assert operations(relay) == []
    assert len(relay.lines("/leases")) == 2


async def test_only_the_one_that_is_refused_is_told(router: RunningRouter, relay: Relay, api: RouterClient) -> None:
    """An operation that breaks a rule has its own answer; the others have their leases."""
    results = await asyncio.gather(run(api, "a"), run(api, "x" * 300), run(api, "b"), return_exceptions=True)
    assert [isinstance(result, str) for result in results] == [True, False, True]
    assert isinstance(results[1], trimtab.InvalidRequest)
    assert router.pool.statistics().outcomes["completed"] == 2


async def test_a_malformed_one_spoils_no_batch(router: RunningRouter, relay: Relay, api: RouterClient) -> None:
    """A wrong type makes the router refuse the request as a whole: each operation is sent alone then."""
    results = await asyncio.gather(run(api, "a"), run(api, 5), run(api, "b"), return_exceptions=True)  # type: ignore[arg-type]
    assert [isinstance(result, str) for result in results] == [True, False, True]
    assert isinstance(results[1], trimtab.InvalidRequest)
    assert router.pool.statistics().outcomes["completed"] == 2


@pytest.mark.parametrize(
    "trouble",
    [lose_reply, lose_request, repeated, answering("502 Bad Gateway"), answering("200 OK", b"hello")],
    ids=["reply", "request", "repeated", "502", "foreign"],
)
async def test_a_batch_that_is_lost(router: RunningRouter, relay: Relay, api: RouterClient, trouble: object) -> None:
    """Whatever happens to it, each operation is repeated with its own key, and has one effect."""
    relay.next("/leases:batch", trouble, trouble)  # type: ignore[arg-type]
    await gathered(api)
    statistics = router.pool.statistics()
    assert sum(statistics.picks.values()) == statistics.outcomes["completed"] == TASKS
    assert statistics.outstanding == 0


async def test_a_fence_is_waited_through_alone(router: RunningRouter, relay: Relay, api: RouterClient) -> None:
    """A batch does not wait: whoever may wait asks again, under the same number, and holds nobody up."""
    router.pool.fence("train", "pause")
    waiting = asyncio.create_task(gathered(api, wait=30))
    await wait_until(lambda: router.pool.statistics().waiters == TASKS, "all wait")
    assert operations(relay) == [["acquire"] * TASKS]
    router.pool.unfence("train", "pause")
    assert len(set(await waiting)) == TASKS
    seqs = [json.loads(message.body)["seq"] for message in relay.messages if message.line.endswith("/leases")]
    assert sorted(seqs) == list(range(1, TASKS + 1))


async def test_without_a_wait_each_is_told_why(router: RunningRouter, api: RouterClient) -> None:
    """Nobody waits, so each gets the reason that its own call would have got."""
    router.pool.fence("train", "pause")
    results = await asyncio.gather(run(api, "a"), run(api, "b"), return_exceptions=True)
    assert [type(result) for result in results] == [trimtab.Fenced] * 2


async def test_one_that_is_cancelled_leaves_no_lease(router: RunningRouter, relay: Relay, api: RouterClient) -> None:
    """The answer is on its way when one of the callers goes away: its lease is given back, the others are used."""
    late = asyncio.Event()
    relay.next("/leases:batch", held(late))
    tasks = [asyncio.create_task(run(api, f"s{number}")) for number in range(3)]
    await wait_until(lambda: router.pool.statistics().outstanding == 3, "the leases are granted")
    tasks[1].cancel()
    await wait_until(lambda: router.pool.statistics().outcomes["not_sent"] == 1, "the lease is given back")
    late.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert router.pool.statistics().outcomes["completed"] == 2


async def test_a_turn_that_everybody_left_sends_nothing() -> None:
    """Callers that were cancelled in the same turn ask for nothing."""
    sent: list[Call] = []

    async def send(call: Call) -> Reply:
        sent.append(call)
        return Reply(200, {})

    coalescer = Coalescer(send)
    calls = [asyncio.create_task(coalescer.send(acquire(number))) for number in range(2)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    assert sent == []


async def test_closing_ends_whoever_waits() -> None:
    """Nobody waits for the answer of a client that was closed."""

    async def send(call: Call) -> Reply:
        del call
        await asyncio.Event().wait()
        raise AssertionError

    coalescer = Coalescer(send)
    calls = [asyncio.create_task(coalescer.send(acquire(number))) for number in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await coalescer.close()
    assert [type(result) for result in await asyncio.gather(*calls, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2


async def test_large_turns_are_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router takes so many operations in one request; what was settled is said once in each."""
    monkeypatch.setattr("trimtab.coalesce.MAX_BATCH", 3)
    sent: list[Call] = []

    async def send(call: Call) -> Reply:
        sent.append(call)
        assert call.body is not None
        if "requests" not in call.body:
            return Reply(200, {"seq": call.body["seq"]})
        requests = call.body["requests"]
        results = [{"status": 200, "body": {"seq": each["acquire"]["seq"]}} for each in requests]
        return Reply(200, {"results": results})

    coalescer = Coalescer(send)
    replies = await asyncio.gather(*(coalescer.send(acquire(number)) for number in range(8)))
    assert [reply.members["seq"] for reply in replies] == list(range(8))
    said = [[each["acquire"]["settled"] for each in call.body["requests"]] for call in sent if call.body]
    assert said == [[[], [], [[1, 9]]], [[], [], [[1, 9]]], [[], [[1, 9]]]]


async def test_a_fault_is_everybodys() -> None:
    """No answer to a batch is no answer to each of it."""

    async def send(call: Call) -> Reply:
        del call
        raise TransportFault("ConnectError")

    coalescer = Coalescer(send)
    results = await asyncio.gather(*(coalescer.send(acquire(number)) for number in range(2)), return_exceptions=True)
    assert [str(result) for result in results] == ["ConnectError"] * 2
    assert results[0] is not results[1]


async def test_each_pool_has_its_own_batch() -> None:
    """Operations on two pools never meet in one request; one that is alone at its pool goes alone."""
    sent: list[tuple[str, int]] = []

    async def send(call: Call) -> Reply:
        assert call.body is not None
        requests = call.body.get("requests", [call.body])
        sent.append((call.path, len(requests)))
        return Reply(200, {"results": [{"status": 200, "body": {}} for _ in requests]})

    coalescer = Coalescer(send)
    calls = [acquire(1, "a"), acquire(2, "b"), acquire(3, "a"), acquire(4, "c"), acquire(5, "b")]
    await asyncio.gather(*(coalescer.send(call) for call in calls))
    assert sorted(sent) == [("a/leases", 2), ("b/leases", 2), ("c", 1)]


def acquire(number: int, pool: str = "") -> Call:
    """An acquire that may go with others."""
    body = {"seq": number, "settled": [[1, 9]]}
    return Call("POST", pool, body, batched=Batched(f"{pool}/leases", "acquire", body))

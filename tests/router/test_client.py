"""``RouterClient`` against a real router, with messages lost, late and repeated on the way."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import httpx
import pytest

import trimtab
from tests.router.conftest import FAST, KEY, RunningRouter
from tests.support.ports import free_ports
from tests.support.relay import Relay, answering, held, lose_reply, lose_request, repeated
from tests.support.waiting import wait_until
from trimtab import RouterClient, sequence
from trimtab.wire import RetryPolicy


def client(url: str, **options: object) -> RouterClient:
    """A client of the trainer's owner, quick to ask again."""
    arguments = {"sender": "rollout/0", "owner": "train", "key": KEY, "retry": FAST, **options}
    return RouterClient(url, **arguments)  # type: ignore[arg-type]  # options of a test


def outstanding(router: RunningRouter) -> int:
    """Executions the router counts."""
    return router.pool.statistics().outstanding


async def test_a_lease_from_acquire_to_settlement(router: RunningRouter) -> None:
    """The lease says where and with which weights; it is counted inside the block and settled at its end."""
    async with client(router.url) as api:
        async with api.lease("traj-17", wait=10) as lease:
            assert outstanding(router) == 1
            assert (lease.backend_id, lease.weight_version, lease.reason) == ("e0", 1, "new")
            assert lease.url == f"http://{lease.authority}"
            lease.settle("completed", output_tokens=5, http_status=200, observed_weight_version=1)
        async with api.lease("traj-17") as again:
            assert (again.backend_id, again.sticky) == (lease.backend_id, True)
        assert await api.close_session("traj-17") == (True, 0)
        assert await api.close_session("traj-17") == (False, 0)
    statistics = router.pool.statistics()
    assert (statistics.outcomes["completed"], statistics.output_tokens) == (2, 5)
    assert (statistics.senders, statistics.sessions, statistics.tombstones) == ([], 0, 0)


@pytest.mark.parametrize(
    ("exc", "outcome"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (httpx.ConnectError("refused"), "not_sent"),
        (ConnectionResetError(), "ambiguous"),
    ],
    ids=repr,
)
async def test_an_exception_is_classified(router: RunningRouter, exc: BaseException, outcome: str) -> None:
    """No settlement and an exception: the lease ends as the exception says."""
    async with client(router.url) as api:
        context = api.lease()
        with pytest.raises(type(exc)):
            async with context:
                raise exc
        assert router.pool.statistics().outcomes[outcome] == 1
        assert outstanding(router) == 0


async def test_settling_twice_is_an_error(router: RunningRouter) -> None:
    """A lease is settled exactly once, with a known outcome; the first settlement counts."""
    async with client(router.url) as api:
        async with api.lease() as lease:
            with pytest.raises(trimtab.InvalidRequest, match="not_sent"):
                lease.settle("complete")  # type: ignore[arg-type]
            lease.settle("rejected")
            with pytest.raises(trimtab.UnknownLease):
                lease.settle("completed")
        assert router.pool.statistics().outcomes["rejected"] == 1


async def test_areal_61a_a_lost_reply_is_asked_for_again(router: RunningRouter, relay: Relay) -> None:
    """6.1 (a): the reply to an acquire is lost after the grant; the same key gets the same lease, counted once."""
    async with client(relay.url) as api:
        relay.next("/leases", lose_reply)
        async with api.lease("s"):
            assert outstanding(router) == 1
            assert router.pool.statistics().picks["new"] == 1
        bodies = [json.loads(message.body) for message in relay.messages if message.line.endswith("/leases")]
        assert [body["seq"] for body in bodies] == [1, 1]
        assert outstanding(router) == 0


async def test_a_lost_request_is_sent_again(router: RunningRouter, relay: Relay) -> None:
    """The request never arrived: the second attempt is the first the router sees."""
    async with client(relay.url) as api:
        relay.next("/leases", lose_request, lose_request)
        async with api.lease("s"):
            assert outstanding(router) == 1


async def test_a_repeated_acquire_is_one_lease(router: RunningRouter, relay: Relay) -> None:
    """A network that delivers an acquire twice makes no second lease."""
    async with client(relay.url) as api:
        relay.next("/leases", repeated)
        async with api.lease("s"):
            assert outstanding(router) == 1


async def test_areal_61d_a_late_duplicate_is_refused(router: RunningRouter, relay: Relay) -> None:
    """6.1 (d): an acquire is delivered again after its settlement was forgotten: refused, and nothing is counted."""
    async with client(relay.url) as api:
        for _ in range(2):
            async with api.lease("s"):
                pass
        (first, _) = [message for message in relay.messages if message.line.endswith("/leases")]
        headers = {name: first.headers[name] for name in ("authorization", "content-type")}
        async with httpx.AsyncClient() as network:
            answer = await network.post(
                f"{router.url}/v1/router/pools/rollout/default/leases", content=first.body, headers=headers
            )
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "stale_request")
        assert outstanding(router) == 0


@pytest.mark.parametrize("trouble", [lose_reply, lose_request, repeated])
async def test_a_settlement_arrives(router: RunningRouter, relay: Relay, trouble: object) -> None:
    """Whatever happens to the messages, the lease is settled once, as it was said."""
    async with client(relay.url) as api:
        async with api.lease("s"):
            relay.next("/settle", trouble)  # type: ignore[arg-type]
        assert router.pool.statistics().outcomes["completed"] == 1
        assert outstanding(router) == 0


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
async def test_gateways_in_between_are_asked_again(router: RunningRouter, relay: Relay, status: str) -> None:
    """502, 503 and 504 of something in between are no verdict."""
    async with client(relay.url) as api:
        relay.next("/leases", answering(status, b"<html>"), answering(status))
        async with api.lease():
            assert outstanding(router) == 1


async def test_a_router_that_starts_is_asked_again(router: RunningRouter, relay: Relay) -> None:
    """``starting`` is no verdict, though the router itself says it."""
    starting = json.dumps({"error": {"code": "starting", "message": "soon", "retryable": True}}).encode()
    async with client(relay.url) as api:
        relay.next("/leases", answering("503 Service Unavailable", starting))
        async with api.lease():
            assert outstanding(router) == 1


async def test_two_spellings_of_a_router_are_one(router: RunningRouter) -> None:
    """Two clients of one sender that write the URL differently still share its numbers."""
    async with (
        client(router.url) as one,
        client(router.url.replace("127.0.0.1", "localhost")) as two,
        one.lease("a") as first,
        two.lease("b") as second,
    ):
        assert first.id != second.id
        assert outstanding(router) == 2


async def test_a_forked_child_needs_a_client_of_its_own(router: RunningRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parent and child would use the same numbers: the child is told so."""
    async with client(router.url) as api:
        with monkeypatch.context() as child:
            child.setattr(sequence, "_incarnation", "of-the-child")
            with pytest.raises(RuntimeError, match="forked"):
                async with api.lease():
                    pass
        async with api.lease():
            assert outstanding(router) == 1


async def test_leaving_a_dead_router_is_quick(router: RunningRouter) -> None:
    """A program that ends does not wait for a router that is gone."""
    patient = RetryPolicy(horizon_s=600.0)
    async with client(router.url, retry=patient) as api:
        async with api.lease():
            pass
        router.plane.shutdown(0.0)
        before = time.monotonic()
    assert time.monotonic() - before < 10
    router.pool.detach_sender("rollout/0", router.pool.statistics().senders[0].incarnation)


async def test_a_verdict_is_not_asked_again(router: RunningRouter, relay: Relay) -> None:
    """A failed pool answers 503 to an acquire, and says that asking again cannot help."""
    async with client(relay.url) as api:
        router.pool.fail("enough")
        with pytest.raises(trimtab.PoolFailed, match="enough"):
            async with api.lease(wait=10):
                pass
        assert len(relay.lines("/leases")) == 1


async def test_a_foreign_answer_is_an_error(relay: Relay) -> None:
    """Something that is no trimtab router is named as such, at once."""
    relay.next("/senders", answering("200 OK", b"hello"))
    with pytest.raises(trimtab.TrimtabError, match="trimtab router"):
        async with client(relay.url, pool="rollout/default"):
            pass


async def test_no_router_is_an_error_with_an_end() -> None:
    """Attempts end with the horizon; the error says what was tried, and keeps the key to itself."""
    impatient = RetryPolicy(horizon_s=0.2, first_delay_s=0.01)
    api = client(f"http://127.0.0.1:{free_ports(1)[0]}", pool="rollout/default", retry=impatient)
    with pytest.raises(trimtab.RouterUnreachable, match="attempts; the last: ConnectError") as caught:
        await api.open()
    assert caught.value.retryable
    assert KEY not in str(caught.value) + repr(api)


async def test_a_fence_is_waited_through_in_several_calls(
    router: RunningRouter, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait longer than one call is asked for again with the same key, and keeps its place."""
    monkeypatch.setattr("trimtab.sender_link.MAX_WAIT_S", 0.05)
    async with client(relay.url) as api:
        router.pool.fence("train", "pause")

        async def one() -> None:
            async with api.lease("s", wait=30):
                pass

        waiting = asyncio.create_task(one())
        await wait_until(lambda: len(relay.lines("/leases")) >= 3, "the acquire is asked for again")
        router.pool.unfence("train", "pause")
        await waiting
        bodies = [json.loads(message.body) for message in relay.messages if message.line.endswith("/leases")]
        assert {body["seq"] for body in bodies} == {1}
        router.pool.fence("train", "again")
        with pytest.raises(trimtab.Fenced, match="again"):
            async with api.lease(wait=0.1):
                pass
    assert router.pool.statistics().waiters == 0


async def test_cancelled_while_waiting_leaves_no_lease(router: RunningRouter) -> None:
    """A caller that goes away while it waits leaves neither a waiter nor a lease."""
    async with client(router.url) as api:
        router.pool.fence("train", "pause")

        async def one() -> None:
            async with api.lease("s", wait=30):
                pass

        waiting = asyncio.create_task(one())
        await wait_until(lambda: router.pool.statistics().waiters == 1, "the acquire waits")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await wait_until(lambda: router.pool.statistics().waiters == 0, "the waiter is gone")
        router.pool.unfence("train", "pause")
    assert outstanding(router) == 0


async def test_cancelled_before_the_reply_leaves_no_lease(router: RunningRouter, relay: Relay) -> None:
    """The lease was granted and its reply is late: whoever is cancelled meanwhile does not block a drain for ever."""
    late = asyncio.Event()
    async with client(relay.url) as api:
        relay.next("/leases", held(late))

        async def one() -> None:
            async with api.lease("s"):
                pass

        waiting = asyncio.create_task(one())
        await wait_until(lambda: outstanding(router) == 1, "the lease is granted")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await wait_until(lambda: outstanding(router) == 0, "the lease is given back")
        assert router.pool.statistics().outcomes["not_sent"] == 1
        late.set()


async def test_cancelled_while_settling_settles_all_the_same(router: RunningRouter, relay: Relay) -> None:
    """The settlement was lost, and its caller was cancelled before it could send it again."""
    stuck = asyncio.Event()

    async def hang(raw: bytes, forward: object) -> bytes | None:
        del raw, forward
        await stuck.wait()
        return None

    async with client(relay.url) as api:

        async def one() -> None:
            async with api.lease("s") as lease:
                lease.settle("completed", output_tokens=3)

        relay.next("/settle", hang)
        settling = asyncio.create_task(one())
        await wait_until(lambda: relay.lines("/settle"), "the settlement is under way")
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
        await wait_until(lambda: outstanding(router) == 0, "the lease is settled")
        assert router.pool.statistics().output_tokens == 3
        stuck.set()


async def test_settled_numbers_ride_along(router: RunningRouter, relay: Relay) -> None:
    """Every call tells the router what it may forget: one tombstone at most is left of a hundred leases."""
    async with client(relay.url) as api:
        for _ in range(100):
            async with api.lease("s"):
                pass
        assert router.pool.statistics().tombstones == 1
        (sender,) = router.pool.statistics().senders
        assert sender.settled == [(1, 99)]


async def test_numbers_are_contiguous_over_clients_and_tasks(router: RunningRouter, relay: Relay) -> None:
    """Two clients of one sender in one process, many tasks: every number once, and no gap."""
    async with client(relay.url) as one, client(relay.url) as two:

        async def run(api: RouterClient) -> None:
            async with api.lease():
                pass

        await asyncio.gather(*(run(api) for api in (one, two) for _ in range(20)))
        batches = [json.loads(message.body) for message in relay.messages if message.line.endswith("/leases:batch")]
        acquires = [each["acquire"] for batch in batches for each in batch["requests"] if "acquire" in each]
        assert sorted(acquire["seq"] for acquire in acquires) == list(range(1, 41))
        assert len(router.pool.statistics().senders) == 1
    assert router.pool.statistics().senders == []


@pytest.mark.slow
async def test_the_heart_beats_while_the_loop_is_blocked() -> None:
    """Signs of life come from a thread of their own: a blocked event loop does not lose the sender."""
    pool = trimtab.Pool("rollout/default", sender_ttl_s=2.0)
    pool.add_backend("127.0.0.1:1")
    role = trimtab._core.Role("rollout", {"default": pool})
    plane = trimtab._core.DataPlane.start(roles=[role], worker_threads=1, probe_interval_s=3600.0)
    try:
        async with client(f"http://127.0.0.1:{plane.port}", key=None) as api, api.lease():
            deadline = time.monotonic() + 3.0
            while time.monotonic() < deadline:
                # Blocks the loop on purpose, and ticks as the data plane does.
                pool.tick()
                threading.Event().wait(0.02)
            (sender,) = pool.statistics().senders
            assert sender.held == 1
    finally:
        plane.shutdown(0.0)


async def test_a_sender_that_was_lost_is_told(router: RunningRouter) -> None:
    """A router that no longer knows the sender: a clear error, at once and from then on."""
    async with client(router.url) as api:
        router.pool.attach_sender("rollout/0", "another process", "train")
        for _ in range(2):
            with pytest.raises(trimtab.RouterRestarted, match="open a new client"):
                async with api.lease():
                    pass


async def test_areal_61g_a_restarted_router_is_noticed(router: RunningRouter, relay: Relay) -> None:
    """6.1 (g): another start of the router refuses what was meant for the one before; the client attaches again."""
    port = router.plane.port
    async with client(relay.url) as api:
        async with api.lease():
            pass
        before = len(relay.messages)
        router.plane.shutdown(0.0)
        role = trimtab._core.Role("rollout", {"default": router.pool})
        again = trimtab._core.DataPlane.start(
            roles=[role], port=port, admin_key=KEY, worker_threads=1, probe_interval_s=3600.0
        )
        try:
            async with api.lease():
                assert outstanding(router) == 1
            lines = [message.line.rpartition("/")[2] for message in relay.messages[before:]]
            assert lines == ["leases", "default", "senders", "leases", "settle"]
        finally:
            await api.close()
            again.shutdown(0.0)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:1", "ftp://h:1", "http://user:secret@h:1", "http://h:1/x", "http://h:1?x", "http://h:99999"],
)
def test_bad_urls_are_refused_without_repeating_them(url: str) -> None:
    """A wrong URL may be wrong by a password, so the error does not quote it."""
    with pytest.raises(trimtab.InvalidRequest, match="URL") as caught:
        client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "ä"])
def test_bad_keys_are_refused_without_repeating_them(key: str) -> None:
    """A key that no header can carry is refused before it reaches an error of the HTTP client."""
    with pytest.raises(trimtab.InvalidRequest, match="visible ASCII") as caught:
        client("http://127.0.0.1:1", key=key)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(("key", "error"), [(None, trimtab.Unauthenticated), ("wrong", trimtab.Forbidden)])
async def test_a_wrong_key_is_an_error(router: RunningRouter, key: str | None, error: type[Exception]) -> None:
    """Without the admin key nothing is told and nothing changes."""
    with pytest.raises(error):
        async with client(router.url, key=key):
            pass
    assert router.pool.statistics().senders == []


async def test_an_unknown_pool_is_named(router: RunningRouter) -> None:
    """A pool that the router does not have."""
    with pytest.raises(trimtab.UnknownPool, match="rollout/default"):
        async with client(router.url, pool="rollout/another"):
            pass


async def test_a_client_is_used_open(router: RunningRouter) -> None:
    """A client that was not opened, or was closed, says what to do."""
    api = client(router.url)
    with pytest.raises(RuntimeError, match="async with"):
        api.lease()
    await api.close()


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
async def test_bad_waits_are_refused(router: RunningRouter, wait: float) -> None:
    """Nothing waits without a deadline."""
    async with client(router.url) as api:
        with pytest.raises(trimtab.InvalidRequest, match="wait"):
            async with api.lease(wait=wait):
                pass

"""``trimtab.testing``: the helpers that other projects test with."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import wait_until
from trimtab import InvalidRequest, Router, UnknownLease, classify
from trimtab.testing import Answer, ScriptedEngine, VirtualClock, answer, complete, cut, held, reset, serving_pool


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A running engine of version 1."""
    with ScriptedEngine(weight_version=1) as engine:
        yield engine


def generate(url: str) -> httpx.Response:
    """One generation, as a caller writes it."""
    reply = httpx.post(url + "/generate", json={"text": "x"}, timeout=10, trust_env=False)
    return reply.raise_for_status()


def test_an_engine_answers_like_sglang(engine: ScriptedEngine) -> None:
    """Without a script a generation is completed, and the engine remembers what it was asked."""
    pool = serving_pool([engine])
    with Router(pool).lease("s") as lease:
        reply = generate(lease.url).json()
        lease.settle("completed", output_tokens=reply["meta_info"]["completion_tokens"])
    assert reply["meta_info"]["weight_version"] == lease.weight_version == 1
    assert (engine.paths(), engine.requests[0].json()) == (["/generate"], {"text": "x"})
    assert httpx.get(engine.url + "/model_info", trust_env=False).json() == {"weight_version": 1}


@pytest.mark.parametrize(
    ("scripted", "outcome"),
    [
        (reset(), "ambiguous"),
        (cut(), "ambiguous"),
        (cut(b""), "ambiguous"),
        (answer(400), "rejected"),
        (answer(500), "failed"),
    ],
    ids=["reset", "half-a-body", "nothing", "400", "500"],
)
def test_an_engine_fails_as_it_is_told(engine: ScriptedEngine, scripted: Answer, outcome: str) -> None:
    """The script is for the next request only; the exception it causes is classified."""
    engine.next(scripted, complete("fine", tokens=3))
    with pytest.raises(httpx.HTTPError) as caught:
        generate(engine.url)
    assert classify(caught.value) == outcome
    assert generate(engine.url).json()["text"] == "fine"


def test_an_aborted_generation(engine: ScriptedEngine) -> None:
    """What SGLang answers for a request that an update interrupted."""
    engine.next(complete(finish="abort", tokens=0))
    assert generate(engine.url).json()["meta_info"]["finish_reason"] == {"type": "abort"}


def test_an_engine_holds_its_answer(engine: ScriptedEngine) -> None:
    """The answer comes when the test says so."""
    release = threading.Event()
    engine.next(held(release, complete("late")))
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(generate(engine.url).json()["text"]))
    caller.start()
    release.set()
    caller.join(10)
    assert answers == ["late"]


def test_an_engine_that_stops_ends_its_connections() -> None:
    """Leaving the context leaves no thread behind, whatever callers keep open."""
    before = threading.active_count()
    with httpx.Client(trust_env=False) as caller:
        with ScriptedEngine() as engine:
            caller.get(engine.url + "/health")
        with pytest.raises(httpx.TransportError):
            caller.get(engine.url + "/health")
    assert threading.active_count() <= before + 1


def test_a_serving_pool() -> None:
    """The pool of a controller after its first publication; without a version it waits for one."""
    pool = serving_pool()
    assert (pool.state, pool.weight_version, len(pool.backends())) == ("serving", 1, 2)
    with Router(pool, sender="rollout/0", owner="train") as router, router.lease():
        assert pool.statistics().outstanding == 1
    assert serving_pool(version=None).state == "init"


@pytest.mark.slow
def test_the_fixtures(tmp_path: Path) -> None:
    """A project names the plugin and has both fixtures."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["trimtab.testing.fixtures"]')
    (tmp_path / "test_it.py").write_text(
        "def test_it(trimtab_pool, scripted_engine):\n"
        "    assert trimtab_pool.backends()[0].authority == scripted_engine.authority\n"
    )
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    finished = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in finished.stdout


async def test_a_held_answer_ends_with_the_engine() -> None:
    """An event that is never set does not keep the engine from stopping."""
    with ScriptedEngine() as engine, ThreadPoolExecutor(1) as threads:
        engine.next(held(threading.Event()))
        calling = threads.submit(generate, engine.url)
        await wait_until(engine.paths, "the request has arrived")
        engine.__exit__(None, None, None)
        assert isinstance(calling.exception(10), httpx.TransportError)


def test_an_hour_passes_at_once() -> None:
    """A virtual clock stands still until it is moved; what is due then happens, as in a running data plane."""
    clock = VirtualClock()
    pool = serving_pool(session_ttl_s=3600, clock=clock)
    router = Router(pool)
    with router.lease("traj") as lease:
        clock.advance(7200)
        assert pool.statistics().sessions == 1
    clock.advance(3599)
    with router.lease("traj") as again:
        assert (again.backend_id, again.sticky) == (lease.backend_id, True)
    clock.advance(3601)
    statistics = pool.statistics()
    assert (statistics.sessions, statistics.sessions_expired, clock.now_s) == (0, 1, 14400)


def test_a_sender_is_lost_without_waiting() -> None:
    """A sender that is silent for its TTL is gone with what it holds; its late result must not be used."""
    clock = VirtualClock()
    pool = serving_pool(clock=clock, sender_ttl_s=60)
    pool.attach_sender("proxy/0", "p1", "train")
    lease = pool.acquire("s", key=("proxy/0", "p1", 1))
    clock.advance(59)
    pool.heartbeat("proxy/0", "p1")
    clock.advance(60)
    assert [sender.silent_s for sender in pool.statistics().senders] == [60]
    clock.advance(1)
    assert (pool.state, pool.statistics().senders) == ("failed", [])
    with pytest.raises(UnknownLease):
        lease.settle("completed")


def test_a_virtual_clock_goes_forward_only() -> None:
    """Time that goes back is a bug of the test."""
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest):
            VirtualClock().advance(seconds)

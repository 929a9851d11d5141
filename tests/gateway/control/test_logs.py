"""Logs: state changes once, repeats with their number, verdicts when they change."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.gateway.control.conftest import one_role
from tests.support.scripts import dies_at
from tests.support.waiting import wait_until
from trimtab import Pool
from trimtab_gateway import EngineConfig, Gateway
from trimtab_gateway.events import MAX_LINES, log_events
from trimtab_gateway.log import configure_logging, get_logger
from trimtab_gateway.publisher import Publisher
from trimtab_gateway.reachability import ReachabilityLog
from trimtab_gateway.snapshot import Fleet, ServedRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lab import Lab


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The records of trimtab at info and above."""
    caplog.set_level(logging.INFO, logger="trimtab")
    return caplog


def test_a_state_change_is_one_line_with_its_pool(log: pytest.LogCaptureFixture) -> None:
    """And it is written once: the pool's ring is empty afterwards."""
    pool = Pool("rollout/tiny")
    pool.add_backend("10.0.0.1:30000")
    log_events([pool])
    (record,) = log.records
    assert "10.0.0.1:30000" in record.getMessage()
    assert (record.levelname, record.__dict__["pool"]) == ("INFO", "rollout/tiny")
    log_events([pool])
    assert len(log.records) == 1


def test_equal_lines_are_written_once_with_their_number(log: pytest.LogCaptureFixture) -> None:
    """An engine that flaps between two beliefs is two lines, not a hundred."""
    pool = Pool("rollout/tiny")
    backend = pool.add_backend("10.0.0.1:30000")
    log_events([pool])
    log.clear()
    for _ in range(50):
        pool.report_probe(backend, alive=False)
        pool.report_probe(backend, alive=True)
    log_events([pool])
    assert [record.__dict__["times"] for record in log.records] == [50, 50]


def test_sessions_that_move_together_are_one_line(log: pytest.LogCaptureFixture) -> None:
    """A hundred sessions that leave a draining engine are no hundred lines."""
    pool = Pool("rollout/tiny")
    pool.add_backend("10.0.0.1:30000")
    for session in range(100):
        pool.acquire(f"s{session}").settle("completed")
    pool.add_backend("10.0.0.2:30000")
    pool.drain_backend("10.0.0.1:30000")
    log_events([pool])
    log.clear()
    for session in range(100):
        pool.acquire(f"s{session}").settle("completed")
    log_events([pool])
    (record,) = log.records
    assert "draining" in record.getMessage()


async def test_requests_that_failed_are_counted_per_code_and_engine(log: pytest.LogCaptureFixture, lab: Lab) -> None:
    """One line names the code, the engine and the last lease and session; a client's mistake is not logged."""
    engine = await lab.engine(dies_at([], "rst"))
    async with (
        Gateway(one_role(EngineConfig(engine.authority))) as gateway,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        await wait_until(lambda: gateway.statistics().snapshot.ready, "the engine")
        for session in ("s1", "s2"):
            answer = await client.post(
                f"{gateway.url}/generate", json={"text": "a"}, headers={"x-trimtab-session": session}
            )
            assert answer.status_code == 502
        assert (await client.post(f"{gateway.url}/generate", json={"model": 1})).status_code == 400
        answered = answer.headers["x-trimtab-lease"]
    failed = [record.__dict__ for record in log.records if record.getMessage() == "requests failed"]
    assert sum(record["count"] for record in failed) == 2
    last = failed[-1]
    assert (last["code"], last["backend"], last["session"], last["lease"]) == (
        "upstream_broken",
        engine.authority,
        "s2",
        answered,
    )


def test_one_drain_writes_a_bounded_number_of_lines(log: pytest.LogCaptureFixture) -> None:
    """A thousand engines that come at once do not flood the log, and none is lost silently."""
    pool = Pool("rollout/tiny")
    for host in range(3000):
        pool.add_backend(f"10.0.{host // 250}.{host % 250}:30000")
    log_events([pool])
    assert len(log.records) == MAX_LINES + 1
    assert log.records[-1].__dict__["count"] == 3000 - MAX_LINES


def test_a_model_is_announced_when_it_can_serve_and_when_not(log: pytest.LogCaptureFixture) -> None:
    """No verdict before every engine was probed; then one line per change."""
    now = iter(range(1000))
    pool = Pool("rollout/tiny")
    publisher = Publisher(
        lambda: Fleet((ServedRole("rollout", {"tiny": pool}, "tiny"),)), clock=lambda: float(next(now))
    )
    backend = pool.add_backend("10.0.0.1:30000", proven=False)
    reachability = ReachabilityLog()

    def observed() -> list[tuple[str, str]]:
        log.clear()
        reachability.observe(publisher.current())
        return [(record.levelname, record.getMessage().partition(";")[0]) for record in log.records]

    assert observed() == []
    pool.report_probe(backend, alive=False)
    assert observed() == [("WARNING", "no engine can serve")]
    assert observed() == []
    pool.report_probe(backend, alive=True)
    assert observed() == [("INFO", "model is ready")]
    assert observed() == []
    pool.drain_backend(backend.id)
    assert observed() == [("WARNING", "no engine can serve")]


def test_engines_that_are_being_started_are_no_alarm(log: pytest.LogCaptureFixture) -> None:
    """A model without engines is worth a warning when nobody is going to bring any, or when it had some."""
    now = iter(range(1000))
    pool = Pool("rollout/tiny")
    publisher = Publisher(
        lambda: Fleet((ServedRole("rollout", {"tiny": pool}, "tiny"),)), clock=lambda: float(next(now))
    )
    reachability = ReachabilityLog()
    reachability.observe(publisher.current(), is_managed=True)
    assert log.records == []
    backend = pool.add_backend("10.0.0.1:30000")
    reachability.observe(publisher.current(), is_managed=True)
    pool.remove_backend(backend.id)
    reachability.observe(publisher.current(), is_managed=True)
    ReachabilityLog().observe(publisher.current())
    assert [record.levelname for record in log.records] == ["INFO", "WARNING", "WARNING"]


def test_an_engine_that_did_not_answer_is_named_once(log: pytest.LogCaptureFixture) -> None:
    """A model that is ready without it would hide a wrong address for ever."""
    now = iter(range(1000))
    pool = Pool("rollout/tiny")
    publisher = Publisher(
        lambda: Fleet((ServedRole("rollout", {"tiny": pool}, "tiny"),)), clock=lambda: float(next(now))
    )
    pool.add_backend("10.0.0.1:30000")
    silent = pool.add_backend("10.0.0.2:30000", proven=False)
    pool.report_probe(silent, alive=False)
    reachability = ReachabilityLog()
    for _ in range(3):
        reachability.observe(publisher.current())
    ready, warning = log.records
    assert (ready.getMessage(), ready.__dict__["engines"]) == ("model is ready", "1/2")
    assert (warning.levelname, warning.__dict__["urls"]) == ("WARNING", ["http://10.0.0.2:30000"])


@pytest.fixture
def root_handlers() -> Iterator[None]:
    """Puts the handlers and levels of logging back."""
    root, ours = logging.getLogger(), logging.getLogger("trimtab")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.mark.usefixtures("root_handlers")
def test_plain_lines_are_for_people() -> None:
    """Time, level, event, fields; values with spaces are quoted; a traceback follows its line."""
    stream = io.StringIO()
    configure_logging(stream)
    get_logger("test").info("engine is up", pool="rollout/tiny", note="two words", engines=["a", "b"])
    line = stream.getvalue()
    assert line.endswith("Z info    engine is up  pool=rollout/tiny  note='two words'  engines=a,b\n")
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        get_logger("test").exception("failed")
    assert "error   failed\nTraceback" in stream.getvalue()


@pytest.mark.usefixtures("root_handlers")
def test_json_lines_are_for_programs() -> None:
    """One object per line; other libraries' warnings come the same way."""
    stream = io.StringIO()
    configure_logging(stream, as_json=True)
    get_logger("test").info("engine is up", pool="rollout/tiny")
    logging.getLogger("another").warning("beware of %s", "dogs")
    logging.getLogger("another").info("chatter")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["pool"], first["level"]) == ("engine is up", "rollout/tiny", "info")
    assert (second["event"], second["level"]) == ("beware of dogs", "warning")
    assert first["timestamp"].endswith("Z")

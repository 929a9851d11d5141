"""Proxied requests and weight updates: what is refused, what waits, and which weights an answer names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.expect import error
from tests.support.http1 import request_bytes
from tests.support.scripts import one
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.lab import Gateway, Lab

WAIT = [("x-trimtab-wait", "60")]
VERSION = "x-trimtab-weight-version"


def update(gateway: Gateway, version: int) -> None:
    """Begin an update, in the order of a controller, up to the moment before it is published."""
    gateway.pool.begin_update(f"to-{version}", to=version)
    gateway.pool.drain(f"to-{version}", timeout_s=10)
    gateway.pool.end_server_pause(f"to-{version}")


async def test_requests_wait_through_an_update(lab: Lab) -> None:
    """Sixteen requests sent during an update all run once, on the new weights, which their answers name."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.publish("first", 1)
    assert (await gateway.post("/generate")).head.get(VERSION) == "1"
    update(gateway, 2)
    error(await gateway.post("/generate"), 503, "not_serving")
    waiting = [asyncio.create_task(gateway.post("/generate", b"{}", WAIT)) for _ in range(16)]
    await wait_until(lambda: gateway.pool.statistics().waiters == 16, "all are parked")
    assert len(engine.requests) == 1
    gateway.pool.publish("to-2", 2)
    answers = await asyncio.gather(*waiting)
    assert [(answer.status, answer.head.get(VERSION)) for answer in answers] == [(200, "2")] * 16
    assert len(engine.requests) == 17


async def test_the_end_of_a_wait_is_too_early(lab: Lab) -> None:
    """425 with the reason, and no engine was asked."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.fence("default", "evaluation")
    answer = await gateway.post("/v1/completions", b"{}", [("x-trimtab-wait", "0.05")])
    assert (answer.status, answer.code, answer.head.get("retry-after")) == (425, "fenced", "1")
    assert answer.json()["error"]["retryable"] is True
    assert not engine.requests


async def test_a_client_that_leaves_while_parked_is_forgotten(lab: Lab) -> None:
    """It leaves the queue at once; nothing runs for it when the fence is lifted."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.fence("default", "evaluation")
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b"{}", WAIT))
    await wait_until(lambda: gateway.pool.statistics().waiters == 1, "it is parked")
    await client.close()
    await wait_until(lambda: gateway.pool.statistics().waiters == 0, "it has left the queue")
    gateway.pool.unfence("default", "evaluation")
    assert (await gateway.post("/generate")).status == 200
    assert len(engine.requests) == 1


async def test_a_pinned_version_is_run_or_refused(lab: Lab) -> None:
    """A version that is not published yet may be asked for again, one that is over may not."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    gateway.pool.publish("first", 5)
    for version, retryable in ((4, False), (6, True)):
        answer = await gateway.post("/generate", b"{}", [(VERSION, str(version))])
        assert (answer.status, answer.code) == (425, "version_mismatch")
        assert answer.json()["error"]["retryable"] is retryable
    answer = await gateway.post("/generate", b"{}", [(VERSION, "5")])
    assert (answer.status, answer.head.get(VERSION)) == (200, "5")
    assert len(engine.requests) == 1


async def test_terms_that_cannot_be_read_are_refused(lab: Lab) -> None:
    """A wait that is no time, and a version that is no number: 400 before anything is leased."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    for name, value, code in (
        ("x-trimtab-wait", "soon", "invalid_wait"),
        ("x-trimtab-wait", "-1", "invalid_wait"),
        (VERSION, "default", "invalid_weight_version"),
    ):
        error(await gateway.post("/generate", b"{}", [(name, value)]), 400, code)
    assert not engine.requests

"""Starting and stopping: the port is ours or the error says whose; what runs may finish, then it is cut."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.client import ask
from tests.support.http1 import DONE, request_bytes
from tests.support.lab import MODEL, ROLE, make_pool
from tests.support.scripts import Gate, events, gated, hold, one
from tests.support.waiting import wait_until
from trimtab import StartError, _core

if TYPE_CHECKING:
    from tests.support.lab import Gateway, Lab


async def refuses(gateway: Gateway) -> None:
    """Wait until the gateway accepts no new connection."""

    def refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((gateway.host, gateway.port)) == errno.ECONNREFUSED

    await wait_until(refused, "new connections are refused")


async def test_a_running_stream_finishes_within_the_grace(lab: Lab) -> None:
    """Shutdown stops accepting at once and waits for the stream."""
    gate = Gate()
    engine = await lab.engine(gated(gate, events(2)))
    gateway = await lab.gateway(engine)
    client = await lab.client(gateway)
    await client.send(request_bytes("/generate", b'{"stream":true}'))
    head = await client.head()
    stopping = asyncio.create_task(gateway.shutdown(30))
    await refuses(gateway)
    assert not stopping.done()
    gate.open(3)
    assert await client.body(head) == b"".join(events(2)) + DONE
    await client.close()
    await asyncio.wait_for(stopping, 10)
    assert gateway.outcomes() == {"completed": 1}
    assert gateway.outstanding == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_finish_is_cut_and_nothing_stays_counted(lab: Lab, stream: bool) -> None:
    """After the grace the client can tell, the engine sees the end, every lease is settled."""
    engine = await lab.engine(gated(Gate(), events(1)) if stream else hold())
    gateway = await lab.gateway(engine)
    clients = [await lab.client(gateway) for _ in range(10)]
    for client in clients:
        await client.send(request_bytes("/generate", b'{"stream":true}'))
    await gateway.busy(10)
    await wait_until(lambda: sum(r.body is not None for r in engine.requests) == 10, "the engine has all requests")
    await asyncio.wait_for(gateway.shutdown(0.05), 10)
    assert gateway.outstanding == 0
    assert set(gateway.outcomes()) <= {"cancelled", "ambiguous"}
    assert sum(gateway.outcomes().values()) == 10
    for client in clients:
        await client.fails()
    await wait_until(lambda: engine.disconnects == 10, "the engine saw the end of all requests")


async def test_idle_connections_do_not_delay_a_shutdown(lab: Lab) -> None:
    """Clients that ask nothing, never or not any more, are not worth a grace of a minute."""
    gateway = await lab.gateway(await lab.engine(one()))
    idle, mute = await lab.client(gateway), await lab.client(gateway)
    await idle.send(request_bytes("/generate"))
    await idle.response()
    await asyncio.wait_for(gateway.shutdown(60), 10)
    assert [await idle.rest(), await mute.rest()] == [b"", b""]


async def test_shutdown_is_idempotent_and_the_port_is_free_again(lab: Lab) -> None:
    """Twice is fine, at once too; a new gateway can take the port."""
    engine = await lab.engine(one())
    gateway = await lab.gateway(engine)
    await gateway.post("/generate")
    await asyncio.gather(gateway.shutdown(1), gateway.shutdown(1))
    await gateway.shutdown(1)
    again = await lab.gateway(engine, port=gateway.port)
    assert again.port == gateway.port
    assert (await again.post("/generate")).status == 200


async def test_statistics_outlive_the_data_plane(lab: Lab) -> None:
    """A stopped data plane still tells what it did, and holds nothing."""
    gateway = await lab.gateway(await lab.engine(one()))
    await gateway.post("/generate")
    await gateway.shutdown(1)
    statistics = gateway.plane.statistics()
    assert statistics["connections_total"] == 1
    assert [statistics[name] for name in ("open_requests", "connections", "upstream_connections")] == [0, 0, 0]


def test_a_taken_port_is_a_clear_error() -> None:
    """The message names the address; nothing is left running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=f"127.0.0.1:{port}"):
            _core.DataPlane.start(roles=[_core.Role(ROLE, {MODEL: make_pool([])})], port=port)


async def test_two_gateways_share_a_pool(lab: Lab) -> None:
    """The pool is the owner of the counts, whoever serves."""
    engines = await lab.engines(2, one())
    pool = make_pool(engines)
    first = await lab.gateway(pools={(ROLE, MODEL): pool})
    second = await lab.gateway(pools={(ROLE, MODEL): pool})
    for _ in range(5):
        await first.post("/generate")
        await second.post("/generate")
    assert [len(engine.requests) for engine in engines] == [5, 5]
    await first.shutdown()
    assert (await second.post("/generate")).status == 200


async def test_a_stopped_gateway_refuses(lab: Lab) -> None:
    """No half-alive listener."""
    gateway = await lab.gateway(await lab.engine(one()))
    await gateway.shutdown()
    with pytest.raises(ConnectionRefusedError):
        await ask(gateway.host, gateway.port, "/live", None, method="GET")

"""TLS at the listener and to engines: who is trusted, what is refused, and that nothing else changes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trustme

from tests.support.expect import error
from tests.support.http1 import DONE
from tests.support.scripts import drip, echo, hold, one
from tests.support.sockets import tcp_socket
from tests.support.waiting import wait_until
from trimtab import RouterAdmin, _core
from trimtab.errors import InvalidRequest
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.lab import Gateway as Plane
    from tests.support.lab import Lab


class Authority:
    """A certificate authority, and files with what it made."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._server = self._ca.issue_cert("127.0.0.1", "localhost")
        self.ca, self.cert, self.key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        self._ca.cert_pem.write_to_path(self.ca)
        self._server.private_key_pem.write_to_path(self.key)
        for index, blob in enumerate(self._server.cert_chain_pems):
            blob.write_to_path(self.cert, append=index > 0)

    @property
    def listener(self) -> dict[str, Any]:
        """Options of a data plane that shows the certificate."""
        return {"tls_cert": self.cert, "tls_key": self.key}

    def server(self, *names: str) -> ssl.SSLContext:
        """What an engine with a certificate for ``names`` shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (self._ca.issue_cert(*names) if names else self._server).configure_cert(context)
        return context

    def client(self) -> ssl.SSLContext:
        """What a client that trusts the authority has."""
        return ssl.create_default_context(cafile=self.ca)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One authority for all tests: making keys takes time."""
    return Authority(tmp_path_factory.mktemp("ca"))


@contextlib.asynccontextmanager
async def https(gateway: Plane, authority: Authority) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway with TLS."""
    url = f"https://127.0.0.1:{gateway.port}"
    async with httpx.AsyncClient(base_url=url, verify=authority.client(), trust_env=False) as client:
        yield client


async def test_the_listener_speaks_tls(lab: Lab, authority: Authority) -> None:
    """Bodies of megabytes, streams and errors pass as they do without it, on kept-alive connections."""
    engine = await lab.engine(echo())
    gateway = await lab.gateway(engine, **authority.listener)
    body = b'{"rid":"r","text":"' + b"x" * 3_000_000 + b'"}'
    async with https(gateway, authority) as client:
        for _ in range(3):
            answer = await client.post("/generate", content=body)
            assert (answer.status_code, answer.content == body) == (200, True)
        assert (await client.post("/generate", content=b"{")).json()["error"]["code"] == "invalid_json"
        engine.script = drip(50)
        streamed = await client.post("/generate", content=b'{"stream":true}')
        assert streamed.content.endswith(DONE)
    assert gateway.plane.statistics()["connections_total"] == 1


async def test_whoever_does_not_trust_the_certificate_sends_nothing(lab: Lab, authority: Authority) -> None:
    """A client that knows another authority ends the handshake; one without TLS gets no answer."""
    gateway = await lab.gateway(await lab.engine(one()), **authority.listener)
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await client.post(f"https://127.0.0.1:{gateway.port}/generate", content=b"{}")
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://127.0.0.1:{gateway.port}/live")
    await wait_until(lambda: gateway.plane.statistics()["connections"] == 0, "both are gone")


async def test_a_client_that_leaves_is_noticed_under_tls(lab: Lab, authority: Authority) -> None:
    """Its farewell ends the execution as everywhere: closed, aborted by id, cancelled."""
    engine = await lab.engine(hold())
    gateway = await lab.gateway(engine, **authority.listener)
    async with https(gateway, authority) as client:
        request = asyncio.create_task(client.post("/generate", content=b'{"rid":"gone"}', timeout=60))
        await gateway.busy(1)
        request.cancel()
    await gateway.idle()
    assert engine.aborted == ["gone"]
    assert gateway.outcomes() == {"cancelled": 1}


async def test_a_client_that_never_shakes_hands_does_not_hold_up_the_end(lab: Lab, authority: Authority) -> None:
    """Shutting down does not wait for its handshake."""
    gateway = await lab.gateway(await lab.engine(one()), **authority.listener)
    with contextlib.closing(tcp_socket()) as silent:
        silent.setblocking(False)
        await asyncio.get_running_loop().sock_connect(silent, (gateway.host, gateway.port))
        await wait_until(lambda: gateway.plane.statistics()["connections"] == 1, "accepted")
        await asyncio.wait_for(gateway.shutdown(60), 10)


async def test_engines_are_reached_through_tls(lab: Lab, authority: Authority) -> None:
    """Requests, probes and aborts; the connection is reused, and the lease says ``https``."""
    engine = await lab.engine(one(), tls=authority.server())
    gateway = await lab.gateway(engine, engine_ca=authority.ca, engine_key="k")
    for _ in range(3):
        answer = await gateway.post("/generate")
        assert (answer.status, answer.head.get("x-trimtab-backend")) == (200, engine.authority)
    statistics = gateway.plane.statistics()
    assert (statistics["upstream_connections_total"], statistics["upstream_reused_total"]) == (1, 3)
    assert [probe.get("authorization") for probe in engine.probes] == ["Bearer k"]
    engine.script = hold()
    client = await lab.client(gateway)
    await client.send(b'POST /generate HTTP/1.1\r\nhost: g\r\ncontent-length: 14\r\n\r\n{"rid":"gone"}')
    await gateway.busy(1)
    await client.close()
    await gateway.idle()
    assert engine.aborted == ["gone"]
    lease = gateway.pool.acquire()
    assert lease.url == f"https://{engine.authority}"
    lease.settle("not_sent")


async def test_big_bodies_pass_both_ways_through_an_engine_with_tls(lab: Lab, authority: Authority) -> None:
    """Every byte of 8 MB, there and back."""
    gateway = await lab.gateway(await lab.engine(echo(), tls=authority.server()), engine_ca=authority.ca)
    body = b'{"rid":"r","text":"' + bytes(range(35, 90)) * 150_000 + b'"}'
    assert (await gateway.post("/generate", body)).body == body


@pytest.mark.parametrize("wrong", ["untrusted", "other name"])
async def test_an_engine_that_cannot_be_verified_gets_nothing(lab: Lab, authority: Authority, wrong: str) -> None:
    """Not one byte of the request: 503, which may be sent again, and the reason in the message."""
    names = ("engine.example",) if wrong == "other name" else ()
    engine = await lab.engine(one(), tls=authority.server(*names), model_info=None)
    gateway = await lab.gateway(engine, engine_ca=None if wrong == "untrusted" else authority.ca)
    refused = error(await gateway.post("/generate"), 503, "backend_unreachable")
    assert refused["retryable"] is True
    assert "certificate" in refused["message"]
    assert engine.requests == []
    assert gateway.outcomes() == {"not_sent": 1}


async def test_an_engine_that_was_never_verified_says_why(lab: Lab, authority: Authority) -> None:
    """No request is sent to it, so that no 503 has the reason: /ready has, until it can be reached."""
    engine = await lab.engine(one(), tls=authority.server("engine.example"))
    gateway = await lab.gateway(engine, engine_ca=authority.ca, pool_options={"proven": False}, probe_interval_s=0.02)
    (note,) = await wait_until(gateway.plane.engine_notes, "it is noted")
    assert note["backend"] == engine.authority
    assert "certificate" in note["note"]
    assert "certificate" in str((await gateway.get("/ready")).json())
    error(await gateway.post("/generate"), 503, "no_eligible_backend")


async def test_an_engine_without_tls_behind_https_gets_nothing(lab: Lab, authority: Authority) -> None:
    """It waits for the rest of what it takes for a request: the handshake ends with the connect timeout."""
    engine = await lab.engine(one(), model_info=None)
    gateway = await lab.gateway(f"https://{engine.authority}", engine_ca=authority.ca, connect_timeout_s=0.2)
    error(await gateway.post("/generate"), 504, "connect_timeout")
    assert gateway.outcomes() == {"not_sent": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tls_cert": "{cert}"}, "tls_cert and tls_key go together"),
        ({"tls_cert": "/absent", "tls_key": "{key}"}, "tls_cert /absent is refused"),
        ({"tls_cert": "{cert}", "tls_key": "/absent"}, "tls_key /absent is refused"),
        ({"tls_cert": "{cert}", "tls_key": "{cert}"}, "tls_key .* is refused"),
        ({"tls_cert": "{key}", "tls_key": "{key}"}, "tls_cert .*none is in it"),
        ({"engine_ca": "/absent"}, "engine_ca /absent is refused"),
        ({"engine_ca": "{key}"}, "engine_ca .*none is in it"),
    ],
)
def test_files_that_cannot_be_used_are_named(authority: Authority, options: dict[str, str], message: str) -> None:
    """At the start, with the option, the path and the reason."""
    files = {name: path.format(cert=authority.cert, key=authority.key) for name, path in options.items()}
    role = _core.Role("rollout", {"tiny": _core.Pool()})
    with pytest.raises(InvalidRequest, match=message):
        _core.DataPlane.start(roles=[role], **files)  # type: ignore[arg-type]


def test_a_configuration_needs_certificate_and_key() -> None:
    """One without the other is refused with the name of the missing one."""
    roles = (RoleConfig("rollout", (ModelConfig("tiny"),)),)
    with pytest.raises(ConfigError, match="tls_key: is missing"):
        GatewayConfig(roles, tls_cert="cert.pem")
    with pytest.raises(ConfigError, match="engine_ca: 3 is refused"):
        GatewayConfig(roles, engine_ca=3)  # type: ignore[arg-type]


async def test_a_whole_gateway_with_tls_on_both_sides(
    lab: Lab, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """URL, discovery, lease API client and a request: all of them say and use https."""
    engine = await lab.engine(one(), tls=authority.server())
    roles = (RoleConfig("rollout", (ModelConfig("tiny", (EngineConfig(engine.url),)),)),)
    config = GatewayConfig(roles, port=0, engine_ca=authority.ca, **authority.listener)
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    async with (
        Gateway(config) as gateway,
        httpx.AsyncClient(base_url=gateway.url, verify=authority.client(), trust_env=False) as client,
    ):
        assert gateway.url.startswith("https://")
        await wait_until(lambda: gateway.statistics().snapshot.ready, "the probe was answered")
        assert (await client.post("/generate", content=b"{}")).status_code == 200
        document = (await client.get("/engines")).json()
        assert document["models"]["tiny"]["engines"][0]["base_url"] == engine.url
        with RouterAdmin(gateway.url, pool="rollout/tiny") as admin:
            assert (await asyncio.to_thread(admin.status))["state"] == "serving"

"""Spans of traced requests reach a collector over OTLP/HTTP; others cost and send nothing."""

from __future__ import annotations

import gzip
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.gateway.control.conftest import NOBODY, Served, one_role
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab.errors import StartError
from trimtab_gateway import EngineConfig, Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lab import Lab

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The spans that reach a collector, to which the environment points."""
    with collecting() as (url, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-gateway")
        yield spans


@contextmanager
def collecting() -> Iterator[tuple[str, list[Any]]]:
    """A collector on a free port."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            message = ExportTraceServiceRequest.FromString(body)
            for resource in message.resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    spans.extend((names["service.name"], span) for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span as Python values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_sampled_request_is_one_span(lab: Lab, collector: list[Any]) -> None:
    """It is a child of the client's span and says where the request ran and how long its phases took.

    The client decides: a request without ``traceparent``, and one whose trace is not recorded, make none.
    """
    engine = await lab.engine(one())
    config = one_role(EngineConfig(engine.authority, id="e0"), traces=True)
    async with Gateway(config) as gateway, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        await Served(gateway, client).eligible(1)
        lease = ""
        for headers in ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, {"traceparent": f"00-{TRACE}-{SPAN}-00"}, {}):
            answer = await client.post("/generate", json={"text": "a"}, headers={"x-trimtab-session": "s", **headers})
            lease = lease or answer.headers["x-trimtab-lease"]
        pool = gateway.pool("rollout", "tiny")
        await wait_until(lambda: pool.statistics().outstanding == 0, "the leases to end")
    ((service, span),) = collector
    assert service == "my-gateway"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert span.name == "trimtab rollout/tiny"
    found = attributes(span)
    assert 0 <= found.pop("trimtab.queue_s") < found.pop("trimtab.first_byte_s") + 1
    assert found == {
        "trimtab.role": "rollout",
        "trimtab.model": "tiny",
        "trimtab.backend": "e0",
        "trimtab.lease": lease,
        "trimtab.session": "s",
        "trimtab.outcome": "completed",
        "http.response.status_code": 200,
    }
    assert span.end_time_unix_nano > span.start_time_unix_nano > 1_500_000_000_000_000_000


async def test_without_the_knob_nothing_is_kept(lab: Lab, collector: list[Any]) -> None:
    """Nobody collects, so nothing is remembered."""
    engine = await lab.engine(one())
    config = one_role(EngineConfig(engine.authority))
    async with Gateway(config) as gateway, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        await Served(gateway, client).eligible(1)
        await client.post("/generate", json={"text": "a"}, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert collector == []


async def test_an_execution_that_never_began_is_an_error(
    lab: Lab, collector: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has a span of its own, so a retry is visible: the first could not connect, the second ran."""
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    engine = await lab.engine(one())
    config = one_role(
        EngineConfig(NOBODY, 100.0, "gone"),
        EngineConfig(engine.authority, id="e1"),
        traces=True,
        probe_interval_s=3600.0,
    )
    async with Gateway(config) as gateway, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        await Served(gateway, client).eligible(1)
        pool = gateway.pool("rollout", "tiny")
        gone = next(backend for backend in pool.backends() if backend.id == "gone")
        pool.report_probe(gone, alive=True)
        answer = await client.post("/generate", json={"text": "a"}, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
        assert answer.status_code == 200
        await wait_until(lambda: pool.statistics().outstanding == 0, "the leases to end")
    assert {service for service, _ in collector} == {"trimtab"}
    spans = {attributes(span)["trimtab.backend"]: span for _, span in collector}
    assert spans.keys() == {"gone", "e1"}
    assert spans["gone"].status.message == "not_sent"
    assert "http.response.status_code" not in attributes(spans["gone"])
    assert attributes(spans["e1"])["trimtab.outcome"] == "completed"


async def test_missing_packages_are_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that cannot export says what to install, and leaves nothing behind."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartError, match=r"pip install 'trimtab-gateway\[otel\]'"):
        async with Gateway(one_role(EngineConfig(NOBODY), traces=True)):
            pass

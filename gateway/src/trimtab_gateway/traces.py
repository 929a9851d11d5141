"""Spans of traced requests, exported with OpenTelemetry.

The data plane keeps what ended and was traced by its client; here it becomes one span per execution, a child of the
client's. Spans are made off the event loop, in batches, after the fact: no request waits for them. Where they go is set
by the variables that every OpenTelemetry program reads, such as ``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from trimtab import __version__
from trimtab.errors import StartError
from trimtab_gateway.log import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from opentelemetry.trace import Tracer

    from trimtab._core import DataPlane

PERIOD_S = 0.5
logger = get_logger("gateway")


@asynccontextmanager
async def exporting(data_plane: DataPlane) -> AsyncIterator[None]:
    """Export what ``data_plane`` finishes inside the block, and the rest at its end.

    Raises:
        StartError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise StartError(
            f"traces is true and {missing.name} is not installed: pip install 'trimtab-gateway[otel]', or leave it out"
        ) from missing
    resource = Resource.create({"service.version": __version__})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        # Neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES has one.
        resource = resource.merge(Resource({"service.name": "trimtab"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("trimtab", __version__)
    task = asyncio.create_task(_export_for_ever(data_plane, tracer), name="trimtab-gateway-traces")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(_export, data_plane, tracer)
        await asyncio.to_thread(provider.shutdown)


async def _export_for_ever(data_plane: DataPlane, tracer: Tracer) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        try:
            await asyncio.to_thread(_export, data_plane, tracer)
        except Exception:
            # Spans are worth less than the gateway that goes on without them.
            logger.exception("traces could not be exported")


def _export(data_plane: DataPlane, tracer: Tracer) -> None:
    finished, dropped = data_plane.take_traces()
    make_spans(finished, tracer)
    if dropped:
        logger.warning("traced requests were not exported: more ended than are kept", count=dropped)


def make_spans(finished: Iterable[dict[str, Any]], tracer: Tracer) -> None:
    """Make a span of each entry of ``DataPlane.take_traces``.

    Args:
        finished: What ended.
        tracer: Makes and ends the spans.
    """
    from opentelemetry.trace import SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    for entry in finished:
        headers = {name: entry[name] for name in ("traceparent", "tracestate") if entry[name] is not None}
        role, _, model = entry["pool"].partition("/")
        attributes = {
            "trimtab.role": role,
            "trimtab.model": model,
            "trimtab.backend": entry["backend"],
            "trimtab.lease": entry["lease"],
            "trimtab.session": entry["session"],
            "trimtab.weight_version": entry["weight_version"],
            "trimtab.outcome": entry["outcome"],
            "trimtab.queue_s": entry["queue_s"],
            "trimtab.first_byte_s": entry["first_byte_s"],
            "http.response.status_code": entry["status"],
        }
        span = tracer.start_span(
            f"trimtab {entry['pool']}",
            context=propagator.extract(headers),
            kind=SpanKind.CLIENT,
            attributes={name: value for name, value in attributes.items() if value is not None},
            start_time=entry["ended_ns"] - round(entry["total_s"] * 1e9),
        )
        if entry["outcome"] in ("failed", "not_sent", "ambiguous"):
            span.set_status(StatusCode.ERROR, entry["outcome"])
        span.end(entry["ended_ns"])

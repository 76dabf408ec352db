"""OpenTelemetry spans: one an attempt, with its stages, when a collector is configured.

Without a collector's address, OpenTelemetry is not even imported. Spans are made after the answer,
from the times in its event, and sent by a thread of the library through a bounded queue.
"""

import random
from collections.abc import Callable
from typing import Any

from contracts.events import PredictionEvent
from gateway.calls import Call

_NANOSECONDS = 1_000_000_000


class TracingUnavailableError(Exception):
    """A collector is configured and the extra ``tracing`` is not installed."""


class SpanTracer:
    """Makes spans of finished attempts.

    ``share`` of the requests without a ``traceparent`` get spans.
    """

    def __init__(self, provider: Any, share: float, draw: Callable[[], float]) -> None:  # noqa: ANN401
        self._provider = provider
        self._tracer = provider.get_tracer("headrace.gateway")
        self._share = share
        self._draw = draw

    def attempt(self, call: Call, event: PredictionEvent) -> str:
        """See ``gateway.inference.pipeline.Tracer``."""
        parent = call.trace_parent
        # The last field of a traceparent says whether its sender keeps the trace.
        wanted = int(parent[53:55], 16) & 1 if parent else self._draw() < self._share
        if not wanted:
            return ""
        from opentelemetry import context, trace  # noqa: PLC0415 - see the module's docstring
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        carrier = {"traceparent": parent} if parent else {}
        above = TraceContextTextMapPropagator().extract(carrier, context.Context())
        at = int(event.time * _NANOSECONDS)
        span = self._tracer.start_span(
            "predict",
            context=above,
            kind=trace.SpanKind.SERVER,
            start_time=at,
            attributes={
                "headrace.endpoint": event.endpoint,
                "headrace.version": event.version,
                "headrace.arm": event.arm.value,
                "headrace.request_id": event.request_id,
                "headrace.texts": len(event.texts),
                "http.response.status_code": event.status,
            },
        )
        if event.status >= 500:
            span.set_status(trace.StatusCode.ERROR)
        inside = trace.set_span_in_context(span, above)
        latency = event.latency
        begin = at
        for name in ("queue", "tokenise", "wait", "infer"):
            end = begin + int(getattr(latency, name) * _NANOSECONDS)
            self._tracer.start_span(name, context=inside, start_time=begin).end(end)
            begin = end
        span.end(at + int(latency.total * _NANOSECONDS))
        return f"{span.get_span_context().trace_id:032x}"

    def close(self) -> None:
        """Sends what waits; blocks for some seconds at most."""
        self._provider.shutdown()


def trace_id(trace_parent: str | None) -> str:
    """The trace id of a well-formed ``traceparent``; empty without one."""
    return trace_parent[3:35] if trace_parent else ""


def open_tracer(endpoint: str, share: float) -> SpanTracer | None:
    """The tracer for a collector, or None if no address is given.

    Raises:
        TracingUnavailableError: OpenTelemetry is not installed.
    """
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingUnavailableError(
            "Traces need an extra: pip install 'headrace[tracing]'; or leave --otlp-endpoint empty."
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "headrace-gateway"}))
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return SpanTracer(provider, share, random.random)

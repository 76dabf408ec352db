"""OpenTelemetry spans: one an attempt, with its stages, when a collector is configured.

Without a collector's address, OpenTelemetry is not even imported. Spans are made after the answer,
from the times in its event, and sent by a thread of the library through a bounded queue. By the
conventions for generative AI, if they are asked for, requests are measured too.
"""

import random
import uuid
from collections.abc import Callable
from typing import Any

from contracts.events import PredictionEvent
from contracts.tasks import Task
from gateway.calls import Call
from gateway.telemetry import gen_ai

_NANOSECONDS = 1_000_000_000
_CLOSE_MILLISECONDS = 5000


class TracingUnavailableError(Exception):
    """A collector is configured and the extra ``tracing`` is not installed."""


class SpanTracer:
    """Makes spans of finished attempts.

    ``share`` of the requests without a ``traceparent`` get spans. With ``meters``, an
    OpenTelemetry provider, spans have the conventions' names, and every request is measured.
    """

    def __init__(
        self,
        provider: Any,  # noqa: ANN401
        share: float,
        draw: Callable[[], float],
        meters: Any = None,  # noqa: ANN401
    ) -> None:
        self._provider, self._meters = provider, meters
        self._histograms = gen_ai.GenAiHistograms(meters) if meters is not None else None
        self._tracer = provider.get_tracer("headrace.gateway")
        self._share = share
        self._draw = draw

    def attempt(self, call: Call, event: PredictionEvent, task: Task) -> str:
        """See ``gateway.inference.pipeline.Tracer``."""
        named = gen_ai.describe(event, task) if self._histograms is not None else {}
        parent = call.trace_parent
        # The last field of a traceparent says whether its sender keeps the trace.
        wanted = int(parent[53:55], 16) & 1 if parent else self._draw() < self._share
        traced, inside = self._make_spans(call, event, named) if wanted else ("", None)
        # Not of copies for a shadow, nor of what failed before another version answered.
        if self._histograms is not None and event.answered and not call.bulk:
            self._histograms.record(event, named, inside)
        return traced

    def _make_spans(
        self, call: Call, event: PredictionEvent, named: dict[str, Any]
    ) -> tuple[str, Any]:
        """Makes an attempt's spans; the id of its trace, and the context of its span."""
        parent = call.trace_parent
        from opentelemetry import context, trace  # noqa: PLC0415 - see the module's docstring
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        carrier = {"traceparent": parent} if parent else {}
        above = TraceContextTextMapPropagator().extract(carrier, context.Context())
        at = int(event.time * _NANOSECONDS)
        span = self._tracer.start_span(
            f"{named['gen_ai.operation.name']} {event.endpoint}" if named else "predict",
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
                **named,
                **(gen_ai.describe_answer(event) if named else {}),
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
        return f"{span.get_span_context().trace_id:032x}", inside

    def close(self) -> None:
        """Sends what waits; blocks for some seconds at most."""
        self._provider.shutdown()
        if self._meters is not None:
            self._meters.shutdown(_CLOSE_MILLISECONDS)


def trace_id(trace_parent: str | None) -> str:
    """The trace id of a well-formed ``traceparent``; empty without one."""
    return trace_parent[3:35] if trace_parent else ""


def open_tracer(endpoint: str, share: float, opt_in: str = "") -> SpanTracer | None:
    """The tracer for a collector, or None if no address is given.

    ``opt_in``: the conventions that are asked for, as ``gen_ai.VARIABLE`` names them.

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
    # What measures must be told from other gateways' measures.
    names = {"service.name": "headrace-gateway", "service.instance.id": str(uuid.uuid4())}
    resource, insecure = Resource.create(names), endpoint.startswith("http://")
    provider, meters = TracerProvider(resource=resource), None
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=insecure)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    if gen_ai.is_asked_for(opt_in):
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter,
        )
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        sent = OTLPMetricExporter(endpoint=endpoint, insecure=insecure)
        meters = MeterProvider([PeriodicExportingMetricReader(sent)], resource)
    return SpanTracer(provider, share, random.random, meters)

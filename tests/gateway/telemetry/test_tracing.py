"""Spans: one an attempt with its stages, on the caller's trace, and nothing when off."""

import queue
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from gateway_world import call_of, event_of
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from contracts.events import Latency, PredictionEvent
from gateway.telemetry.tracing import SpanTracer, open_tracer

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def attempt(status: int = 200) -> PredictionEvent:
    latency = Latency(0.1, 0.2, 0.3, 0.4, 1.1)
    return event_of(time=100.0, status=status, latency=latency)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def tracer_of(exporter: InMemorySpanExporter, share: float = 1.0, draw: float = 0.5) -> SpanTracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SpanTracer(provider, share, lambda: draw)


def test_no_collector_no_tracer() -> None:
    assert open_tracer("", 1.0) is None


def test_an_attempt_is_a_span_with_its_stages(exporter: InMemorySpanExporter) -> None:
    tracer_of(exporter).attempt(call_of("a"), attempt())
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"predict", "queue", "tokenise", "wait", "infer"}
    whole = spans["predict"]
    assert whole.start_time == 100_000_000_000
    assert whole.end_time == 101_100_000_000
    assert whole.attributes is not None
    assert whole.attributes["headrace.version"] == "1"
    infer = spans["infer"]
    assert infer.start_time == 100_600_000_000
    assert infer.parent is not None
    assert infer.parent.span_id == whole.context.span_id


def test_a_callers_trace_goes_on(exporter: InMemorySpanExporter) -> None:
    call = replace(call_of("a"), trace_parent=PARENT)
    assert tracer_of(exporter, share=0.0).attempt(call, attempt(504)) == TRACE
    whole = next(span for span in exporter.get_finished_spans() if span.name == "predict")
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert not whole.status.is_ok


def test_a_trace_that_its_caller_does_not_keep_is_not_made(exporter: InMemorySpanExporter) -> None:
    call = replace(call_of("a"), trace_parent=PARENT[:-2] + "00")
    assert not tracer_of(exporter).attempt(call, attempt())
    assert not tracer_of(exporter, share=0.5, draw=0.7).attempt(call_of("a"), attempt())
    assert exporter.get_finished_spans() == ()


def test_a_collector_gets_the_spans_over_otlp() -> None:
    arrived: queue.Queue[str] = queue.Queue()

    class Collector(TraceServiceServicer):
        def Export(  # noqa: N802 - the protocol's name
            self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
        ) -> ExportTraceServiceResponse:
            for spans in request.resource_spans:
                for scope in spans.scope_spans:
                    for span in scope.spans:
                        arrived.put(f"{span.name} {span.trace_id.hex()}")
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tracer = open_tracer(f"http://127.0.0.1:{port}", 1.0)
    assert tracer is not None
    try:
        tracer.attempt(replace(call_of("a"), trace_parent=PARENT), attempt())
        tracer.close()
        spans = {arrived.get(timeout=60) for _ in range(5)}
    finally:
        server.stop(grace=None)
    stages = ("predict", "queue", "tokenise", "wait", "infer")
    assert spans == {f"{name} {TRACE}" for name in stages}

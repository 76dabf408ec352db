"""Spans: one an attempt with its stages, on the caller's trace, and nothing when off.

By the conventions for generative AI only if they are asked for, and then requests are measured.
"""

import queue
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from gateway_world import call_of, event_of
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from contracts.endpoint import Arm
from contracts.events import Latency, PredictionEvent, TextRecord
from contracts.tasks import Task
from gateway.telemetry import gen_ai
from gateway.telemetry.tracing import SpanTracer, open_tracer

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
LABELS = Task.TEXT_CLASSIFICATION
WRITTEN = TextRecord(tokens=7, words=5, unk=0, truncated=False, label="length", generated=3)


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
    tracer_of(exporter).attempt(call_of("a"), attempt(), LABELS)
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
    assert tracer_of(exporter, share=0.0).attempt(call, attempt(504), LABELS) == TRACE
    whole = next(span for span in exporter.get_finished_spans() if span.name == "predict")
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert not whole.status.is_ok


def test_a_trace_that_its_caller_does_not_keep_is_not_made(exporter: InMemorySpanExporter) -> None:
    call = replace(call_of("a"), trace_parent=PARENT[:-2] + "00")
    assert not tracer_of(exporter).attempt(call, attempt(), LABELS)
    assert not tracer_of(exporter, share=0.5, draw=0.7).attempt(call_of("a"), attempt(), LABELS)
    assert exporter.get_finished_spans() == ()


# The conventions for generative AI


def measured_by(
    exporter: InMemorySpanExporter, share: float = 1.0
) -> tuple[SpanTracer, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return SpanTracer(provider, share, lambda: 0.5, MeterProvider([reader])), reader


def points(reader: InMemoryMetricReader, name: str) -> list[HistogramDataPoint]:
    data = reader.get_metrics_data()
    return [
        point
        for resource in ([] if data is None else data.resource_metrics)
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
        if isinstance(point, HistogramDataPoint)
    ]


@pytest.mark.parametrize(
    ("value", "asked"),
    [("", False), ("http", False), ("http, gen_ai_latest_experimental", True), ("gen_ai", False)],
)
def test_only_the_fields_variable_asks_for_the_conventions(value: str, asked: bool) -> None:
    assert gen_ai.VARIABLE == "OTEL_SEMCONV_STABILITY_OPT_IN"
    assert gen_ai.is_asked_for(value) is asked


@pytest.mark.parametrize(
    ("task", "operation"),
    [
        (Task.TEXT_GENERATION, "text_completion"),
        (Task.TEXT_EMBEDDING, "embeddings"),
        (Task.HYBRID_EMBEDDING, "embeddings"),
        (Task.TEXT_CLASSIFICATION, "text-classification"),
    ],
)
def test_a_span_has_the_conventions_name_and_attributes_and_no_text(
    exporter: InMemorySpanExporter, task: Task, operation: str
) -> None:
    tracer, _ = measured_by(exporter)
    tracer.attempt(call_of("a secret"), event_of(WRITTEN, WRITTEN), task)
    span = next(each for each in exporter.get_finished_spans() if each.attributes)
    assert span.name == f"{operation} sentiment"
    said = {name: value for name, value in (span.attributes or {}).items() if "gen_ai" in name}
    assert said == {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "headrace",
        "gen_ai.request.model": "sentiment",
        "gen_ai.response.model": "sentiment-v1",
        "gen_ai.response.id": "r",
        "gen_ai.usage.input_tokens": 14,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.response.finish_reasons": ("length", "length"),
    }
    assert "secret" not in span.to_json()


def test_every_request_is_measured_and_a_traced_one_is_the_exemplar(
    exporter: InMemorySpanExporter,
) -> None:
    tracer, reader = measured_by(exporter, share=0.0)
    tracer.attempt(call_of("a"), attempt(), LABELS)
    tracer.attempt(replace(call_of("a"), trace_parent=PARENT), attempt(), LABELS)
    (duration,) = points(reader, "gen_ai.server.request.duration")
    assert (duration.count, duration.sum) == (2, pytest.approx(2.2))
    assert duration.explicit_bounds[:3] == (0.01, 0.02, 0.04)
    assert [f"{each.trace_id:032x}" for each in duration.exemplars] == [TRACE]


def test_tokens_are_measured_by_their_kind_and_failures_by_theirs(
    exporter: InMemorySpanExporter,
) -> None:
    tracer, reader = measured_by(exporter, share=0.0)
    tracer.attempt(call_of("a"), event_of(WRITTEN), Task.TEXT_GENERATION)
    tracer.attempt(call_of("a"), attempt(504), LABELS)
    kinds = {
        (each.attributes or {})["gen_ai.token.type"]: each.sum
        for each in points(reader, "gen_ai.client.token.usage")
    }
    assert kinds == {"input": 7, "output": 3}
    failures = {
        (each.attributes or {}).get("error.type"): each.count
        for each in points(reader, "gen_ai.server.request.duration")
    }
    assert failures == {None: 1, "504": 1}


def test_what_no_caller_got_and_bulk_are_not_measured(exporter: InMemorySpanExporter) -> None:
    tracer, reader = measured_by(exporter)
    tracer.attempt(call_of("a"), event_of(arm=Arm.SHADOW, answered=False), LABELS)
    tracer.attempt(replace(call_of("a"), bulk=True), attempt(), LABELS)
    assert points(reader, "gen_ai.server.request.duration") == []


def test_a_collector_gets_spans_and_measures_over_otlp() -> None:
    arrived: queue.Queue[str] = queue.Queue()
    measured: queue.Queue[tuple[str, set[str]]] = queue.Queue()

    class Measures(MetricsServiceServicer):
        def Export(  # noqa: N802 - the protocol's name
            self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext
        ) -> ExportMetricsServiceResponse:
            for resource in request.resource_metrics:
                named = {each.key for each in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        measured.put((metric.name, named))
            return ExportMetricsServiceResponse()

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
    add_MetricsServiceServicer_to_server(Measures(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tracer = open_tracer(f"http://127.0.0.1:{port}", 1.0, gen_ai.OPT_IN)
    assert tracer is not None
    try:
        tracer.attempt(replace(call_of("a"), trace_parent=PARENT), attempt(), LABELS)
        tracer.close()
        spans = {arrived.get(timeout=60) for _ in range(5)}
    finally:
        server.stop(grace=None)
    stages = ("text-classification sentiment", "queue", "tokenise", "wait", "infer")
    assert spans == {f"{name} {TRACE}" for name in stages}
    name, named = measured.get(timeout=60)
    assert name == "gen_ai.server.request.duration"
    assert {"service.name", "service.instance.id"} <= named  # of two gateways, which one it was

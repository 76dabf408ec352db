"""Every metric of the gateway, declared once: name with its unit, help, labels.

``main.py`` makes one ``Metrics``; the front, the handler and the batchers count into it, and
``/metrics`` renders it. Gauges are asked for at that moment, from whoever holds the truth.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, generate_latest
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from contracts.endpoint import Arm
from contracts.events import PredictionEvent
from contracts.statistics import Stage
from gateway.errors import (
    DeadlineExceededError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    RateLimitedError,
    TooLargeError,
)
from gateway.packages import ServedModel
from gateway.telemetry.instruments import Cell, Counter, Histogram, HistogramCell

_SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that somebody else keeps, read when Prometheus asks."""

    metric: "Read"
    labels: tuple[str, ...]
    value: float


class Read(Enum):
    """Metrics that are read from those who keep the truth: name, help, labels; counter or gauge."""

    TOKENS_IN_FLIGHT = ("tokens_in_flight", "Tokens of requests on their way.", ("endpoint",))
    QUEUED_ROWS = ("lane_rows", "Texts that wait for an engine.", ("model",))
    REPLICA_SERVES = ("replica_serves", "1 while a Triton serves a package.", ("triton", "model"))
    REPLICA_TOKENS = ("replica_tokens", "Padded tokens in flight.", ("triton", "model"))
    READY = ("ready", "1 while this gateway should get traffic.", ())
    CONTROLLER_SILENT = (
        "controller_silent_seconds",
        "Time since this gateway saw a sign of the controller.",
        (),
    )
    WITHHELD = (
        "candidate_withheld",
        "1 while stable takes a candidate's callers, because the controller gives no sign.",
        ("endpoint",),
    )
    ENDPOINTS_KEPT = (
        "kept_endpoints_seconds",
        "Age of the endpoints while they are from this gateway's disk; 0 from their source.",
        (),
    )
    PEERS = ("peers", "Gateways that share the rates of keys, this one among them.", ())
    EVENTS_WAITING = ("event_records", "Events, texts and values that wait for Kafka.", ())
    EVENTS_CONNECTED = ("events_connected", "1 while Kafka takes messages.", ())
    EVENTS = ("events_total", "Attempts left for the event stream.", ())
    EVENTS_PUBLISHED = ("events_published_total", "Attempts that Kafka acknowledged.", ())
    EVENTS_DROPPED = ("events_dropped_total", "Events lost.", ("endpoint", "status", "reason"))
    EVENTS_LOST = ("events_lost_total", "Events lost, all in one, from 0 on.", ())
    FEEDBACK = ("feedback_total", "True labels left for the event stream.", ())
    FEEDBACK_PUBLISHED = ("feedback_published_total", "True labels that Kafka acknowledged.", ())
    EVENT_MESSAGES = ("event_messages_total", "Messages that Kafka acknowledged.", ())
    EVENT_FAILURES = ("event_failures_total", "Failed tries to reach Kafka.", ())

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """An empty family for ``prometheus_client``."""
        name, text, labels = self.value
        if name.endswith("_total"):
            return CounterMetricFamily(f"headrace_gateway_{name}", text, labels=labels)
        return GaugeMetricFamily(f"headrace_gateway_{name}", text, labels=labels)


Source = Callable[[], Iterable[Reading]]


class Metrics(Collector):
    """The gateway's counters and histograms."""

    def __init__(self) -> None:
        self._requests = Counter(
            "headrace_gateway_requests", "Requests answered or refused.", ("dialect", "status")
        )
        self._request_seconds = Histogram(
            "headrace_gateway_request_seconds",
            "Time from a request's headers to its answer.",
            ("dialect", "status"),
            _SECONDS,
        )
        self._attempts = Counter(
            "headrace_gateway_attempts",
            "Attempts on a version.",
            ("endpoint", "version", "arm", "status"),
        )
        self._refusals = Counter(
            "headrace_gateway_refusals",
            "Requests that an endpoint refused before any attempt.",
            ("endpoint", "status", "reason"),
        )
        self._refusal_seconds = Histogram(
            "headrace_gateway_refusal_seconds",
            "Time from a request's arrival to its refusal.",
            ("endpoint",),
            _SECONDS,
        )
        self._shadows = Counter(
            "headrace_gateway_shadows",
            "Copies of requests for a candidate, by what became of them: sent, or why not.",
            ("endpoint", "outcome"),
        )
        self._hook_failures = Counter(
            "headrace_gateway_preprocessor_failures",
            "Requests whose own preprocessor failed; they went on without it.",
            ("endpoint", "reason"),
        )
        self._stage_seconds = Histogram(
            "headrace_gateway_stage_seconds",
            "Time that answered attempts spent in each stage.",
            ("endpoint", "stage"),
            _SECONDS,
        )
        self._texts = Counter(
            "headrace_gateway_texts", "Texts of answered attempts.", ("endpoint", "version")
        )
        self._tokens = Counter(
            "headrace_gateway_tokens", "Tokens of answered attempts.", ("endpoint", "version")
        )
        self._batches = Counter("headrace_gateway_batches", "Batches answered.", ("model",))
        self._batch_rows = Counter(
            "headrace_gateway_batch_rows", "Rows of answered batches.", ("model",)
        )
        self._batch_tokens = Counter(
            "headrace_gateway_batch_tokens",
            "Tokens of answered batches, by whether they are of a text or padding.",
            ("model", "kind"),
        )
        self._engine_seconds = Counter(
            "headrace_gateway_engine_seconds", "Engine time of answered batches.", ("model",)
        )
        self._split_batches = Counter(
            "headrace_gateway_split_batches",
            "Batches that a model failed at and whose callers were tried in halves.",
            ("model",),
        )
        self._failed_texts = Counter(
            "headrace_gateway_failed_texts",
            "Texts that a model failed at, alone or in a batch that was not split any further.",
            ("model",),
        )
        self._answered: dict[tuple[str, str, Arm], _Answered] = {}
        self._begun: set[tuple[str, str, Arm]] = set()
        self._sources: list[Source] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
            self._registry.register(collector)

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered, by its dialect and HTTP status."""
        labels = (dialect, _status(status))
        self._requests.add(labels)
        self._request_seconds.observe(labels, seconds)

    def attempt_finished(self, event: PredictionEvent, texts: int, tokens: int) -> None:
        """One attempt on a version, failed ones included."""
        endpoint, version = event.endpoint, event.version
        # Callers' figures are of what callers got: a shadow's time is in its events.
        if event.status != HTTPStatus.OK or event.arm is Arm.SHADOW:
            self._begin(endpoint, version, event.arm)
            self._attempts.add((endpoint, version, event.arm.value, _status(event.status)))
            return
        key = (endpoint, version, event.arm)
        cells = self._answered.get(key)
        if cells is None:
            cells = self._answered[key] = self._answered_cells(endpoint, version, event.arm)
        latency = event.latency
        cells.attempts.value += 1
        cells.texts.value += texts
        cells.tokens.value += tokens
        cells.queue.observe(latency.queue)
        cells.tokenise.observe(latency.tokenise)
        cells.wait.observe(latency.wait)
        cells.infer.observe(latency.infer)
        cells.total.observe(latency.total)

    def _begin(self, endpoint: str, version: str, arm: Arm) -> None:
        """Shows what may come at 0: a first failure must be a rise, or no alert sees it."""
        if (endpoint, version, arm) in self._begun:
            return
        self._begun.add((endpoint, version, arm))
        for status in _FAILURES:
            self._attempts.cell((endpoint, version, arm.value, _status(status)))
        for error in _REFUSALS:
            self._refusals.cell((endpoint, _status(int(error.status)), error.code))

    def _answered_cells(self, endpoint: str, version: str, arm: Arm) -> "_Answered":
        self._begin(endpoint, version, arm)
        queue, tokenise, wait, infer, total = (
            self._stage_seconds.cell((endpoint, stage.value)) for stage in Stage
        )
        return _Answered(
            attempts=self._attempts.cell((endpoint, version, arm.value, _status(HTTPStatus.OK))),
            texts=self._texts.cell((endpoint, version)),
            tokens=self._tokens.cell((endpoint, version)),
            queue=queue,
            tokenise=tokenise,
            wait=wait,
            infer=infer,
            total=total,
        )

    def hook_failed(self, endpoint: str, reason: str) -> None:
        """One request whose preprocessor failed, by the error's class."""
        self._hook_failures.add((endpoint, reason))

    def shadow_sent(self, endpoint: str) -> None:
        """One copy of a request sent to a candidate."""
        self._shadows.add((endpoint, "sent"))

    def shadow_dropped(self, endpoint: str, reason: str) -> None:
        """One copy of a request that was not, and why."""
        self._shadows.add((endpoint, reason))

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """One request refused before any attempt, ``seconds`` after it arrived."""
        self._refusals.add((endpoint, _status(status), reason))
        self._refusal_seconds.observe((endpoint,), seconds)

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        """One batch answered: rows, real tokens, tokens with padding, engine seconds."""
        labels = (model.name,)
        self._batches.add(labels)
        self._batch_rows.add(labels, rows)
        self._batch_tokens.add((model.name, "text"), tokens)
        self._batch_tokens.add((model.name, "padding"), padded - tokens)
        self._engine_seconds.add(labels, seconds)
        for failures in (self._split_batches, self._failed_texts):
            failures.cell(labels)  # at 0: a first failure must be a rise

    def batch_split(self, model: ServedModel) -> None:
        """One batch that the model failed at, whose callers are tried in halves."""
        self._split_batches.add((model.name,))

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        """Texts whose callers are told that the model failed at them."""
        self._failed_texts.add((model.name,), texts)

    def read_from(self, source: Source) -> None:
        """Asks ``source`` for its numbers at each reading."""
        self._sources.append(source)

    def collect(self) -> Iterable[Metric]:
        """For ``prometheus_client``."""
        for instrument in (
            self._requests, self._request_seconds, self._attempts, self._refusals,
            self._refusal_seconds, self._shadows, self._stage_seconds, self._texts, self._tokens,
            self._batches, self._batch_rows, self._batch_tokens, self._engine_seconds,
            self._hook_failures, self._split_batches, self._failed_texts,
        ):  # fmt: skip
            yield from instrument.read()
        families = {metric: metric.family() for metric in Read}
        for source in self._sources:
            for reading in source():
                families[reading.metric].add_metric(reading.labels, reading.value)
        yield from families.values()

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)


@dataclass(frozen=True, slots=True)
class _Answered:
    """The cells that every answered attempt of one endpoint, version and arm counts into."""

    attempts: Cell
    texts: Cell
    tokens: Cell
    queue: HistogramCell
    tokenise: HistogramCell
    wait: HistogramCell
    infer: HistogramCell
    total: HistogramCell


_FAILURES = (
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_REFUSALS = (
    TooLargeError,
    InvalidInputError,
    RateLimitedError,
    ModelUnavailableError,
    OverloadedError,
    DeadlineExceededError,
)
_STATUSES = {int(status): str(int(status)) for status in HTTPStatus}


def _status(status: int) -> str:
    return _STATUSES.get(status) or str(status)

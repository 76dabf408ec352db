"""The metrics of a gateway; ``contracts.gateway_metrics`` declares their names and labels.

There is one ``Metrics`` for a process. Only the process's event loop counts into it, and
``/metrics`` renders it. Gauges are read at that time from the objects that keep the numbers.

Counters and histograms here are plain dictionaries, read out only when Prometheus asks. Those of
``prometheus_client`` take a lock and build label objects on each call, which costs some ten
microseconds a request in all.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from itertools import chain
from typing import TypeVar

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.samples import Exemplar

from contracts import gateway_metrics as m
from contracts.endpoint import Arm
from contracts.events import PredictionEvent
from contracts.metrics import Metric
from contracts.statistics import LatencyStage
from gateway.errors import (
    DeadlineExceededError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    RateLimitedError,
    TooLargeError,
)
from gateway.packages import ServedModel
from service import exposition
from service.families import HistogramFamily, Labels, NumberFamily, histograms, numbers


class CounterChild:
    """The number of one set of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class HistogramChild:
    """The counts between edges of one set of label values.

    A value goes to the first bucket whose upper edge is not below it.
    """

    __slots__ = ("_edges", "counts", "exemplars", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}  # number of a bucket -> the last one in it

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self._edges, value)] += 1
        self.sum += value

    def exemplify(self, value: float, trace_id: str, at: float) -> None:
        """Keeps the trace of a value that was counted, at this unix time."""
        bucket = bisect_left(self._edges, value)
        self.exemplars[bucket] = Exemplar({"trace_id": trace_id}, value, at)


class Counter:
    """A number that only grows, for each set of label values."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[Labels, CounterChild] = {}

    def child(self, labels: Labels) -> "CounterChild":
        """The number of these label values. Frequent users keep it."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = CounterChild()
        return child

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Counts."""
        self.child(labels).value += amount

    def read(self, endpoint: str | None) -> NumberFamily:
        """For Prometheus; of one endpoint, or of all."""
        children = _of(endpoint, self._metric, self._children.items())
        return numbers(self._metric, ((labels, child.value) for labels, child in children))


class Histogram:
    """Observations counted between fixed edges, for each set of label values."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[Labels, HistogramChild] = {}

    def child(self, labels: Labels) -> "HistogramChild":
        """The counts of these label values. Frequent users keep them."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = HistogramChild(self._metric.buckets)
        return child

    def observe(self, labels: Labels, value: float) -> None:
        """Counts a value."""
        self.child(labels).observe(value)

    def read(self, endpoint: str | None) -> HistogramFamily:
        """For Prometheus; of one endpoint, or of all."""
        children = list(_of(endpoint, self._metric, self._children.items()))
        counted = (
            (labels, self._metric.buckets, child.counts, child.sum) for labels, child in children
        )
        exemplars = {labels: child.exemplars for labels, child in children if child.exemplars}
        return histograms(self._metric, counted, exemplars)


_Child = TypeVar("_Child")


def _of(
    endpoint: str | None, metric: Metric, children: Iterable[tuple[Labels, _Child]]
) -> Iterable[tuple[Labels, _Child]]:
    """Those of one endpoint; all for None."""
    if endpoint is None:
        return children
    if "endpoint" not in metric.labels:
        return ()
    place = metric.labels.index("endpoint")
    return (each for each in children if each[0][place] == endpoint)


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that another object keeps, read when Prometheus asks."""

    metric: "ObservedMetric"
    labels: tuple[str, ...]
    value: float


class ObservedMetric(Enum):
    """Counters and gauges that are read from the objects that keep the numbers."""

    CODE_RUNNING = m.CODE_RUNNING
    CODE_STARTS = m.CODE_STARTS
    CODE_WAITING = m.CODE_WAITING
    CACHE_TEXTS = m.CACHE_TEXTS
    CACHE_BYTES = m.CACHE_BYTES
    TOKENISERS_OPEN = m.TOKENISERS_OPEN
    TOKENISER_BYTES = m.TOKENISER_BYTES
    TOKENISERS_OPENED = m.TOKENISERS_OPENED
    TOKENISERS_CLOSED = m.TOKENISERS_CLOSED
    TOKENISERS_FAILED = m.TOKENISERS_FAILED
    TOKENISER_WAITING = m.TOKENISER_WAITING
    TOKENS_IN_FLIGHT = m.TOKENS_IN_FLIGHT
    QUEUED_ROWS = m.QUEUED_ROWS
    REPLICA_SERVES = m.REPLICA_SERVES
    REPLICA_TOKENS = m.REPLICA_TOKENS
    TRITON_PACKAGES = m.TRITON_PACKAGES
    PACKAGE_TRITONS = m.PACKAGE_TRITONS
    ASLEEP = m.ASLEEP
    WAITING_FOR_MODELS = m.WAITING_FOR_MODELS
    READY = m.READY
    CONTROLLER_SILENT = m.CONTROLLER_SILENT
    WITHHELD = m.WITHHELD
    ENDPOINTS_KEPT = m.ENDPOINTS_KEPT
    SLO_AVAILABILITY = m.SLO_AVAILABILITY
    SLO_LATENCY = m.SLO_LATENCY
    KEY_LINES_BROKEN = m.KEY_LINES_BROKEN
    PEERS = m.PEERS
    EVENTS_WAITING = m.EVENTS_WAITING
    EVENTS_CONNECTED = m.EVENTS_CONNECTED
    EVENTS = m.EVENTS
    EVENTS_PUBLISHED = m.EVENTS_PUBLISHED
    EVENTS_DROPPED = m.EVENTS_DROPPED
    EVENTS_LOST = m.EVENTS_LOST
    FEEDBACK = m.FEEDBACK
    FEEDBACK_PUBLISHED = m.FEEDBACK_PUBLISHED
    EVENT_MESSAGES = m.EVENT_MESSAGES
    EVENT_FAILURES = m.EVENT_FAILURES


Source = Callable[[], Iterable[Reading]]


class Metrics:
    """The gateway's counters and histograms."""

    def __init__(self) -> None:
        self._instruments: list[Counter | Histogram] = []
        self._requests = self._counter(m.REQUESTS)
        self._request_seconds = self._histogram(m.REQUEST_SECONDS)
        self._attempts = self._counter(m.ATTEMPTS)
        self._refusals = self._counter(m.REFUSALS)
        self._refusal_seconds = self._histogram(m.REFUSAL_SECONDS)
        self._shadows = self._counter(m.SHADOWS)
        self._space_named = self._counter(m.SPACE_NAMED)
        self._bulk_requests = self._counter(m.BULK_REQUESTS)
        self._bulk_texts = self._counter(m.BULK_TEXTS)
        self._space_unnamed = self._counter(m.SPACE_UNNAMED)
        self._hook_failures = self._counter(m.PREPROCESSOR_FAILURES)
        self._code_failures = self._counter(m.CODE_FAILURES)
        self._code_seconds = self._histogram(m.CODE_SECONDS)
        self._opening_seconds = self._histogram(m.TOKENISER_SECONDS)
        self._stage_seconds = self._histogram(m.STAGE_SECONDS)
        self._wake_seconds = self._histogram(m.WAKE_SECONDS)
        self._texts = self._counter(m.TEXTS)
        self._tokens = self._counter(m.TOKENS)
        self._batches = self._counter(m.BATCHES)
        self._batch_rows = self._counter(m.BATCH_ROWS)
        self._batch_tokens = self._counter(m.BATCH_TOKENS)
        self._engine_seconds = self._counter(m.ENGINE_SECONDS)
        self._split_batches = self._counter(m.SPLIT_BATCHES)
        self._failed_texts = self._counter(m.FAILED_TEXTS)
        self._answered: dict[tuple[str, str, Arm], _AttemptInstruments] = {}
        self._begun: set[tuple[str, str, Arm]] = set()
        self._sources: list[Source] = []

    def _counter(self, metric: Metric) -> Counter:
        counter = Counter(metric)
        self._instruments.append(counter)
        return counter

    def _histogram(self, metric: Metric) -> Histogram:
        histogram = Histogram(metric)
        self._instruments.append(histogram)
        return histogram

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered, by its dialect and HTTP status."""
        labels = (dialect, _status(status))
        self._requests.add(labels)
        self._request_seconds.observe(labels, seconds)

    def attempt_finished(self, event: PredictionEvent, texts: int, tokens: int) -> None:
        """One attempt on a version, failed ones included."""
        endpoint, version = event.endpoint, event.version
        # Stages and texts are counted for callers only. A shadow's are in its events.
        if event.status != HTTPStatus.OK or event.arm is Arm.SHADOW:
            self._begin(endpoint, version, event.arm)
            self._attempts.add((endpoint, version, event.arm.value, _status(event.status)))
            return
        key = (endpoint, version, event.arm)
        children = self._answered.get(key)
        if children is None:
            children = self._answered[key] = self._answered_children(endpoint, version, event.arm)
        latency = event.latency
        children.attempts.value += 1
        children.texts.value += texts
        children.tokens.value += tokens
        children.queue.observe(latency.queue)
        children.tokenise.observe(latency.tokenise)
        children.wait.observe(latency.wait)
        children.infer.observe(latency.infer)
        children.total.observe(latency.total)

    def attempt_traced(self, event: PredictionEvent, trace_id: str) -> None:
        """The trace of an attempt that was counted, so that a latency leads to a request."""
        if event.status != HTTPStatus.OK or event.arm is Arm.SHADOW:
            return
        total = self._stage_seconds.child((event.endpoint, LatencyStage.TOTAL.value))
        total.exemplify(event.latency.total, trace_id, event.time + event.latency.total)

    def _begin(self, endpoint: str, version: str, arm: Arm) -> None:
        """Creates the series of failures at 0, because alerts only see a rise."""
        if (endpoint, version, arm) in self._begun:
            return
        self._begun.add((endpoint, version, arm))
        for status in _FAILURES:
            self._attempts.child((endpoint, version, arm.value, _status(status)))
        for error in _REFUSALS:
            self._refusals.child((endpoint, _status(int(error.status)), error.code))

    def _answered_children(self, endpoint: str, version: str, arm: Arm) -> "_AttemptInstruments":
        self._begin(endpoint, version, arm)
        queue, tokenise, wait, infer, total = (
            self._stage_seconds.child((endpoint, stage.value)) for stage in LatencyStage
        )
        return _AttemptInstruments(
            attempts=self._attempts.child((endpoint, version, arm.value, _status(HTTPStatus.OK))),
            texts=self._texts.child((endpoint, version)),
            tokens=self._tokens.child((endpoint, version)),
            queue=queue,
            tokenise=tokenise,
            wait=wait,
            infer=infer,
            total=total,
        )

    def space_named(self, endpoint: str, space: str) -> None:
        """One answer to a caller who named a space."""
        self._space_named.add((endpoint, space))

    def bulk_finished(self, endpoint: str, status: int, texts: int = 0, space: str = "") -> None:
        """One bulk request, answered or refused; nothing else counts it for its endpoint."""
        self._bulk_requests.add((endpoint, _status(status)))
        if status == HTTPStatus.OK:
            self._bulk_texts.add((endpoint, space), texts)

    def space_unnamed(self, endpoint: str) -> None:
        """One answer to a caller whose vectors the next cutover will change, unasked."""
        self._space_unnamed.add((endpoint,))

    def hook_failed(self, endpoint: str, reason: str) -> None:
        """One request whose preprocessor failed, by the error's class."""
        self._hook_failures.add((endpoint, reason))

    def code_called(self, endpoint: str, version: str, part: str, seconds: float) -> None:
        """One call of a version's own code that was answered."""
        self._code_seconds.observe((endpoint, version, part), seconds)

    def code_failed(self, endpoint: str, version: str, reason: str) -> None:
        """A version's own code failed, and how."""
        self._code_failures.add((endpoint, version, str(reason)))

    def tokeniser_opened(self, seconds: float) -> None:
        """A tokeniser was opened in a process of its own, in so long."""
        self._opening_seconds.observe((), seconds)

    def shadow_sent(self, endpoint: str) -> None:
        """One request mirrored to a candidate."""
        self._shadows.add((endpoint, "sent"))

    def shadow_dropped(self, endpoint: str, reason: str) -> None:
        """One request that was not mirrored, and why."""
        self._shadows.add((endpoint, reason))

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """One request refused before any attempt, ``seconds`` after it arrived."""
        self._refusals.add((endpoint, _status(status), reason))
        self._refusal_seconds.observe((endpoint,), seconds)

    def awakened(self, seconds: float, served: bool) -> None:  # noqa: FBT001 - a callback
        """A model that nobody had asked for was waited for, until it served or nobody waited."""
        self._wake_seconds.observe(("served" if served else "given up",), seconds)

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
            failures.child(labels)  # at 0, because alerts only see a rise

    def batch_split(self, model: ServedModel) -> None:
        """One batch that the model failed on, whose callers are tried in halves."""
        self._split_batches.add((model.name,))

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        """Texts that the model failed on, whose callers get an error."""
        self._failed_texts.add((model.name,), texts)

    def read_from(self, source: Source) -> None:
        """Asks ``source`` for its numbers at each reading."""
        self._sources.append(source)

    def render(self, *, openmetrics: bool = False) -> bytes:
        """Prometheus' text format, or OpenMetrics', which has a place for traces."""
        return b"".join(self.pieces(openmetrics=openmetrics))

    def pieces(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """The same, some lines at a time: a thousand endpoints are some 158,000."""
        process = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)
        shared = (family for collector in process for family in collector.collect())
        return exposition.pieces(chain(self.collect(), shared), openmetrics=openmetrics)

    def of_endpoint(self, endpoint: str) -> bytes:
        """What is counted of one endpoint, in Prometheus' text format."""
        return exposition.text(family for family in self.collect(endpoint) if family.rows)

    def collect(self, endpoint: str | None = None) -> Iterator[NumberFamily | HistogramFamily]:
        """Families of one endpoint, some without a row, or of all; without the process'."""
        for instrument in self._instruments:
            yield instrument.read(endpoint)
        found: dict[ObservedMetric, list[tuple[Labels, float]]] = {
            metric: [] for metric in ObservedMetric
        }
        for source in self._sources:
            for reading in source():
                found[reading.metric].append((reading.labels, reading.value))
        for read, values in found.items():
            yield numbers(read.value, _of(endpoint, read.value, values))


@dataclass(frozen=True, slots=True)
class _AttemptInstruments:
    """The instruments of answered attempts of one endpoint, version and arm."""

    attempts: CounterChild
    texts: CounterChild
    tokens: CounterChild
    queue: HistogramChild
    tokenise: HistogramChild
    wait: HistogramChild
    infer: HistogramChild
    total: HistogramChild


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

"""All metrics of a Headrace at work, made up: exposed by the code that exposes the real ones.

``/metrics`` of one process that stands for all: each scrape finds more attempts, texts, batches and
events, a rollout that goes on, and drift. The registry's and Triton's few are written down by name.
With it every query can be tried on a real Prometheus in seconds; what a stack really exposes is
``tests/dashboards/test_on_the_stack.py``'s to tell.
"""

import time
from collections.abc import Iterator, Sequence

import gateway_world
import made_up_metrics
import numpy as np
import ui_board
import ui_world
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contracts.endpoint import Arm, ModelEndpoint
from contracts.events import Latency, PredictionEvent
from controller.metrics import RolloutCollector
from gateway.telemetry.metrics import Metrics, Read, Reading
from measures.counting import Counting
from measures.increments import Growth
from stats.evaluation.exposition import Exposed, Health, families
from stats.evaluation.totals import Totals
from stats.folding.fold import FoldCounts
from stats.folding.metrics import FoldCollector

ENDPOINT = "sentiment"
BEGINS_AT_SCRAPE = 3  # the rollout; before it, all its counters are seen at 0
_ARMS = (
    ui_board.Traffic("3", Arm.STABLE, rate=4.0, errors=0.05),
    ui_board.Traffic("4", Arm.SHADOW, rate=4.0),
    ui_board.Traffic("4", Arm.CANARY, rate=2.0, errors=0.2),
)
_COUNTERS = {
    "nv_inference_request_success": ("model",),
    "nv_inference_queue_duration_us": ("model",),
    "nv_inference_compute_infer_duration_us": ("model",),
    "headrace_registry_conversions": ("outcome",),
    "headrace_registry_passes": ("outcome",),
    "headrace_registry_write_back_failures": (),
    "headrace_loader_load_seconds_sum": (),
    "headrace_loader_load_seconds_count": (),
    "process_cpu_seconds": (),
}
_PLAIN = ("nv_", "headrace_loader")  # Triton's names end in no _total; a sum's neither


class Everything(Collector):
    """The collector."""

    def __init__(self) -> None:
        self._scrapes = 0
        self._rng = np.random.default_rng(5)
        self._before, self._now = ui_world.quiet(time.time()), ui_world.rolling(time.time())
        self._totals = Totals()
        self._counts = FoldCounts(connected=True, lag={0: 3, 1: 0})
        self._extra = made_up_metrics.MadeUp()
        self._gateway = Metrics()
        self._gateway.read_from(self._readings)
        self._model = gateway_world.model_of()
        self._rollouts = RolloutCollector(self._endpoints)

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry would take a reading for it."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        self._scrapes += 1
        self._happen()
        made_up = {family.name: family for family in self._extra.collect()}
        for family in (*self._evaluate(), *self._gateway.collect()):
            extra = made_up.pop(family.name, None)
            family.samples += extra.samples if extra else []
            yield family
        yield from made_up.values()
        yield from self._rollouts.collect()
        yield from FoldCollector(self._counts).collect()
        yield from self._others()

    def _happen(self) -> None:
        """What comes about between two scrapes."""
        self._counts.events += 10
        for part in _ARMS:
            aggregate = ui_board.aggregate(ENDPOINT, part, 0, self._rng)
            aggregate.repeated, aggregate.pair_distance = 1, {0: 5, 3: 1}
            self._totals.add(
                Growth(10, (aggregate,), {ENDPOINT: {"503 overloaded": 2}}, 1, 0, 0), 1.0
            )
            for status in (200, 200, 503):
                self._gateway.attempt_finished(_event(part, status), 2, 30)
        self._gateway.request_finished("huggingface", 200, 0.01)
        self._gateway.refused(ENDPOINT, 503, "overloaded", 0.001)
        self._gateway.shadow_sent(ENDPOINT)
        self._gateway.batch_finished(self._model, 4, 50, 64, 0.01)

    def _evaluate(self) -> Iterator[Metric]:
        health = Health(lag=2)
        arms, refusals = self._totals.arms.keys(), self._totals.refusals
        yield from families(
            Exposed(self._totals, arms, refusals, self._now.board, health, Counting(), 2_592_000.0)
        )

    def _endpoints(self) -> Sequence[ModelEndpoint]:
        begun = self._scrapes > BEGINS_AT_SCRAPE
        return (self._now if begun else self._before).endpoints

    def _readings(self) -> Iterator[Reading]:
        done = float(self._scrapes * 3)
        yield Reading(Read.READY, (), 1)
        yield Reading(Read.CONTROLLER_SILENT, (), 4)
        yield Reading(Read.ENDPOINTS_KEPT, (), 0)
        yield Reading(Read.WITHHELD, (ENDPOINT,), 0)
        yield Reading(Read.TOKENS_IN_FLIGHT, (ENDPOINT,), 64)
        yield Reading(Read.QUEUED_ROWS, (self._model.name,), 2)
        yield Reading(Read.REPLICA_SERVES, ("127.0.0.1:8001", self._model.name), 1)
        yield Reading(Read.REPLICA_TOKENS, ("127.0.0.1:8001", self._model.name), 64)
        yield Reading(Read.EVENTS, (), done)
        yield Reading(Read.EVENTS_PUBLISHED, (), done)
        yield Reading(Read.EVENTS_LOST, (), 0)
        yield Reading(Read.EVENTS_WAITING, (), 3)
        yield Reading(Read.EVENTS_CONNECTED, (), 1)
        yield Reading(Read.EVENT_FAILURES, (), 0)

    def _others(self) -> Iterator[Metric]:
        for name, labels in _COUNTERS.items():
            plain = name.startswith(_PLAIN)
            kind = GaugeMetricFamily if plain else CounterMetricFamily
            family = kind(name, "made up", labels=labels)
            value = {"model": self._model.name, "outcome": "whole"}
            family.add_metric([value[label] for label in labels], float(self._scrapes))
            yield family
        yield GaugeMetricFamily(
            "headrace_registry_source_round_timestamp_seconds", "made up", value=time.time()
        )
        up = GaugeMetricFamily("headrace_registry_source_up", "made up")
        up.add_metric([], 1)
        yield up


def _event(part: ui_board.Traffic, status: int) -> PredictionEvent:
    return PredictionEvent(
        request_id="r",
        time=0.0,
        endpoint=ENDPOINT,
        version=part.version,
        package="p",
        arm=part.arm,
        status=status,
        answered=True,
        latency=Latency(0.0, 0.001, 0.002, 0.003, 0.006),
    )

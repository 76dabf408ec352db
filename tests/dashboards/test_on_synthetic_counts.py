"""Every query of every panel, asked of a real Prometheus that scrapes synthetic counts.

Quick, and needs no stack: it holds queries to PromQL, joins to their labels, and answers to the
form that their panel reads. One process exposes all metrics of a Headrace at work by the code that
exposes the real ones: each scrape finds more attempts, texts, batches and events, a rollout that
goes on, and drift. The registry's and Triton's few are written down by name. That a stack gives
such data is ``test_on_the_stack.py``'s claim.
"""

import time
from collections.abc import Iterator, Sequence

import gateway_world
import numpy as np
import pytest
import synthetic_metrics
import ui_board
import ui_world
from dashboard_panels import FREE, TARGETS, VARIABLES, Seen, filled, must_be_in_form
from own_ports import own_ports
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from real_prometheus import SCRAPE_SECONDS, real_prometheus
from waiting import until

from contracts.endpoint import Arm, ModelEndpoint
from contracts.events import Latency, PredictionEvent
from controller.metrics import RolloutCollector
from dashboards.__main__ import GENERATED
from gateway.telemetry.metrics import Metrics, ObservedMetric, Reading
from measures.counting import CountingStatus
from measures.increments import Growth
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.totals import TrafficTotals
from stats.folding.fold import FoldCounts
from stats.folding.metrics import FoldCollector

pytestmark = pytest.mark.real

ENDPOINT = "sentiment"
TRACE = "0af7651916cd43dd8448eb211c80319c"
BEGINS_AT_SCRAPE = 3  # the rollout; before it, all its counters are seen at 0
SCRAPES = BEGINS_AT_SCRAPE + 4
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
    """All metrics of a Headrace at work."""

    def __init__(self) -> None:
        self._scrapes = 0
        self._rng = np.random.default_rng(5)
        self._before, self._now = ui_world.quiet(time.time()), ui_world.rolling(time.time())
        self._totals = TrafficTotals()
        self._counts = FoldCounts(connected=True, lag={0: 3, 1: 0})
        self._extra = synthetic_metrics.SyntheticMetrics()
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
        extra = {family.name: family for family in self._extra.collect()}
        for family in (*self._evaluate(), *self._gateway.collect()):
            more = extra.pop(family.name, None)
            whole = Metric(family.name, family.documentation, family.type)
            whole.samples = [*family.samples, *(more.samples if more else ())]
            yield whole
        yield from extra.values()
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
            self._gateway.attempt_traced(_event(part, 200), TRACE)
        for status in (200, 503):
            self._gateway.request_finished("huggingface", status, 0.01)
        self._gateway.refused(ENDPOINT, 503, "overloaded", 0.001)
        self._gateway.shadow_sent(ENDPOINT)
        self._gateway.space_named(ENDPOINT, "0123456789ab")
        self._gateway.space_unnamed(ENDPOINT)
        self._gateway.bulk_finished(ENDPOINT, 200, texts=16, space="0123456789ab")
        self._gateway.batch_finished(self._model, 4, 50, 64, 0.01)

    def _evaluate(self) -> Iterator[Metric]:
        health = RoleHealth(lag=2)
        arms, refusals = self._totals.arms.keys(), self._totals.refusals
        yield from families(
            ExpositionSnapshot(
                self._totals, arms, refusals, self._now.board, health, CountingStatus(), 2_592_000.0
            )
        )

    def _endpoints(self) -> Sequence[ModelEndpoint]:
        begun = self._scrapes > BEGINS_AT_SCRAPE
        return (self._now if begun else self._before).endpoints

    def _readings(self) -> Iterator[Reading]:
        done = float(self._scrapes * 3)
        yield Reading(ObservedMetric.READY, (), 1)
        yield Reading(ObservedMetric.CONTROLLER_SILENT, (), 4)
        yield Reading(ObservedMetric.ENDPOINTS_KEPT, (), 0)
        yield Reading(ObservedMetric.SLO_AVAILABILITY, (ENDPOINT,), 0.999)
        yield Reading(ObservedMetric.SLO_LATENCY, (ENDPOINT, "0.005"), 0.95)
        yield Reading(ObservedMetric.WITHHELD, (ENDPOINT,), 0)
        yield Reading(ObservedMetric.TOKENS_IN_FLIGHT, (ENDPOINT,), 64)
        yield Reading(ObservedMetric.QUEUED_ROWS, (self._model.name,), 2)
        yield Reading(ObservedMetric.REPLICA_SERVES, ("127.0.0.1:8001",), 1)
        yield Reading(ObservedMetric.REPLICA_TOKENS, ("127.0.0.1:8001", "default"), 64)
        yield Reading(ObservedMetric.TRITON_PACKAGES, ("127.0.0.1:8001",), 1)
        yield Reading(ObservedMetric.PACKAGE_TRITONS, (self._model.name,), 1)
        yield Reading(ObservedMetric.ASLEEP, (), 1)
        yield Reading(ObservedMetric.WAITING_FOR_MODELS, (), 2)
        yield Reading(ObservedMetric.EVENTS, (), done)
        yield Reading(ObservedMetric.EVENTS_PUBLISHED, (), done)
        yield Reading(ObservedMetric.EVENTS_LOST, (), 0)
        yield Reading(ObservedMetric.EVENTS_WAITING, (), 3)
        yield Reading(ObservedMetric.EVENTS_CONNECTED, (), 1)
        yield Reading(ObservedMetric.EVENT_FAILURES, (), 0)

    def _others(self) -> Iterator[Metric]:
        for name, labels in _COUNTERS.items():
            plain = name.startswith(_PLAIN)
            kind = GaugeMetricFamily if plain else CounterMetricFamily
            family = kind(name, "synthetic", labels=labels)
            value = {"model": self._model.name, "outcome": "whole"}
            family.add_metric([value[label] for label in labels], float(self._scrapes))
            yield family
        yield GaugeMetricFamily(
            "headrace_registry_source_round_timestamp_seconds", "synthetic", value=time.time()
        )
        up = GaugeMetricFamily("headrace_registry_source_up", "synthetic")
        up.add_metric([], 1)
        yield up


def _event(part: ui_board.Traffic, status: int) -> PredictionEvent:
    return PredictionEvent(
        request_id="r",
        time=time.time(),
        endpoint=ENDPOINT,
        version=part.version,
        package="p",
        arm=part.arm,
        status=status,
        answered=True,
        latency=Latency(0.0, 0.001, 0.002, 0.003, 0.006),
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    (port,) = own_ports(1)
    home = tmp_path_factory.mktemp("synthetic") / "prometheus"
    with (
        synthetic_metrics.served(port, Everything()),
        real_prometheus(home, {"synthetic": port}, GENERATED / "rules.yaml") as prometheus,
    ):
        began = time.time()

        def has_scraped_enough() -> bool:
            scrapes = prometheus.now('sum_over_time(up{job="synthetic"}[10m])')
            return bool(scrapes) and scrapes[0].samples[0][1] >= SCRAPES

        until("Prometheus has scraped some times", 90, has_scraped_enough)
        window = f"{4 * SCRAPE_SECONDS}s"
        values = dict.fromkeys(FREE, ".*")
        values |= {"package": "[0-9a-f]{12}", "__rate_interval": window, "__range": "10m"}
        yield Seen(prometheus, began, time.time(), SCRAPE_SECONDS, values)


@pytest.mark.parametrize("name", TARGETS)
def test_a_query_gives_data_in_its_panels_form(name: str, seen: Seen) -> None:
    must_be_in_form(TARGETS[name], seen.ask(TARGETS[name]))


@pytest.mark.parametrize(("dashboard", "name", "query"), VARIABLES, ids=str)
def test_a_variable_offers_values(dashboard: str, name: str, query: str, seen: Seen) -> None:
    assert seen.offered(query)


def test_a_slow_answer_leads_to_its_trace(seen: Seen) -> None:
    (target,) = (each for each in TARGETS.values() if each.exemplars)
    assert target.panel["title"] == "Slowest answers of each pod"
    expr = filled(target.expr, seen.values)
    found = seen.prometheus.exemplars(expr, seen.began, seen.ended)
    assert {each["labels"]["trace_id"] for each in found} == {TRACE}


def test_prometheus_evaluates_every_rule_without_an_error(seen: Seen) -> None:
    def known() -> bool:
        return all(rule["health"] != "unknown" for rule in seen.prometheus.rules())

    until("every rule was evaluated", 90, known)
    rules = seen.prometheus.rules()
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []

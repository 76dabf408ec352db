"""Metrics: what is counted is what Prometheus reads."""

import pytest
from gateway_world import FakeEngine, endpoint_of, event_of, model_of
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from contracts import gateway_metrics as m
from contracts.endpoint import LatencySlo, Slo
from contracts.events import Latency, PredictionEvent
from gateway.engine.fleet import Fleet
from gateway.main import replica_readings, slo_readings
from gateway.telemetry.metrics import Metrics, ObservedMetric, Reading


def attempt(status: int) -> PredictionEvent:
    latency = Latency(0.0, 0.001, 0.002, 0.3, 0.4)
    return event_of(endpoint="e", status=status, latency=latency)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"headrace_gateway_{name}", tuple(sorted(labels.items()))]


def test_requests_are_counted_and_timed_by_status() -> None:
    metrics = Metrics()
    metrics.request_finished("openai", 200, 0.004)
    metrics.request_finished("openai", 503, 0.0001)
    labels = {"dialect": "openai", "status": "200"}
    assert value(metrics, "requests_total", **labels) == 1
    assert value(metrics, "request_seconds_count", **labels) == 1
    assert value(metrics, "request_seconds_bucket", le="0.003", **labels) == 0
    assert value(metrics, "request_seconds_bucket", le="0.005", **labels) == 1
    assert value(metrics, "request_seconds_bucket", le="+Inf", **labels) == 1


def test_an_answered_attempt_counts_its_stages_texts_and_tokens() -> None:
    metrics = Metrics()
    metrics.attempt_finished(attempt(200), 2, 30)
    metrics.attempt_finished(attempt(504), 2, 30)
    assert value(metrics, "tokens_total", endpoint="e", version="1") == 30
    assert value(metrics, "texts_total", endpoint="e", version="1") == 2
    assert value(metrics, "stage_seconds_sum", endpoint="e", stage="infer") == 0.3
    attempts = {"endpoint": "e", "version": "1", "arm": "stable"}
    assert value(metrics, "attempts_total", status="200", **attempts) == 1
    assert value(metrics, "attempts_total", status="504", **attempts) == 1


def test_failures_and_refusals_begin_at_0_so_that_the_first_one_is_a_rise() -> None:
    metrics = Metrics()
    metrics.attempt_finished(attempt(200), 1, 10)
    attempts = {"endpoint": "e", "version": "1", "arm": "stable"}
    assert value(metrics, "attempts_total", status="503", **attempts) == 0
    assert value(metrics, "refusals_total", endpoint="e", status="503", reason="overloaded") == 0
    metrics.attempt_finished(attempt(503), 1, 10)
    assert value(metrics, "attempts_total", status="503", **attempts) == 1


def test_what_a_model_failed_at_is_counted_from_0_on() -> None:
    metrics = Metrics()
    model = model_of()
    metrics.batch_finished(model, 4, 50, 64, 0.01)
    assert value(metrics, "split_batches_total", model=model.name) == 0
    assert value(metrics, "failed_texts_total", model=model.name) == 0
    metrics.batch_split(model)
    metrics.texts_failed(model, 3)
    assert value(metrics, "split_batches_total", model=model.name) == 1
    assert value(metrics, "failed_texts_total", model=model.name) == 3


def test_a_refusal_is_timed_on_its_own() -> None:
    metrics = Metrics()
    metrics.refused("e", 503, "overloaded", 0.02)
    assert value(metrics, "refusals_total", endpoint="e", status="503", reason="overloaded") == 1
    assert value(metrics, "refusal_seconds_bucket", endpoint="e", le="0.05") == 1
    assert value(metrics, "refusal_seconds_bucket", endpoint="e", le="0.01") == 0


def test_numbers_of_others_are_read_when_asked() -> None:
    metrics = Metrics()
    waiting = [3.0]
    metrics.read_from(lambda: [Reading(ObservedMetric.QUEUED_ROWS, ("m",), waiting[0])])
    assert value(metrics, "lane_rows", model="m") == 3
    waiting[0] = 5
    assert value(metrics, "lane_rows", model="m") == 5


def test_a_status_that_http_does_not_list_is_counted_too() -> None:
    metrics = Metrics()
    metrics.request_finished("huggingface", 499, 0.1)
    assert value(metrics, "requests_total", dialect="huggingface", status="499") == 1


def test_a_bucket_leads_to_the_trace_of_the_last_request_in_it() -> None:
    metrics = Metrics()
    answered = attempt(200)
    metrics.attempt_finished(answered, 1, 10)
    metrics.attempt_traced(answered, "older")
    metrics.attempt_traced(answered, "newest")
    metrics.attempt_traced(attempt(503), "failed")
    text = metrics.render(openmetrics=True).decode()
    found = {
        (sample.labels["stage"], sample.labels["le"]): sample.exemplar
        for family in openmetrics_families(text)
        for sample in family.samples
        if sample.exemplar is not None
    }
    (place,) = found
    assert place == ("total", "0.5")  # 0.4 s
    exemplar = found[place]
    assert exemplar is not None
    assert (exemplar.labels, exemplar.value) == ({"trace_id": "newest"}, 0.4)
    assert "newest" not in metrics.render().decode()  # the plain format has no place for it


def test_metrics_of_an_endpoint_are_its_own_series_alone() -> None:
    metrics = Metrics()
    for endpoint in ("mine", "mine-too"):
        latency = Latency(0.0, 0.001, 0.002, 0.3, 0.4)
        answered = event_of(endpoint=endpoint, status=200, latency=latency)
        metrics.attempt_finished(answered, 1, 10)
        metrics.refused(endpoint, 503, "overloaded", 0.02)
    metrics.request_finished("openai", 200, 0.004)
    metrics.read_from(lambda: [Reading(ObservedMetric.QUEUED_ROWS, ("m",), 3.0)])
    metrics.read_from(
        lambda: [
            Reading(ObservedMetric.SLO_AVAILABILITY, (name,), 0.9) for name in ("mine", "others")
        ]
    )
    told = metrics.of_endpoint("mine").decode()
    families = list(text_string_to_metric_families(told))
    assert {sample.labels["endpoint"] for each in families for sample in each.samples} == {"mine"}
    assert all(family.samples for family in families)
    whole = metrics.render().decode().splitlines()
    assert [line for line in whole if 'endpoint="mine"' in line] == [
        line for line in told.splitlines() if not line.startswith("#")
    ]
    assert metrics.of_endpoint("nobody") == b""


@pytest.mark.parametrize("threshold", m.STAGE_SECONDS.buckets)
def test_an_objective_of_latency_has_the_label_of_the_bucket_that_it_is_about(
    threshold: float,
) -> None:
    latency = LatencySlo(percentile=99, threshold=threshold)
    endpoint = endpoint_of(None, name="e")
    spec = endpoint.spec.model_copy(update={"slo": Slo(availability=None, latency=latency)})
    metrics = Metrics()
    metrics.read_from(lambda: slo_readings(endpoint.model_copy(update={"spec": spec})))
    metrics.attempt_finished(attempt(200), 1, 10)
    found = [(name, dict(labels), number) for (name, labels), number in samples(metrics).items()]
    told = {
        labels["le"]: number for name, labels, number in found if name.endswith("slo_latency_ratio")
    }
    edges = {labels["le"] for name, labels, _ in found if name.endswith("stage_seconds_bucket")}
    (le,) = told.keys() & edges
    assert float(le) == threshold
    assert set(told.values()) == {0.99}
    assert floatToGoString(threshold) in told  # as Prometheus 3 writes the bucket's
    assert not any(name.endswith("slo_availability_ratio") for name, _, _ in found)


def test_a_triton_that_lacks_only_what_sleeps_is_not_told_of_as_away() -> None:
    fleet = Fleet(lambda _: FakeEngine(), ahead=2)
    fleet.set_addresses(["a:1", "b:1"])
    packages = {model: fleet.replicas(model, 1, lambda: None) for model in ("m", "n")}

    def told(asleep: set[tuple[str, str]]) -> dict[str, float]:
        metrics = Metrics()
        read = [("default", model, each) for model, each in packages.items()]
        metrics.read_from(lambda: replica_readings(read, asleep))
        names = ("headrace_gateway_replica_serves", "headrace_gateway_package_tritons")
        found = samples(metrics).items()
        return {next(iter(dict(of).values())): at for (name, of), at in found if name in names}

    m, n = ("default", "m"), ("default", "n")
    assert told(set()) == {"a:1": 0, "b:1": 0, "m": 0, "n": 0}
    assert told({m}) == {"a:1": 0, "b:1": 0, "n": 0}
    assert told({m, n}) == {}
    assert told({("gpu", "m"), n}) == {"a:1": 0, "b:1": 0, "m": 0}
    packages["m"][0].breaker.succeed()  # one of them has it still, or again
    assert told({m, n}) == {"a:1": 1, "m": 1}


def test_availability_is_promised_to_callers_of_every_endpoint() -> None:
    metrics = Metrics()
    metrics.read_from(lambda: slo_readings(endpoint_of(None, name="e")))
    assert value(metrics, "slo_availability_ratio", endpoint="e") == 0.999


def test_tritons_and_packages_are_told_each_by_itself_and_no_pair_of_them() -> None:
    fleet = Fleet(lambda _: FakeEngine(), ahead=2)
    fleet.set_addresses(["a:1", "b:1", "c:1"])
    packages = {model: fleet.replicas(model, 1, lambda: None) for model in ("m", "n")}
    for model, address in (("m", "a:1"), ("m", "b:1"), ("n", "b:1")):
        (replica,) = (each for each in packages[model] if each.address == address)
        replica.breaker.succeed()
        replica.batch_sent(0.0, 1.0, 64)
    metrics = Metrics()
    metrics.read_from(
        lambda: replica_readings(("default", model, each) for model, each in packages.items())
    )
    told = {
        (name.removeprefix("headrace_gateway_"), dict(labels)["triton"]): number
        for (name, labels), number in samples(metrics).items()
        if "triton" in dict(labels)
    }
    assert told == {
        ("replica_serves", "a:1"): 1, ("replica_serves", "b:1"): 1, ("replica_serves", "c:1"): 0,
        ("replica_tokens", "a:1"): 64, ("replica_tokens", "b:1"): 128, ("replica_tokens", "c:1"): 0,
        ("triton_packages", "a:1"): 1, ("triton_packages", "b:1"): 2, ("triton_packages", "c:1"): 0,
    }  # fmt: skip
    assert value(metrics, "package_tritons", model="m") == 2
    assert value(metrics, "package_tritons", model="n") == 1
    assert not any({"triton", "model"} <= dict(labels).keys() for _, labels in samples(metrics))

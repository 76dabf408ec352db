"""The queries name only metrics that somebody exposes, and labels that these metrics have."""

import json
import re
from collections.abc import Iterable

from packed_files import packed
from prometheus_client.core import Metric as Family
from prometheus_client.metrics import MetricWrapperBase

from contracts import gateway_metrics, registry_metrics, triton_metrics
from contracts import metrics as contract
from contracts.endpoint import Arm
from contracts.metrics import Metric, MetricKind
from dashboards import conditions, queries, rules, slo
from dashboards.__main__ import DASHBOARDS, GENERATED
from dashboards.queries import PanelQuery
from gateway.telemetry.metrics import _REFUSALS, Metrics, ObservedMetric
from registry import metrics as registry_counts
from stats.evaluation.evaluation import KNOWN_REASONS
from stats.folding.fold import FoldCounts
from stats.folding.metrics import FoldCollector

# As Triton's documentation has them (docs/user_guide/metrics.md). A request to it is one batch.
TRITON = {
    "nv_inference_queue_duration_us",
    "nv_inference_request_success",
    "nv_inference_compute_infer_duration_us",
    "nv_gpu_utilization",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_memory_total_bytes",
    "nv_gpu_power_usage",
}
PROCESS = {"process_cpu_seconds_total"}
KUBERNETES = {
    f"kube_horizontalpodautoscaler_{name}"
    for name in ("status_current_replicas", "spec_max_replicas", "spec_min_replicas")
}  # of kube-state-metrics
RECORDED = re.compile(r"\bendpoint:[a-z0-9_]+:\w+")
NAME = re.compile(r"\b(?:kube_[a-z_]+|headrace_[a-z0-9_]+|nv_[a-z_]+|process_[a-z_]+)\b")
SELECTION = re.compile(r"\b(headrace_[a-z0-9_]+)\{([^}]*)\}")
VARIABLES = {
    "cluster",
    "namespace",
    "pod",
    "endpoint",
    "version",
    "arm",
    "package",
    "lambda",
    "label",
    "own",
}


def expressions() -> dict[str, str]:
    """Every expression of panels and rules by its name."""
    found: dict[str, str] = dict(rules.ALL_RECORDS)
    for module in (queries, conditions, slo):
        for name, value in vars(module).items():
            if name.isupper() and not name.startswith("_"):
                where = f"{module.__name__}.{name}"
                if isinstance(value, PanelQuery):
                    found[where] = value.expr
                elif isinstance(value, str) and ("(" in value or "{" in value):
                    found[where] = value
    return found


def declared() -> set[Metric]:
    """Every metric of ``contracts``."""
    modules = (contract, gateway_metrics, registry_metrics, triton_metrics)
    found = {
        each for module in modules for each in vars(module).values() if isinstance(each, Metric)
    }
    return found | {*contract.EVALUATE, *contract.CONTROLLER}


def series() -> dict[str, set[str]]:
    """Name of a series -> its labels, as they are declared."""
    known: dict[str, set[str]] = {}
    for metric in declared():
        if metric.kind is MetricKind.HISTOGRAM:
            known |= {name: {*metric.labels} for name in (metric.sum, metric.count)}
            known[metric.bucket] = {*metric.labels, "le"}
        else:
            known[metric.name] = {*metric.labels}
    return known


def names(families: Iterable[Family]) -> dict[str, str]:
    """Name of each family of ours -> its help."""
    return {
        family.name: family.documentation
        for family in families
        if family.name.startswith("headrace")
    }


def test_every_metric_is_one_that_somebody_declares() -> None:
    known = series().keys() | TRITON | PROCESS | KUBERNETES
    for name, expr in expressions().items():
        assert set(RECORDED.findall(expr)) <= rules.ALL_RECORDS.keys(), name
        assert set(NAME.findall(RECORDED.sub("", expr))) <= known, name


def test_every_process_exposes_what_is_declared_for_it() -> None:
    of = {each.family: each.help for each in declared()}
    gateway = names(Metrics().collect())
    assert gateway == {name: text for name, text in of.items() if "_gateway_" in name}
    folding = names(FoldCollector(FoldCounts()).collect())
    assert folding == {name: text for name, text in of.items() if "_fold_" in name}
    registry = names(
        family
        for made in vars(registry_counts).values()
        if isinstance(made, MetricWrapperBase)
        for family in made.collect()
    )
    assert registry == {
        name: text for name, text in of.items() if "_registry_" in name or "_loader_" in name
    }
    packed_engines = {
        name.removesuffix("_total"): text for name, text in packed("packed_counts").COUNTERS.items()
    }
    assert packed_engines == {name: text for name, text in of.items() if "_packed_" in name}


def test_every_label_is_one_that_its_metric_has() -> None:
    known = series()
    for name, expr in expressions().items():
        for metric, selection in SELECTION.findall(RECORDED.sub("", expr)):
            labels = set(re.findall(r'(\w+)(?:=|!=|=~|!~)"', selection))
            assert labels - {"cluster", "namespace", "pod"} <= known[metric], (
                f"{name}: {metric} has {sorted(known[metric])}"
            )


def test_no_absence_is_hidden() -> None:
    for name, expr in expressions().items():
        assert "vector(" not in expr, name


def test_every_query_is_used_and_no_panel_has_one_of_its_own() -> None:
    written = set(expressions().values())
    text = "".join((GENERATED / name).read_text() for name in DASHBOARDS)
    used: set[str] = set()
    for name in DASHBOARDS:
        document = json.loads((GENERATED / name).read_bytes())
        for panel in document["panels"]:
            used |= {target["expr"] for target in panel.get("targets", ())}
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                used.add(variable["query"]["query"])
        used |= {annotation["expr"] for annotation in document["annotations"]["list"]}
    assert used <= written
    of_rules = set(rules.ALL_RECORDS.values()) | {alert.expr for alert in rules.ALERTS}
    assert written <= used | of_rules
    assert set(re.findall(r"\$\{?([a-z]+)", " ".join(used))) <= VARIABLES
    assert "vector(0)" not in text


def test_rules_rest_on_written_queries() -> None:
    written = set(expressions().values())
    for alert in rules.ALERTS:
        assert alert.expr in written, alert.name


def test_every_aggregation_keeps_the_cluster_and_the_namespace() -> None:
    for name, expr in expressions().items():
        kept = re.findall(r"\b(?:sum|max|min|count|avg)(?: by \(([^)]*)\)| *\()", expr)
        for labels in kept:
            whole = set(re.split(r", *", labels))
            assert whole >= {"cluster", "namespace"} or whole == {"le"}, f"{name}: {expr}"


def test_the_gateway_declares_what_it_reads_from_others() -> None:
    wanted = {gateway_metrics.EVENTS_LOST, gateway_metrics.REPLICA_SERVES, gateway_metrics.READY}
    assert {read.value for read in ObservedMetric} >= wanted
    assert {"stable", "control"} <= {arm.value for arm in Arm}


def test_the_gateway_and_the_evaluate_role_begin_the_same_refusals_at_0() -> None:
    known = {f"{int(error.status)} {error.code}" for error in _REFUSALS}
    assert known == set(KNOWN_REASONS)

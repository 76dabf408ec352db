"""The queries name only metrics that somebody exposes, and labels that these metrics have."""

import json
import re
from collections.abc import Iterator

from prometheus_client.core import Metric

from contracts import metrics as contract
from contracts.endpoint import Arm
from contracts.metrics import Kind
from dashboards import queries, rules
from dashboards.__main__ import GENERATED
from dashboards.generate import DASHBOARDS
from dashboards.queries import Query
from gateway.telemetry import metrics as gateway_metrics
from gateway.telemetry.metrics import Metrics, Read
from registry import metrics as registry
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
NAME = re.compile(r"\b(?:headrace_[a-z0-9_]+|nv_[a-z_]+|process_[a-z_]+)\b")
SELECTION = re.compile(r"\b(headrace_[a-z0-9_]+)\{([^}]*)\}")
VARIABLES = {"endpoint", "version", "arm", "package", "lambda", "label", "own"}


def expressions() -> dict[str, str]:
    """Every expression of ``queries.py`` by its name, of rules too."""
    found: dict[str, str] = {}
    for name, value in vars(queries).items():
        if name.isupper() and not name.startswith("_"):
            if isinstance(value, Query):
                found[name] = value.expr
            elif isinstance(value, str) and ("(" in value or "{" in value):
                found[name] = value
    return found


def exposed() -> dict[str, set[str]]:
    """Name of a series -> its labels, as the processes declare them."""
    known: dict[str, set[str]] = {}
    for metric in (*contract.EVALUATE, *contract.CONTROLLER):
        suffixes = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        for suffix in suffixes:
            known[metric.name + suffix] = {*metric.labels, *(["le"] if suffix == "_bucket" else [])}
    for family in _families():
        labels = set(getattr(family, "_labelnames", ()))
        if family.type == "histogram":
            known |= {f"{family.name}{end}": labels for end in ("_sum", "_count")}
            known[f"{family.name}_bucket"] = labels | {"le"}
        else:
            known[family.name + ("_total" if family.type == "counter" else "")] = labels
    return known


def _families() -> Iterator[Metric]:
    yield from (family for family in Metrics().collect() if family.name.startswith("headrace"))
    yield from FoldCollector(FoldCounts()).collect()
    for made in vars(registry).values():
        if hasattr(made, "_labelnames"):
            for family in made.collect():
                family._labelnames = made._labelnames
                yield family


def test_every_metric_is_one_that_somebody_exposes() -> None:
    known = exposed().keys() | TRITON | PROCESS
    for name, expr in expressions().items():
        assert set(NAME.findall(expr)) <= known, name


def test_every_label_is_one_that_its_metric_has() -> None:
    known = exposed()
    for name, expr in expressions().items():
        for metric, selection in SELECTION.findall(expr):
            labels = set(re.findall(r'(\w+)(?:=|!=|=~|!~)"', selection))
            assert labels <= known[metric], f"{name}: {metric} has {sorted(known[metric])}"


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
    assert used <= written
    of_rules = {record.expr for record in rules.RECORDS} | {alert.expr for alert in rules.ALERTS}
    assert written <= used | of_rules
    assert set(re.findall(r"\$\{?([a-z]+)", " ".join(used))) <= VARIABLES
    assert "vector(0)" not in text


def test_rules_rest_on_written_queries_and_their_own_records() -> None:
    written = set(expressions().values())
    recorded = {record.record for record in rules.RECORDS}
    for alert in rules.ALERTS:
        first = alert.expr.split(" ", maxsplit=1)[0]
        assert alert.expr in written or first in recorded, alert.name


def test_the_fold_roles_metrics_are_named_as_it_names_them() -> None:
    known = exposed()
    for metric in (contract.FOLD_CONNECTED, contract.FOLD_LAG, contract.FOLD_MISSING):
        assert metric.name in known


def test_the_gateway_declares_what_it_reads_from_others() -> None:
    assert {read.value[0] for read in Read} >= {"events_lost_total", "replica_serves", "ready"}
    assert {"stable", "control"} <= {arm.value for arm in Arm}


def test_the_gateway_and_the_evaluate_role_begin_the_same_refusals_at_0() -> None:
    known = {f"{int(error.status)} {error.code}" for error in gateway_metrics._REFUSALS}
    assert known == set(KNOWN_REASONS)

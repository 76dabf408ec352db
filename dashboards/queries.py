"""Every PromQL expression of the dashboards, written once; those of alerts: ``conditions.py``.

The dashboards' modules place them on panels. The names of Headrace's metrics come from
``contracts``, where every process declares its own; only Triton's and the process collector's are
written here. Nothing here knows of Grafana but its variables: ``$cluster``, ``$namespace``,
``$endpoint``, ``$version``, ``$arm``, ``$package``, ``$pod`` and ``$__rate_interval``.

Every aggregation keeps the labels ``cluster`` and ``namespace``, so that endpoints of one name in
two releases are two lines; only a heatmap has no room for them. If Prometheus has no such
labels, All matches that too.

No expression hides an absence with ``or vector(0)``: if a thing is counted at all, its counter
starts at 0; if it isn't, an empty panel is the truth.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from contracts import gateway_metrics as g
from contracts import metrics as m
from contracts import registry_metrics as r
from contracts import triton_metrics as t
from contracts.metrics import Metric
from contracts.statistics import LatencyStage, Statistic
from dashboards import slo

RANGE: Final = "$__rate_interval"


class PanelFormat(StrEnum):
    """The form in which a panel expects its data."""

    SERIES = "time_series"  # lines over time
    BUCKETS = "heatmap"  # cumulative buckets by ``le``, over time
    NOW = "instant"  # one value a series, of this moment
    ROWS = "table"  # the same, a row of a table each


@dataclass(frozen=True)
class PanelQuery:
    """One expression of a panel.

    Attributes:
        expr: PromQL with Grafana's variables.
        legend: name of a line, from its labels; empty for heatmaps and tables.
        shape: how the panel reads the answer.
        exemplars: show single requests too, those that were traced.
    """

    expr: str
    legend: str = ""
    shape: PanelFormat = PanelFormat.SERIES
    exemplars: bool = False


# Selections

_SCOPE = 'cluster=~"$cluster",namespace=~"$namespace"'
_ENDPOINT = f'{_SCOPE},endpoint=~"$endpoint"'
_VERSIONS = f'{_ENDPOINT},version=~"$version"'
_OF = f'{_VERSIONS},arm=~"$arm"'
_PACKAGE = (
    f'{_SCOPE},model=~".+-($package)"'  # Triton's name of a package ends in its digest's start
)
_PODS = f'{_SCOPE},pod=~"$pod"'
_RELEASE = "{{cluster}} {{namespace}}"
_ENDPOINTS = f"{_RELEASE} {{{{endpoint}}}}"
_VERSION = f"{_ENDPOINTS} {{{{version}}}}"
_LINES = f"{_VERSION} {{{{arm}}}}"
_MODELS = f"{_RELEASE} {{{{model}}}}"
_POD = f"{_RELEASE} {{{{pod}}}} {{{{instance}}}}"


def _rate(name: str, where: str = _SCOPE) -> str:
    return f"rate({name}{{{where}}}[{RANGE}])"


def _aggregate(operator: str, labels: str, inner: str) -> str:
    """Aggregated over all but these labels, and the release's."""
    kept = f"cluster, namespace, {labels}" if labels else "cluster, namespace"
    return f"{operator} by ({kept}) ({inner})"


def _sum_by(labels: str, inner: str) -> str:
    return _aggregate("sum", labels, inner)


def _most(labels: str, metric: Metric, where: str = _SCOPE) -> str:
    return _aggregate("max", labels, f"{metric.name}{{{where}}}")


def _find_least(labels: str, metric: Metric, where: str = _SCOPE) -> str:
    return _aggregate("min", labels, f"{metric.name}{{{where}}}")


def _share(part: str, whole: str, labels: str) -> str:
    return f"{_sum_by(labels, part)} / {_sum_by(labels, whole)}"


def _share_of(metric: Metric, part: str, where: str, labels: str) -> str:
    """The part of a counter with these labels, of all of it."""
    return _share(_rate(metric.name, f"{where},{part}"), _rate(metric.name, where), labels)


def _mean(metric: Metric, where: str, labels: str) -> str:
    return _share(_rate(metric.sum, where), _rate(metric.count, where), labels)


def _buckets(bucket: str, where: str) -> PanelQuery:
    return PanelQuery(
        f"sum by (le) (increase({bucket}{{{where}}}[{RANGE}]))", "{{le}}", PanelFormat.BUCKETS
    )


def _quantile(q: float, bucket: str, where: str, labels: str, legend: str) -> PanelQuery:
    inner = _sum_by(f"{labels}, le", _rate(bucket, where))
    return PanelQuery(f"histogram_quantile({q:g}, {inner})", legend)


def _triton_seconds(name: str) -> PanelQuery:
    of, batches = _rate(name, _PACKAGE), _rate("nv_inference_request_success", _PACKAGE)
    return PanelQuery(f"{_sum_by('model', of)} / 1e6 / {_sum_by('model', batches)}", _MODELS)


def _now(expr: str, legend: str = "") -> PanelQuery:
    return PanelQuery(expr, legend, PanelFormat.NOW)


def _rows(expr: str) -> PanelQuery:
    return PanelQuery(expr, shape=PanelFormat.ROWS)


# Variables of the dashboards: the values of a label, of series that a dashboard shows.


def _values(metric: str, label: str, where: str) -> str:
    return (
        f"label_values({metric}{{{where}}}, {label})"
        if where
        else (f"label_values({metric}, {label})")
    )


def clusters(metric: str) -> str:
    """Where a dashboard's metric comes from."""
    return _values(metric, "cluster", "")


def namespaces(metric: str) -> str:
    """The releases of the chosen clusters."""
    return _values(metric, "namespace", 'cluster=~"$cluster"')


ENDPOINTS_OF_TRAFFIC: Final = _values(m.ATTEMPTS.name, "endpoint", _SCOPE)
ENDPOINTS_AT_GATEWAYS: Final = _values(g.ATTEMPTS.name, "endpoint", _SCOPE)
ENDPOINTS_OF_ROUTES: Final = _values(m.ROUTE_WEIGHT.name, "endpoint", _SCOPE)
CLUSTERS_OF_TRAFFIC, NAMESPACES_OF_TRAFFIC = clusters(m.ATTEMPTS.name), namespaces(m.ATTEMPTS.name)
CLUSTERS_OF_GATEWAYS, NAMESPACES_OF_GATEWAYS = clusters(g.READY.name), namespaces(g.READY.name)
CLUSTERS_OF_ROUTES = clusters(m.ROUTE_WEIGHT.name)
NAMESPACES_OF_ROUTES = namespaces(m.ROUTE_WEIGHT.name)
VERSIONS_OF_TRAFFIC: Final = _values(m.ATTEMPTS.name, "version", _ENDPOINT)
ARMS: Final = _values(m.ATTEMPTS.name, "arm", _VERSIONS)
PACKAGES: Final = _values(m.VERSION_INFO.name, "package", _VERSIONS)
PREDICTED: Final = _values(m.LABELS.name, "label", _VERSIONS)
OWN_HISTOGRAMS: Final = _values(m.OWN_HISTOGRAM.count, "statistic", _ENDPOINT)
PODS: Final = _values(g.READY.name, "pod", _SCOPE)

# A version and where it comes from

VERSIONS: Final = _rows(
    _most("endpoint, version, model, run_id, data_set, task, precision", m.VERSION_INFO, _VERSIONS)
)

# Endpoints: exact counts, from the merged windows

REQUESTS: Final = PanelQuery(_sum_by("endpoint, version, arm", _rate(m.ANSWERED.name, _OF)), _LINES)
REQUESTS_NOW: Final = _now(_sum_by("endpoint", _rate(m.ANSWERED.name, _OF)), _ENDPOINTS)
TEXTS: Final = PanelQuery(_sum_by("endpoint, version, arm", _rate(m.TEXTS.name, _OF)), _LINES)
ATTEMPTS_BY_STATUS: Final = PanelQuery(
    _sum_by("endpoint, status", _rate(m.ATTEMPTS.name, _OF)), f"{_ENDPOINTS} {{{{status}}}}"
)
ERROR_SHARE: Final = PanelQuery(
    _share_of(m.ATTEMPTS, 'status=~"5.."', _OF, "endpoint, version, arm"), _LINES
)
REFUSALS: Final = PanelQuery(
    _sum_by("endpoint, status, reason", _rate(m.REFUSALS.name, _ENDPOINT)),
    f"{_ENDPOINTS} {{{{status}}}} {{{{reason}}}}",
)
_TOTAL = f'{_OF},stage="{LatencyStage.TOTAL}"'
LATENCY_HEATMAP: Final = _buckets(m.LATENCY.bucket, _TOTAL)
LATENCY_P50: Final = _quantile(
    0.5, m.LATENCY.bucket, _TOTAL, "endpoint, version, arm", f"p50 {_LINES}"
)
LATENCY_P95: Final = _quantile(
    0.95, m.LATENCY.bucket, _TOTAL, "endpoint, version, arm", f"p95 {_LINES}"
)
LATENCY_P99: Final = _quantile(
    0.99, m.LATENCY.bucket, _TOTAL, "endpoint, version, arm", f"p99 {_LINES}"
)
LATENCY_STAGES: Final = PanelQuery(
    _mean(m.LATENCY, f'{_OF},stage!="{LatencyStage.TOTAL}"', "endpoint, stage"),
    f"{_ENDPOINTS} {{{{stage}}}}",
)
ROWS_A_BATCH: Final = PanelQuery(
    _share(_rate(g.BATCH_ROWS.name, _PACKAGE), _rate(g.BATCHES.name, _PACKAGE), "model"),
    _MODELS,
)
PADDING_SHARE: Final = PanelQuery(
    _share_of(g.BATCH_TOKENS, 'kind="padding"', _PACKAGE, "model"), _MODELS
)
ENGINE_BUSY: Final = PanelQuery(_sum_by("model", _rate(g.ENGINE_SECONDS.name, _PACKAGE)), _MODELS)
TRITON_QUEUE: Final = _triton_seconds("nv_inference_queue_duration_us")
TRITON_COMPUTE: Final = _triton_seconds("nv_inference_compute_infer_duration_us")
_GPUS = f"{_POD} {{{{gpu_uuid}}}}"
GPU_BUSY: Final = PanelQuery(f"nv_gpu_utilization{{{_SCOPE}}}", _GPUS)
GPU_MEMORY: Final = PanelQuery(
    f"nv_gpu_memory_used_bytes{{{_SCOPE}}} / nv_gpu_memory_total_bytes{{{_SCOPE}}}", _GPUS
)
GPU_POWER: Final = PanelQuery(f"nv_gpu_power_usage{{{_SCOPE}}}", _GPUS)
PACKED_BUSY: Final = PanelQuery(
    _aggregate("avg", "model", _rate(t.SECONDS.name, _PACKAGE)), f"{_MODELS}: device computes"
)
PACKED_USEFUL: Final = PanelQuery(
    _share(
        _rate(t.TOKENS.name, _PACKAGE),
        f"{_rate(t.TOKENS.name, _PACKAGE)} + {_rate(t.PADDING.name, _PACKAGE)}",
        "model",
    ),
    f"{_MODELS}: tokens of texts",
)

# Drift: texts, answers, and how far they are from the reference

ALARMS_NOW: Final = _now(_sum_by("endpoint", f"{m.DRIFT_ALARM.name}{{{_VERSIONS}}}"), _ENDPOINTS)
CALIBRATION: Final = _now(
    _find_least("endpoint, version", m.DRIFT_CALIBRATION, _VERSIONS), _VERSION
)
REFERENCES: Final = _rows(
    _aggregate("max", "endpoint, version, kind", f"{m.DRIFT_REFERENCE.name}{{{_VERSIONS}}} == 1")
)
REFERENCE_TEXTS: Final = _now(
    _most("endpoint, version", m.DRIFT_REFERENCE_TEXTS, _VERSIONS), _VERSION
)
TIME_KNOWN: Final = _now(_find_least("endpoint, version", m.DRIFT_TIME_KNOWN, _VERSIONS), _VERSION)
DRIFT_LEVEL: Final = PanelQuery(
    _most("endpoint, version, statistic", m.DRIFT_LEVEL, _VERSIONS), f"{_VERSION} {{{{statistic}}}}"
)
_STATISTIC = f'{_VERSIONS},lambda=~"$lambda"'
DRIFT_PSI: Final = PanelQuery(
    _most("endpoint, version, statistic", m.DRIFT_PSI, _STATISTIC), f"{_VERSION} {{{{statistic}}}}"
)
DRIFT_SIGNIFICANCE: Final = PanelQuery(
    _most("endpoint, version, statistic", m.DRIFT_SIGNIFICANCE, _STATISTIC),
    f"{_VERSION} {{{{statistic}}}}",
)
LAMBDAS: Final = f"label_values({m.DRIFT_PSI.name}{{{_VERSIONS}}}, lambda)"

_TOKENS = m.TEXT_HISTOGRAMS[Statistic.TOKENS]
_WORDS = m.TEXT_HISTOGRAMS[Statistic.WORDS]
_UNK = m.TEXT_HISTOGRAMS[Statistic.UNK_TOKENS]
_UNK_SHARE = m.TEXT_HISTOGRAMS[Statistic.UNK_SHARE]
_PER_WORD = m.TEXT_HISTOGRAMS[Statistic.TOKENS_PER_WORD]
_NORM = m.TEXT_HISTOGRAMS[Statistic.VECTOR_NORM]
UNK_A_TEXT: Final = PanelQuery(_mean(_UNK, _OF, "endpoint, version, arm"), _LINES)
UNK_SHARE: Final = PanelQuery(
    _share(_rate(_UNK.sum, _OF), _rate(_TOKENS.sum, _OF), "endpoint, version, arm"), _LINES
)
UNK_HEATMAP: Final = _buckets(_UNK_SHARE.bucket, _OF)
TOKENS_PER_WORD: Final = PanelQuery(
    _share(_rate(_TOKENS.sum, _OF), _rate(_WORDS.sum, _OF), "endpoint, version, arm"), _LINES
)
TOKENS_PER_WORD_HEATMAP: Final = _buckets(_PER_WORD.bucket, _OF)
TOKENS_P50: Final = _quantile(0.5, _TOKENS.bucket, _OF, "endpoint, version, arm", f"p50 {_LINES}")
TOKENS_P95: Final = _quantile(0.95, _TOKENS.bucket, _OF, "endpoint, version, arm", f"p95 {_LINES}")
TOKENS_HEATMAP: Final = _buckets(_TOKENS.bucket, _OF)
WORDS_A_TEXT: Final = PanelQuery(_mean(_WORDS, _OF, "endpoint, version, arm"), _LINES)
TRUNCATED_SHARE: Final = PanelQuery(
    _share(_rate(m.TRUNCATED.name, _OF), _rate(m.TEXTS.name, _OF), "endpoint, version, arm"), _LINES
)
LABEL_SHARE: Final = PanelQuery(
    f"{_sum_by('endpoint, version, arm, label', _rate(m.LABELS.name, _OF))} "
    "/ ignoring (label) group_left "
    f"{_sum_by('endpoint, version, arm', _rate(m.LABELS.name, _OF))}",
    f"{{{{label}}}} {_LINES}",
)
SCORE_HEATMAP: Final = _buckets(m.SCORES.bucket, f'{_OF},label=~"$label"')
NORM_HEATMAP: Final = _buckets(_NORM.bucket, _OF)
ACCURACY_ESTIMATED: Final = PanelQuery(
    _most("endpoint, version, arm", m.ACCURACY_ESTIMATED, _OF), f"estimated {_LINES}"
)
ACCURACY_INTERVAL: Final = PanelQuery(
    _most("endpoint, version, arm, end", m.ACCURACY_INTERVAL, _OF),
    f"estimated, {{{{end}}}} {_LINES}",
)
ACCURACY_MEASURED: Final = PanelQuery(
    _most("endpoint, version, arm", m.ACCURACY_MEASURED, _OF), f"measured {_LINES}"
)
FEEDBACK_TEXTS: Final = PanelQuery(
    _most("endpoint, version, arm", m.ACCURACY_FEEDBACK, _OF), _LINES
)
OWN_HEATMAP: Final = _buckets(m.OWN_HISTOGRAM.bucket, f'{_OF},statistic=~"$own"')
OWN_CATEGORIES: Final = PanelQuery(
    _sum_by("endpoint, statistic, value", _rate(m.OWN_CATEGORY.name, _OF)),
    f"{_ENDPOINTS} {{{{statistic}}}} {{{{value}}}}",
)
OWN_COUNTERS: Final = PanelQuery(
    _sum_by("endpoint, statistic", _rate(m.OWN_COUNTER.name, _OF)),
    f"{_ENDPOINTS} {{{{statistic}}}}",
)
OWN_UNFIT: Final = PanelQuery(
    _sum_by("endpoint, statistic", _rate(m.OWN_UNFIT.name, _OF)),
    f"unfit {_ENDPOINTS} {{{{statistic}}}}",
)
OWN_UNDECLARED: Final = PanelQuery(
    _sum_by("endpoint", _rate(m.OWN_UNDECLARED.name, _OF)), f"undeclared {_ENDPOINTS}"
)

# Rollout: both arms side by side

WEIGHTS: Final = PanelQuery(_most("endpoint, version, arm", m.ROUTE_WEIGHT, _VERSIONS), _LINES)
PHASES: Final = PanelQuery(
    _most("endpoint, version, phase", m.ROLLOUT_PHASE, _VERSIONS) + " == 1",
    f"{_VERSION} {{{{phase}}}}",
)
PHASE_NOW: Final = _rows(_most("endpoint, version, phase", m.ROLLOUT_PHASE, _ENDPOINT) + " == 1")
STEP: Final = PanelQuery(_most("endpoint, version", m.ROLLOUT_STEP, _VERSIONS), _VERSION)
PAUSED: Final = PanelQuery(_most("endpoint, version", m.ROLLOUT_PAUSED, _VERSIONS), _VERSION)
VERDICTS: Final = PanelQuery(
    _find_least("endpoint, version, check", m.CHECK_VERDICT, _VERSIONS), f"{_VERSION} {{{{check}}}}"
)
TRANSITIONS: Final = PanelQuery(
    _sum_by("endpoint, phase", f"increase({m.ROLLOUT_TRANSITIONS.name}{{{_ENDPOINT}}}[$__range])")
    + " > 0",
    f"{_ENDPOINTS} {{{{phase}}}}",
    PanelFormat.NOW,
)
ARM_REQUESTS: Final = PanelQuery(
    _sum_by("endpoint, version, arm", _rate(m.ATTEMPTS.name, _OF)), _LINES
)
ARM_ERRORS: Final = PanelQuery(
    _share_of(m.ATTEMPTS, 'status=~"5.."', _OF, "endpoint, version, arm"), _LINES
)
ARM_LATENCY: Final = _quantile(0.95, m.LATENCY.bucket, _TOTAL, "endpoint, version, arm", _LINES)
ARM_SCORE: Final = _quantile(0.5, m.SCORES.bucket, _OF, "endpoint, version, arm", _LINES)
ARM_WRONG: Final = PanelQuery(
    _share_of(m.FEEDBACK, 'outcome="wrong"', _OF, "endpoint, version, arm"), _LINES
)
SHADOW_AGREEMENT: Final = PanelQuery(
    _share_of(m.PAIRS, 'outcome="equal"', _VERSIONS, "endpoint, version"), _VERSION
)
SHADOW_DISTANCE: Final = _buckets(m.PAIR_DISTANCE.bucket, _VERSIONS)
SHADOW_COPIES: Final = PanelQuery(
    _sum_by("endpoint, outcome", _rate(g.SHADOWS.name, _ENDPOINT)), f"{_ENDPOINTS} {{{{outcome}}}}"
)
SPACES_NAMED: Final = PanelQuery(
    _sum_by("endpoint, space", _rate(g.SPACE_NAMED.name, _ENDPOINT)), f"{_ENDPOINTS} {{{{space}}}}"
)
SPACES_UNNAMED: Final = PanelQuery(
    _sum_by("endpoint", _rate(g.SPACE_UNNAMED.name, _ENDPOINT)), f"{_ENDPOINTS} names none"
)
SECOND_ATTEMPTS: Final = PanelQuery(
    _sum_by("endpoint, version, arm", _rate(m.REPEATED.name, _OF)), _LINES
)
CONVERSIONS: Final = PanelQuery(
    _sum_by("outcome", f"increase({r.CONVERSIONS.name}{{{_SCOPE}}}[$__range])"),
    f"{_RELEASE} {{{{outcome}}}}",
    PanelFormat.NOW,
)
LOAD_SECONDS: Final = PanelQuery(
    _sum_by("", f"increase({r.LOAD_SECONDS.sum}{{{_SCOPE}}}[$__range])")
    + " / "
    + _sum_by("", f"increase({r.LOAD_SECONDS.count}{{{_SCOPE}}}[$__range])"),
    f"{_RELEASE} load",
    PanelFormat.NOW,
)

# Gateway

READY: Final = _now(_sum_by("", f"{g.READY.name}{{{_PODS}}}"), f"{_RELEASE} ready")
_REQUESTS_OF_PODS = _rate(g.REQUESTS.name, _PODS)
ANSWERS: Final = PanelQuery(
    _sum_by("dialect, status", _REQUESTS_OF_PODS), f"{_RELEASE} {{{{dialect}}}} {{{{status}}}}"
)
ANSWER_HEATMAP: Final = _buckets(g.REQUEST_SECONDS.bucket, _PODS)
ADMITTED_TOKENS: Final = PanelQuery(
    _sum_by("endpoint", f"{g.TOKENS_IN_FLIGHT.name}{{{_ENDPOINT}}}"), _ENDPOINTS
)
G_REFUSED: Final = PanelQuery(
    _sum_by("endpoint, reason", _rate(g.REFUSALS.name, _ENDPOINT)), f"{_ENDPOINTS} {{{{reason}}}}"
)
REFUSAL_P99: Final = _quantile(0.99, g.REFUSAL_SECONDS.bucket, _ENDPOINT, "endpoint", _ENDPOINTS)
BULK_REQUESTS: Final = PanelQuery(
    _sum_by("endpoint, status", _rate(g.BULK_REQUESTS.name, _ENDPOINT)),
    f"{_ENDPOINTS} {{{{status}}}}",
)
BULK_TEXTS: Final = PanelQuery(
    _sum_by("endpoint, space", _rate(g.BULK_TEXTS.name, _ENDPOINT)), f"{_ENDPOINTS} {{{{space}}}}"
)
QUEUED_ROWS: Final = PanelQuery(_sum_by("model", f"{g.QUEUED_ROWS.name}{{{_SCOPE}}}"), _MODELS)
WAIT_P95: Final = _quantile(
    0.95, g.STAGE_SECONDS.bucket, f'{_ENDPOINT},stage="{LatencyStage.WAIT}"', "endpoint", _ENDPOINTS
)
ALL_ROWS_A_BATCH: Final = PanelQuery(
    _share(_rate(g.BATCH_ROWS.name), _rate(g.BATCHES.name), "model"), _MODELS
)
TOKENS_BY_KIND: Final = PanelQuery(
    _sum_by("kind", _rate(g.BATCH_TOKENS.name)), f"{_RELEASE} {{{{kind}}}}"
)
ALL_PADDING: Final = PanelQuery(
    _share_of(g.BATCH_TOKENS, 'kind="padding"', _SCOPE, "model"), _MODELS
)
SERVING: Final = PanelQuery(_find_least("triton", g.REPLICA_SERVES), f"{_RELEASE} {{{{triton}}}}")
TRITONS_OF_PACKAGE: Final = PanelQuery(_find_least("model", g.PACKAGE_TRITONS), _MODELS)
PACKAGES_ASLEEP: Final = PanelQuery(_most("", g.ASLEEP), f"{_RELEASE} asleep")
WAITING_FOR_MODELS: Final = PanelQuery(
    _sum_by("", f"{g.WAITING_FOR_MODELS.name}{{{_SCOPE}}}"), f"{_RELEASE} callers that wait"
)
WAKE_P95: Final = _quantile(
    0.95, g.WAKE_SECONDS.bucket, _SCOPE, "outcome", f"{_RELEASE} {{{{outcome}}}}"
)
TRITON_TOKENS: Final = PanelQuery(
    _sum_by("triton", f"{g.REPLICA_TOKENS.name}{{{_SCOPE}}}"), f"{_RELEASE} {{{{triton}}}}"
)
EVENTS_MADE: Final = PanelQuery(_sum_by("", _rate(g.EVENTS.name)), f"{_RELEASE} made")
EVENTS_SENT: Final = PanelQuery(
    _sum_by("", _rate(g.EVENTS_PUBLISHED.name)), f"{_RELEASE} acknowledged"
)
EVENTS_LOST: Final = PanelQuery(_sum_by("", _rate(g.EVENTS_LOST.name)), f"{_RELEASE} lost")
EVENTS_WAITING: Final = PanelQuery(
    _sum_by("", f"{g.EVENTS_WAITING.name}{{{_SCOPE}}}"), f"{_RELEASE} waiting"
)
LOST_BY_REASON: Final = _rows(
    _sum_by("endpoint, status, reason", f"{g.EVENTS_DROPPED.name}{{{_SCOPE}}}")
)
EVENTS_CONNECTED: Final = _now(_find_least("", g.EVENTS_CONNECTED), f"{_RELEASE} Kafka")
KAFKA_FAILURES: Final = PanelQuery(
    _sum_by("", _rate(g.EVENT_FAILURES.name)), f"{_RELEASE} failed tries"
)
HOOK_FAILURES: Final = PanelQuery(
    _sum_by("endpoint, reason", _rate(g.PREPROCESSOR_FAILURES.name, _ENDPOINT)),
    f"{_ENDPOINTS} {{{{reason}}}}",
)
# By pod: what differs between gateways
_OF_POD = "pod, instance"
GATEWAY_CPU: Final = PanelQuery(
    f"rate(process_cpu_seconds_total{{{_PODS}}}[{RANGE}]) "
    f"and on (cluster, namespace, job, instance) {g.READY.name}",
    _POD,
)
REQUESTS_OF_POD: Final = PanelQuery(_sum_by(_OF_POD, _REQUESTS_OF_PODS), _POD)
ERRORS_OF_POD: Final = PanelQuery(_share_of(g.REQUESTS, 'status=~"5.."', _PODS, _OF_POD), _POD)
LATENCY_OF_POD: Final = replace(
    _quantile(
        0.95,
        g.STAGE_SECONDS.bucket,
        f'{_PODS},endpoint=~"$endpoint",stage="{LatencyStage.TOTAL}"',
        _OF_POD,
        _POD,
    ),
    exemplars=True,
)
FOLD_LAG: Final = PanelQuery(
    _most("partition", m.FOLD_LAG), f"{_RELEASE} partition {{{{partition}}}}"
)
FOLD_EVENTS: Final = PanelQuery(_sum_by("", _rate(m.FOLD_EVENTS.name)), f"{_RELEASE} folded")
EVALUATE_LAG: Final = PanelQuery(_most("", m.EVALUATE_LAG), f"{_RELEASE} records")
EVALUATE_AGE: Final = PanelQuery(
    f"time() - {_find_least('', m.EVALUATE_THROUGH)}", f"{_RELEASE} behind"
)

# Service levels, of what rules.py records; they hold without the evaluate role

_RECORDED = f"{{{_ENDPOINT}}}"


def _burn(name: str, window: str, objective: str) -> PanelQuery:
    share = f"{slo.record(name, window)}{_RECORDED}"
    return PanelQuery(
        f"{share} / on (cluster, namespace, endpoint) (1 - {objective}{_RECORDED})",
        f"{_ENDPOINTS} {window}",
    )


def _budget(part: str, whole: str, objective: str) -> PanelQuery:
    failed = f"sum_over_time({part}{_RECORDED}[30d])"
    share = f"{failed} / (sum_over_time({whole}{_RECORDED}[30d]) > 0)"
    allowed = f"(1 - {objective}{_RECORDED})"
    return _now(f"1 - ({share}) / on (cluster, namespace, endpoint) {allowed}", _ENDPOINTS)


ERROR_BURN_1H: Final = _burn("errors", "1h", slo.AVAILABILITY)
ERROR_BURN_1D: Final = _burn("errors", "1d", slo.AVAILABILITY)
LATENCY_BURN_1H: Final = _burn("slow", "1h", slo.LATENCY)
LATENCY_BURN_1D: Final = _burn("slow", "1d", slo.LATENCY)
ERROR_BUDGET: Final = _budget(slo.ERRORS, slo.REQUESTS, slo.AVAILABILITY)
LATENCY_BUDGET: Final = _budget(slo.SLOW, slo.ANSWERS, slo.LATENCY)

# Lines on every panel: a version entered a phase
ROLLOUT_EVENTS: Final = (
    _sum_by("endpoint, phase", f"increase({m.ROLLOUT_TRANSITIONS.name}{{{_ENDPOINT}}}[2m])")
    + " > 0"
)

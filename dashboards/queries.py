"""Every PromQL expression of the dashboards and the rules, written once.

The dashboards' modules place them on panels, ``rules.py`` puts them under alerts. The names of
Headrace's metrics come from ``contracts``, where every process declares its own; only Triton's and
the process collector's are written here. Nothing here knows of Grafana but its variables:
``$endpoint``, ``$version``, ``$arm``, ``$package`` and ``$__rate_interval``.

No expression hides an absence with ``or vector(0)``: where a thing is counted at all, its counter
starts at 0; where it isn't, an empty panel is the truth.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contracts import gateway_metrics as g
from contracts import metrics as m
from contracts import registry_metrics as r
from contracts.metrics import Metric
from contracts.statistics import Stage, Statistic

RANGE: Final = "$__rate_interval"


class Shape(StrEnum):
    """The form in which a panel expects its data."""

    SERIES = "time_series"  # lines over time
    BUCKETS = "heatmap"  # cumulative buckets by ``le``, over time
    NOW = "instant"  # one value a series, of this moment
    ROWS = "table"  # the same, a row of a table each


@dataclass(frozen=True)
class Query:
    """One expression of a panel.

    Attributes:
        expr: PromQL with Grafana's variables.
        legend: name of a line, from its labels; empty for heatmaps and tables.
        shape: how the panel reads the answer.
    """

    expr: str
    legend: str = ""
    shape: Shape = Shape.SERIES


# Selections

_ENDPOINT = 'endpoint=~"$endpoint"'
_OF = f'{_ENDPOINT},version=~"$version",arm=~"$arm"'
_VERSIONS = f'{_ENDPOINT},version=~"$version"'
_PACKAGE = 'model=~".+-($package)"'  # Triton's name of a package ends in its digest's start
_ARMS = "{{version}} {{arm}}"
_LINES = "{{endpoint}} {{version}} {{arm}}"


def _rate(name: str, where: str = "") -> str:
    return f"rate({name}{{{where}}}[{RANGE}])" if where else f"rate({name}[{RANGE}])"


def _by(labels: str, inner: str) -> str:
    return f"sum by ({labels}) ({inner})"


def _most(labels: str, metric: Metric, where: str) -> str:
    return f"max by ({labels}) ({metric.name}{{{where}}})"


def _share(part: str, whole: str, labels: str) -> str:
    return f"{_by(labels, part)} / {_by(labels, whole)}"


def _share_of(metric: Metric, part: str, where: str, labels: str) -> str:
    """The part of a counter with these labels, of all of it."""
    return _share(
        _rate(metric.name, f"{where},{part}" if where else part),
        _rate(metric.name, where),
        labels,
    )


def _mean(metric: Metric, where: str, labels: str) -> str:
    return _share(_rate(metric.sum, where), _rate(metric.count, where), labels)


def _buckets(bucket: str, where: str) -> Query:
    return Query(_by("le", f"increase({bucket}{{{where}}}[{RANGE}])"), "{{le}}", Shape.BUCKETS)


def _quantile(q: float, bucket: str, where: str, labels: str, legend: str) -> Query:
    inner = _by(f"{labels}, le", _rate(bucket, where))
    return Query(f"histogram_quantile({q:g}, {inner})", legend)


def _triton_seconds(name: str) -> Query:
    of, batches = _rate(name, _PACKAGE), _rate("nv_inference_request_success", _PACKAGE)
    return Query(f"{_by('model', of)} / 1e6 / {_by('model', batches)}", "{{model}}")


def _now(expr: str, legend: str = "") -> Query:
    return Query(expr, legend, Shape.NOW)


def _rows(expr: str) -> Query:
    return Query(expr, shape=Shape.ROWS)


# Variables of the dashboards: the values of a label, of series that a dashboard shows.

ENDPOINTS_OF_TRAFFIC: Final = f"label_values({m.ATTEMPTS.name}, endpoint)"
ENDPOINTS_AT_GATEWAYS: Final = f"label_values({g.ATTEMPTS.name}, endpoint)"
ENDPOINTS_OF_ROUTES: Final = f"label_values({m.ROUTE_WEIGHT.name}, endpoint)"
VERSIONS_OF_TRAFFIC: Final = f"label_values({m.ATTEMPTS.name}{{{_ENDPOINT}}}, version)"
ARMS: Final = f"label_values({m.ATTEMPTS.name}{{{_VERSIONS}}}, arm)"
PACKAGES: Final = f"label_values({m.VERSION_INFO.name}{{{_VERSIONS}}}, package)"
PREDICTED: Final = f"label_values({m.LABELS.name}{{{_VERSIONS}}}, label)"
OWN_HISTOGRAMS: Final = f"label_values({m.OWN_HISTOGRAM.count}{{{_ENDPOINT}}}, statistic)"

# A version and where it comes from

VERSIONS: Final = _rows(
    _most("endpoint, version, model, run_id, data_set, task, precision", m.VERSION_INFO, _VERSIONS)
)

# Endpoints: exact counts, from the merged windows

REQUESTS: Final = Query(_by("endpoint, version, arm", _rate(m.ANSWERED.name, _OF)), _LINES)
REQUESTS_NOW: Final = _now(_by("endpoint", _rate(m.ANSWERED.name, _OF)), "{{endpoint}}")
TEXTS: Final = Query(_by("endpoint, version, arm", _rate(m.TEXTS.name, _OF)), _LINES)
ATTEMPTS_BY_STATUS: Final = Query(_by("status", _rate(m.ATTEMPTS.name, _OF)), "{{status}}")
ERROR_SHARE: Final = Query(
    _share_of(m.ATTEMPTS, 'status=~"5.."', _OF, "endpoint, version, arm"), _LINES
)
REFUSALS: Final = Query(
    _by("endpoint, status, reason", _rate(m.REFUSALS.name, _ENDPOINT)),
    "{{endpoint}} {{status}} {{reason}}",
)
_TOTAL = f'{_OF},stage="{Stage.TOTAL}"'
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
LATENCY_STAGES: Final = Query(
    _mean(m.LATENCY, f'{_OF},stage!="{Stage.TOTAL}"', "stage"), "{{stage}}"
)
ROWS_A_BATCH: Final = Query(
    _share(_rate(g.BATCH_ROWS.name, _PACKAGE), _rate(g.BATCHES.name, _PACKAGE), "model"),
    "{{model}}",
)
PADDING_SHARE: Final = Query(
    _share_of(g.BATCH_TOKENS, 'kind="padding"', _PACKAGE, "model"), "{{model}}"
)
ENGINE_BUSY: Final = Query(_by("model", _rate(g.ENGINE_SECONDS.name, _PACKAGE)), "{{model}}")
TRITON_QUEUE: Final = _triton_seconds("nv_inference_queue_duration_us")
TRITON_COMPUTE: Final = _triton_seconds("nv_inference_compute_infer_duration_us")
GPU_BUSY: Final = Query("nv_gpu_utilization", "{{instance}} {{gpu_uuid}}")
GPU_MEMORY: Final = Query(
    "nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes", "{{instance}} {{gpu_uuid}}"
)
GPU_POWER: Final = Query("nv_gpu_power_usage", "{{instance}} {{gpu_uuid}}")

# Drift: texts, answers, and how far they are from the reference

ALARMS_NOW: Final = _now(f"sum by (endpoint) ({m.DRIFT_ALARM.name}{{{_VERSIONS}}})", "{{endpoint}}")
CALIBRATION: Final = _now(
    f"min by (endpoint, version) ({m.DRIFT_CALIBRATION.name}{{{_VERSIONS}}})",
    "{{endpoint}} {{version}}",
)
REFERENCES: Final = _rows(
    f"max by (endpoint, version, kind) ({m.DRIFT_REFERENCE.name}{{{_VERSIONS}}} == 1)"
)
REFERENCE_TEXTS: Final = _now(
    _most("endpoint, version", m.DRIFT_REFERENCE_TEXTS, _VERSIONS), "{{endpoint}} {{version}}"
)
TIME_KNOWN: Final = _now(
    f"min by (endpoint, version) ({m.DRIFT_TIME_KNOWN.name}{{{_VERSIONS}}})",
    "{{endpoint}} {{version}}",
)
DRIFT_LEVEL: Final = Query(
    _most("version, statistic", m.DRIFT_LEVEL, _VERSIONS), "{{version}} {{statistic}}"
)
_STATISTIC = f'{_VERSIONS},lambda=~"$lambda"'
DRIFT_PSI: Final = Query(
    _most("version, statistic", m.DRIFT_PSI, _STATISTIC), "{{version}} {{statistic}}"
)
DRIFT_SIGNIFICANCE: Final = Query(
    _most("version, statistic", m.DRIFT_SIGNIFICANCE, _STATISTIC), "{{version}} {{statistic}}"
)
LAMBDAS: Final = f"label_values({m.DRIFT_PSI.name}{{{_VERSIONS}}}, lambda)"

_TOKENS = m.TEXT_HISTOGRAMS[Statistic.TOKENS]
_WORDS = m.TEXT_HISTOGRAMS[Statistic.WORDS]
_UNK = m.TEXT_HISTOGRAMS[Statistic.UNK_TOKENS]
_UNK_SHARE = m.TEXT_HISTOGRAMS[Statistic.UNK_SHARE]
_PER_WORD = m.TEXT_HISTOGRAMS[Statistic.TOKENS_PER_WORD]
_NORM = m.TEXT_HISTOGRAMS[Statistic.VECTOR_NORM]
UNK_A_TEXT: Final = Query(_mean(_UNK, _OF, "version, arm"), _ARMS)
UNK_SHARE: Final = Query(
    _share(_rate(_UNK.sum, _OF), _rate(_TOKENS.sum, _OF), "version, arm"), _ARMS
)
UNK_HEATMAP: Final = _buckets(_UNK_SHARE.bucket, _OF)
TOKENS_PER_WORD: Final = Query(
    _share(_rate(_TOKENS.sum, _OF), _rate(_WORDS.sum, _OF), "version, arm"), _ARMS
)
TOKENS_PER_WORD_HEATMAP: Final = _buckets(_PER_WORD.bucket, _OF)
TOKENS_P50: Final = _quantile(0.5, _TOKENS.bucket, _OF, "version, arm", f"p50 {_ARMS}")
TOKENS_P95: Final = _quantile(0.95, _TOKENS.bucket, _OF, "version, arm", f"p95 {_ARMS}")
TOKENS_HEATMAP: Final = _buckets(_TOKENS.bucket, _OF)
WORDS_A_TEXT: Final = Query(_mean(_WORDS, _OF, "version, arm"), _ARMS)
TRUNCATED_SHARE: Final = Query(
    _share(_rate(m.TRUNCATED.name, _OF), _rate(m.TEXTS.name, _OF), "version, arm"), _ARMS
)
LABEL_SHARE: Final = Query(
    f"{_by('version, arm, label', _rate(m.LABELS.name, _OF))} / ignoring (label) group_left "
    f"{_by('version, arm', _rate(m.LABELS.name, _OF))}",
    "{{label}} {{version}} {{arm}}",
)
SCORE_HEATMAP: Final = _buckets(m.SCORES.bucket, f'{_OF},label=~"$label"')
NORM_HEATMAP: Final = _buckets(_NORM.bucket, _OF)
ACCURACY_ESTIMATED: Final = Query(
    _most("version, arm", m.ACCURACY_ESTIMATED, _OF), f"estimated {_ARMS}"
)
ACCURACY_INTERVAL: Final = Query(
    _most("version, arm, end", m.ACCURACY_INTERVAL, _OF), f"estimated, {{{{end}}}} {_ARMS}"
)
ACCURACY_MEASURED: Final = Query(
    _most("version, arm", m.ACCURACY_MEASURED, _OF), f"measured {_ARMS}"
)
FEEDBACK_TEXTS: Final = Query(_most("version, arm", m.ACCURACY_FEEDBACK, _OF), _ARMS)
OWN_HEATMAP: Final = _buckets(m.OWN_HISTOGRAM.bucket, f'{_OF},statistic=~"$own"')
OWN_CATEGORIES: Final = Query(
    _by("statistic, value", _rate(m.OWN_CATEGORY.name, _OF)), "{{statistic}} {{value}}"
)
OWN_COUNTERS: Final = Query(_by("statistic", _rate(m.OWN_COUNTER.name, _OF)), "{{statistic}}")
OWN_UNFIT: Final = Query(_by("statistic", _rate(m.OWN_UNFIT.name, _OF)), "unfit {{statistic}}")
OWN_UNDECLARED: Final = Query(
    _by("endpoint", _rate(m.OWN_UNDECLARED.name, _OF)), "undeclared {{endpoint}}"
)

# Rollout: both arms side by side

WEIGHTS: Final = Query(_most("version, arm", m.ROUTE_WEIGHT, _VERSIONS), _ARMS)
PHASES: Final = Query(
    _most("version, phase", m.ROLLOUT_PHASE, _VERSIONS) + " == 1", "{{version}} {{phase}}"
)
PHASE_NOW: Final = _rows(_most("endpoint, version, phase", m.ROLLOUT_PHASE, _ENDPOINT) + " == 1")
STEP: Final = Query(
    _most("endpoint, version", m.ROLLOUT_STEP, _VERSIONS), "{{endpoint}} {{version}}"
)
PAUSED: Final = Query(
    _most("endpoint, version", m.ROLLOUT_PAUSED, _VERSIONS), "{{endpoint}} {{version}}"
)
VERDICTS: Final = Query(
    f"min by (version, check) ({m.CHECK_VERDICT.name}{{{_VERSIONS}}})", "{{version}} {{check}}"
)
TRANSITIONS: Final = Query(
    f"sum by (phase) (increase({m.ROLLOUT_TRANSITIONS.name}{{{_ENDPOINT}}}[$__range])) > 0",
    "{{phase}}",
    Shape.NOW,
)
ARM_REQUESTS: Final = Query(_by("version, arm", _rate(m.ATTEMPTS.name, _OF)), _ARMS)
ARM_ERRORS: Final = Query(_share_of(m.ATTEMPTS, 'status=~"5.."', _OF, "version, arm"), _ARMS)
ARM_LATENCY: Final = _quantile(0.95, m.LATENCY.bucket, _TOTAL, "version, arm", _ARMS)
ARM_SCORE: Final = _quantile(0.5, m.SCORES.bucket, _OF, "version, arm", _ARMS)
ARM_WRONG: Final = Query(_share_of(m.FEEDBACK, 'outcome="wrong"', _OF, "version, arm"), _ARMS)
SHADOW_AGREEMENT: Final = Query(
    _share_of(m.PAIRS, 'outcome="equal"', _VERSIONS, "version"), "{{version}}"
)
SHADOW_DISTANCE: Final = _buckets(m.PAIR_DISTANCE.bucket, _VERSIONS)
SHADOW_COPIES: Final = Query(_by("outcome", _rate(g.SHADOWS.name, _ENDPOINT)), "{{outcome}}")
SECOND_ATTEMPTS: Final = Query(_by("version, arm", _rate(m.REPEATED.name, _OF)), _ARMS)
CONVERSIONS: Final = Query(
    f"sum by (outcome) (increase({r.CONVERSIONS.name}[$__range]))", "{{outcome}}", Shape.NOW
)
LOAD_SECONDS: Final = Query(
    f"sum(increase({r.LOAD_SECONDS.sum}[$__range])) / "
    f"sum(increase({r.LOAD_SECONDS.count}[$__range]))",
    shape=Shape.NOW,
)

# Gateway

READY: Final = _now(f"sum({g.READY.name})")
ANSWERS: Final = Query(_by("dialect, status", _rate(g.REQUESTS.name)), "{{dialect}} {{status}}")
ANSWER_HEATMAP: Final = Query(
    _by("le", f"increase({g.REQUEST_SECONDS.bucket}[{RANGE}])"), "{{le}}", Shape.BUCKETS
)
ADMITTED_TOKENS: Final = Query(
    _by("endpoint", f"{g.TOKENS_IN_FLIGHT.name}{{{_ENDPOINT}}}"), "{{endpoint}}"
)
G_REFUSED: Final = Query(
    _by("endpoint, reason", _rate(g.REFUSALS.name, _ENDPOINT)), "{{endpoint}} {{reason}}"
)
REFUSAL_P99: Final = _quantile(
    0.99, g.REFUSAL_SECONDS.bucket, _ENDPOINT, "endpoint", "{{endpoint}}"
)
QUEUED_ROWS: Final = Query(_by("model", g.QUEUED_ROWS.name), "{{model}}")
WAIT_P95: Final = _quantile(
    0.95, g.STAGE_SECONDS.bucket, f'{_ENDPOINT},stage="{Stage.WAIT}"', "endpoint", "{{endpoint}}"
)
ALL_ROWS_A_BATCH: Final = Query(
    _share(_rate(g.BATCH_ROWS.name), _rate(g.BATCHES.name), "model"), "{{model}}"
)
TOKENS_BY_KIND: Final = Query(_by("kind", _rate(g.BATCH_TOKENS.name)), "{{kind}}")
ALL_PADDING: Final = Query(_share_of(g.BATCH_TOKENS, 'kind="padding"', "", "model"), "{{model}}")
SERVING: Final = Query(f"min by (triton, model) ({g.REPLICA_SERVES.name})", "{{triton}} {{model}}")
TRITON_TOKENS: Final = Query(_by("triton", g.REPLICA_TOKENS.name), "{{triton}}")
EVENTS_MADE: Final = Query(f"sum({_rate(g.EVENTS.name)})", "made")
EVENTS_SENT: Final = Query(f"sum({_rate(g.EVENTS_PUBLISHED.name)})", "acknowledged")
EVENTS_LOST: Final = Query(f"sum({_rate(g.EVENTS_LOST.name)})", "lost")
EVENTS_WAITING: Final = Query(f"sum({g.EVENTS_WAITING.name})", "waiting")
LOST_BY_REASON: Final = _rows(_by("endpoint, status, reason", g.EVENTS_DROPPED.name))
EVENTS_CONNECTED: Final = _now(f"min({g.EVENTS_CONNECTED.name})")
KAFKA_FAILURES: Final = Query(f"sum({_rate(g.EVENT_FAILURES.name)})", "failed tries")
HOOK_FAILURES: Final = Query(
    _by("endpoint, reason", _rate(g.PREPROCESSOR_FAILURES.name, _ENDPOINT)),
    "{{endpoint}} {{reason}}",
)
GATEWAY_CPU: Final = Query(
    f"rate(process_cpu_seconds_total[{RANGE}]) and on (job, instance) {g.READY.name}",
    "{{instance}}",
)
FOLD_LAG: Final = Query(f"max by (partition) ({m.FOLD_LAG.name})", "partition {{partition}}")
FOLD_EVENTS: Final = Query(f"sum({_rate(m.FOLD_EVENTS.name)})", "folded")
EVALUATE_LAG: Final = Query(f"max({m.EVALUATE_LAG.name})", "records")
EVALUATE_AGE: Final = Query(f"time() - min({m.EVALUATE_THROUGH.name})", "behind")

# Rules. Those on traffic read the gateways' own counters: they hold while Kafka is away. A shadow's
# and a forced attempt's failures reach no caller, and a canary's are made good or rolled back.

_CALLERS = 'arm=~"stable|control"'
STABLE_ERROR_SHARE: Final = (
    f'sum by (endpoint) (rate({g.ATTEMPTS.name}{{{_CALLERS},status=~"5.."}}[5m]))'
    f" / sum by (endpoint) (rate({g.ATTEMPTS.name}{{{_CALLERS}}}[5m]))"
)
ANSWER_SECONDS_P95: Final = (
    "histogram_quantile(0.95, sum by (endpoint, le) "
    f'(rate({g.STAGE_SECONDS.bucket}{{stage="{Stage.TOTAL}"}}[5m])))'
)
REFUSED_SHARE: Final = (  # of all that asked; a canary's second attempt is not asked for
    f'sum by (endpoint) (rate({g.REFUSALS.name}{{status=~"429|503"}}[5m])) / sum by (endpoint) '
    f'(rate({{__name__=~"{g.REFUSALS.name}|{g.ATTEMPTS.name}",arm!="shadow"}}[5m]))'
)
CALIBRATED_ALARM: Final = (
    f"max by (endpoint, version, statistic) ({m.DRIFT_ALARM.name}) == 1 and "
    f"min by (endpoint, version, statistic) ({m.DRIFT_CALIBRATED.name}) == 1"
)
UNUSUAL_TEXTS: Final = (
    f'max by (endpoint, version, statistic) ({m.DRIFT_LEVEL.name}{{statistic=~"week:.+|topics"}})'
    f" >= 1"
)
GATEWAY_AWAY: Final = f"absent({g.READY.name} == 1)"
ENDPOINTS_KEPT: Final = f"max by (instance) ({g.ENDPOINTS_KEPT.name}) > 0"
CANDIDATE_WITHHELD: Final = f"max by (endpoint) ({g.WITHHELD.name}) > 0"
TRITON_AWAY: Final = f"max by (triton) ({g.REPLICA_SERVES.name}) == 0"
EVENTS_DROPPED: Final = f"sum by (instance) (increase({g.EVENTS_LOST.name}[10m])) > 0"
EVENTS_DELETED: Final = " or ".join(
    f"sum(increase({name}[1h])) > 0"
    for name in (m.FOLD_MISSING.name, m.FOLD_OVERSIZED.name, m.MESSAGES_MISSING.name)
)
FOLD_LAGGING: Final = f"sum(max by (partition) ({m.FOLD_LAG.name})) > 500"
NOT_COUNTED: Final = (  # whoever publishes: gateways tell it every ten seconds, traffic or not
    f"time() - min({m.COUNTED_THROUGH.name}) > 60"
    f' and on () max({m.COUNTING_STATE.name}{{state=~"stalled|behind"}}) == 1'
)
NOTHING_PUBLISHED: Final = f'max({m.COUNTING_STATE.name}{{state="silent"}}) == 1'
FOLD_AWAY: Final = f"absent({m.FOLD_CONNECTED.name} == 1)"
EVALUATE_AWAY: Final = f"absent({m.EVALUATE_CONNECTED.name} == 1)"
ROLLOUT_BLOCKED: Final = (
    f'max by (endpoint, version, phase) ({m.ROLLOUT_PHASE.name}{{phase=~"Blocked|Rejected"}}) == 1'
)
ROLLED_BACK: Final = (
    f'sum by (endpoint) (increase({m.ROLLOUT_TRANSITIONS.name}{{phase="RolledBack"}}[30m])) > 0'
)
ROLLOUT_EXPIRED: Final = (
    f'sum by (endpoint) (increase({m.ROLLOUT_TRANSITIONS.name}{{phase="Expired"}}[30m])) > 0'
)
WRITE_BACK_FAILING: Final = f"sum(increase({m.WRITE_BACK_FAILURES.name}[15m])) > 0"
MLFLOW_AWAY: Final = (  # or the loop that asks it, which says nothing where it hangs
    f"max({r.SOURCE_UP.name}) == 0 or time() - max({r.SOURCE_ROUND.name}) > 300"
)
CONTROLLER_AWAY: Final = f"absent(rate({r.PASSES.name}[5m]) > 0)"

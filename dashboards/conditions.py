"""The expressions under the alerts, each written once; ``rules.py`` says what they mean.

Every aggregation keeps ``cluster`` and ``namespace``, so that one Prometheus may watch many
releases. Those on traffic read the gateways' own counters: they hold while Kafka is away. Those of
service levels are in ``slo.py``, thresholds in ``thresholds.py``.
"""

from typing import Final

from contracts import gateway_metrics as g
from contracts import metrics as m
from contracts import registry_metrics as r
from contracts.metrics import Metric
from contracts.statistics import LatencyStage
from dashboards import slo
from dashboards.thresholds import selector

RELEASE: Final = "cluster, namespace"

ERRORS_RECORD: Final = "endpoint:headrace_gateway_attempts_5xx:ratio_rate5m"
LATENCY_RECORD: Final = "endpoint:headrace_gateway_stage_seconds_total:p95_rate5m"
REFUSED_RECORD: Final = "endpoint:headrace_gateway_refusals:ratio_rate5m"


def _aggregate(operator: str, labels: str, expr: str) -> str:
    return f"{operator} by ({f'{RELEASE}, {labels}' if labels else RELEASE}) ({expr})"


def _most(metric: Metric, labels: str = "", where: str = "") -> str:
    return _aggregate("max", labels, selector(metric.name, where))


def _rise(metric: Metric, window: str, labels: str = "", where: str = "") -> str:
    return _aggregate("sum", labels, f"increase({selector(metric.name, where)}[{window}])")


_CALLERS = 'arm=~"stable|control"'
_FAILED = f'{_CALLERS},status=~"5.."'
_TOTAL = f'stage="{LatencyStage.TOTAL}"'
_OVERLOAD = 'status=~"429|503"'
_ALL_ASKED = selector("", f'__name__=~"{g.REFUSALS.name}|{g.ATTEMPTS.name}",arm!="shadow"')

# Recorded

_TOTALS = _aggregate("sum", "endpoint, le", f"rate({selector(g.STAGE_SECONDS.bucket, _TOTAL)}[5m])")
STABLE_ERROR_SHARE: Final = (
    _aggregate("sum", "endpoint", f"rate({selector(g.ATTEMPTS.name, _FAILED)}[5m])")
    + " / "
    + _aggregate("sum", "endpoint", f"rate({selector(g.ATTEMPTS.name, _CALLERS)}[5m])")
)
ANSWER_SECONDS_P95: Final = f"histogram_quantile(0.95, {_TOTALS})"
# Of all that asked; a canary's second attempt is not asked for.
REFUSED_SHARE: Final = (
    _aggregate("sum", "endpoint", f"rate({selector(g.REFUSALS.name, _OVERLOAD)}[5m])")
    + " / "
    + _aggregate("sum", "endpoint", f"rate({_ALL_ASKED}[5m])")
)

# Serving

SLOW: Final = (
    f"{selector(LATENCY_RECORD)} > @slowSeconds@ unless on ({slo.KEYS}) {selector(slo.LATENCY)}"
    f" and on ({slo.KEYS}) {slo.count_requests(slo.REQUESTS, '1h')} >= @minimumRequests@"
)
REFUSING: Final = (
    f"{selector(REFUSED_RECORD)} > @refusedShare@ and on ({slo.KEYS}) "
    f"{_aggregate('sum', 'endpoint', f'increase({_ALL_ASKED}[1h])')} >= @minimumRequests@"
)
GATEWAY_AWAY: Final = f"absent({selector(g.READY.name)} == 1)"
ENDPOINTS_KEPT: Final = f"{_most(g.ENDPOINTS_KEPT, 'instance')} > 0"
CANDIDATE_WITHHELD: Final = f"{_most(g.WITHHELD, 'endpoint')} > 0"
SPACE_UNNAMED: Final = f"{_rise(g.SPACE_UNNAMED, '1h', 'endpoint')} > 0"
NO_TRITON: Final = f"{_most(g.REPLICA_SERVES)} == 0"
TRITON_AWAY: Final = (
    f"{_most(g.REPLICA_SERVES, 'triton')} == 0 and on ({RELEASE}) {_most(g.REPLICA_SERVES)} == 1"
)
# Of kube-state-metrics; keda-hpa-NAME is KEDA's.
_HPA = 'horizontalpodautoscaler=~".*(gateway|triton|fold)"'
_KUBE_HPA = "kube_horizontalpodautoscaler"


def _most_of_hpa(name: str) -> str:
    return _aggregate("max", "horizontalpodautoscaler", selector(f"{_KUBE_HPA}_{name}", _HPA))


SCALED_OUT: Final = " and ".join(
    f"{_most_of_hpa(one)} {compared} {_most_of_hpa(other)}"
    for one, compared, other in (
        ("status_current_replicas", ">=", "spec_max_replicas"),
        ("spec_max_replicas", ">", "spec_min_replicas"),
    )
)

# Statistics

_STATISTIC = "endpoint, version, statistic"
CALIBRATED_ALARM: Final = (
    f"{_most(m.DRIFT_ALARM, _STATISTIC)} == 1 and "
    f"{_aggregate('min', _STATISTIC, selector(m.DRIFT_CALIBRATED.name))} == 1"
)
_OF_TIME = 'statistic=~"week:.+|topics|vectors"'
UNUSUAL_TEXTS: Final = f"{_most(m.DRIFT_LEVEL, _STATISTIC, _OF_TIME)} >= 1"
EVENTS_DROPPED: Final = f"{_rise(g.EVENTS_LOST, '10m', 'instance')} > 0"
EVENTS_DELETED: Final = " or ".join(
    f"{_rise(metric, '1h')} > 0"
    for metric in (m.FOLD_MISSING, m.FOLD_OVERSIZED, m.MESSAGES_MISSING)
)
FOLD_LAGGING: Final = f"{_aggregate('sum', '', _most(m.FOLD_LAG, 'partition'))} > @foldLagMessages@"
_LATE, _SILENT = 'state=~"stalled|behind"', 'state="silent"'
NOT_COUNTED: Final = (  # for any publisher: gateways tell it every ten seconds, traffic or not
    f"time() - {_aggregate('min', '', selector(m.COUNTED_THROUGH.name))} > @uncountedSeconds@"
    f" and on ({RELEASE}) {_most(m.COUNTING_STATE, where=_LATE)} == 1"
)
NOTHING_PUBLISHED: Final = f"{_most(m.COUNTING_STATE, where=_SILENT)} == 1"
FOLD_AWAY: Final = f"absent({selector(m.FOLD_CONNECTED.name)} == 1)"
_EVALUATING = f"{selector(m.EVALUATE_CONNECTED.name)} == 1"
EVALUATE_AWAY: Final = (
    f"absent({_EVALUATING}) or {_aggregate('count', '', _EVALUATING)} < {_most(m.EVALUATE_SHARDS)}"
)
EVALUATE_FULL: Final = f"{_rise(m.EVALUATE_OVERFLOW, '1h', 'what')} > 0"
EVALUATE_NEARLY_FULL: Final = f"{_most(m.EVALUATE_LIMIT_USED, 'what')} > 0.8"  # of any shard

# Versions and rollouts

_VERSION = "endpoint, version"
WITHOUT_VERSION: Final = f"{_most(m.ENDPOINT_STABLE, 'endpoint')} == 0"
_BEFORE_LOADED = 'phase=~"Waiting|Converting|Verifying|Publishing|Loading"'
CONVERSION_STUCK: Final = (
    _aggregate("sum", _VERSION, _most(m.ROLLOUT_PHASE, f"{_VERSION}, phase", _BEFORE_LOADED))
    + " == 1"
)
_DEADLINE, _BEGAN = _most(m.ROLLOUT_DEADLINE, _VERSION), _most(m.ROLLOUT_BEGAN, _VERSION)
DEADLINE_NEAR: Final = f"({_DEADLINE} - time()) / ({_DEADLINE} - {_BEGAN}) < @deadlineShareLeft@"
_UNJUDGED = f"time() - {_most(m.ROLLOUT_JUDGED, _VERSION)}"
_REQUESTS = selector(m.ROLLOUT_REQUESTS.name)
EVIDENCE_STILL: Final = (  # nothing is counted at all, or the candidate gets no requests
    f"{_UNJUDGED} > @evidenceSeconds@ or {_UNJUDGED} and "
    f"{_aggregate('max', _VERSION, f'changes({_REQUESTS}[@evidenceSeconds@s])')} == 0 and "
    f"{_aggregate('max', _VERSION, f'{_REQUESTS} offset @evidenceSeconds@s')} >= 0"
)
_HELD, _BACK, _EXPIRED = 'phase=~"Blocked|Rejected"', 'phase="RolledBack"', 'phase="Expired"'
ROLLOUT_BLOCKED: Final = f"{_most(m.ROLLOUT_PHASE, f'{_VERSION}, phase', _HELD)} == 1"
ROLLED_BACK: Final = f"{_rise(m.ROLLOUT_TRANSITIONS, '30m', 'endpoint', _BACK)} > 0"
ROLLOUT_EXPIRED: Final = f"{_rise(m.ROLLOUT_TRANSITIONS, '30m', 'endpoint', _EXPIRED)} > 0"
WRITE_BACK_FAILING: Final = f"{_rise(m.WRITE_BACK_FAILURES, '15m')} > 0"
TRITON_SICK: Final = f"{_most(r.SICK_TRITONS, 'pool, loader')} == 1"
MLFLOW_AWAY: Final = (  # or the loop that asks it, which says nothing if it hangs
    f"{_most(r.SOURCE_UP, 'workspace')} == 0 or time() - {_most(r.SOURCE_ROUND, 'workspace')} > 300"
)
STORE_AWAY: Final = f"{_most(r.STORE_UP)} == 0"
KUBERNETES_AWAY: Final = f"{_most(r.KUBERNETES_AWAY)} == 1"
CONTROLLER_AWAY: Final = f"absent(rate({selector(r.PASSES.name)}[5m]) > 0)"

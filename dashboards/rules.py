"""Prometheus' rules: the alerts, and the two ratios that they and people ask for again and again.

Written to ``generated/rules.yaml`` by ``python -P -m dashboards``. An alert says what is wrong in
its summary, what to do in its description, and where the runbook is. ``page`` wakes somebody,
``ticket`` waits for the morning. Expressions are in ``queries.py``; what each catches and leaves
alone is in ``tests/dashboards/rules_test.yaml``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dashboards import queries as q

RUNBOOK: Final = "docs/dashboards.md"

ERROR_SHARE: Final = 0.02  # of callers' attempts on stable
SLOW_SECONDS: Final = 0.5
REFUSED_SHARE: Final = 0.05

ERRORS_RECORD: Final = "endpoint:headrace_gateway_attempts_5xx:ratio_rate5m"
LATENCY_RECORD: Final = "endpoint:headrace_gateway_stage_seconds_total:p95_rate5m"
REFUSED_RECORD: Final = "endpoint:headrace_gateway_refusals:ratio_rate5m"


class Severity(StrEnum):
    """Whom it concerns, and when."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True)
class Alert:
    """A condition that somebody should know of.

    Attributes:
        name: begins with Headrace; also the heading of its runbook.
        expr: PromQL; fires for each series that it gives.
        wait: for so long it must hold, in Prometheus' notation.
        severity: page or ticket.
        summary: one line with the labels in it.
        description: what it means and what to do first.
    """

    name: str
    expr: str
    wait: str
    severity: Severity
    summary: str
    description: str

    def rule(self) -> dict[str, object]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{RUNBOOK}#{self.name.lower()}",
            },
        }


# Series that Prometheus keeps, by name.
RECORDS: Final = {
    ERRORS_RECORD: q.STABLE_ERROR_SHARE,
    LATENCY_RECORD: q.ANSWER_SECONDS_P95,
    REFUSED_RECORD: q.REFUSED_SHARE,
}

SERVING_ALERTS: Final = (
    Alert(
        "HeadraceErrors",
        f"{ERRORS_RECORD} > {ERROR_SHARE}",
        "5m",
        Severity.PAGE,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of attempts on stable fail",
        "Callers get errors from the version that serves. A canary's errors are not counted here:"
        " those roll back by themselves. See Endpoints, then Triton's log.",
    ),
    Alert(
        "HeadraceSlow",
        f"{LATENCY_RECORD} > {SLOW_SECONDS}",
        "10m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: one answer in twenty takes over {{ $value | humanizeDuration }}",
        "See Endpoints, Where the time goes: wait means too few engines, infer longer texts or a"
        " shared machine, queue a gateway without CPU.",
    ),
    Alert(
        "HeadraceGatewayRefusing",
        f"{REFUSED_RECORD} > {REFUSED_SHARE}",
        "5m",
        Severity.PAGE,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests are turned away",
        "The gateway refuses with 429 or 503 before any attempt. See Gateway, Refused, for the"
        " reason: overloaded wants engines, rate_limited a word with a caller.",
    ),
    Alert(
        "HeadraceGatewayAway",
        q.GATEWAY_AWAY,
        "2m",
        Severity.PAGE,
        "No gateway is ready",
        "No gateway says that it should get traffic, or Prometheus reaches none. See the"
        " gateways' logs and Prometheus' targets.",
    ),
    Alert(
        "HeadraceGatewayOnKeptEndpoints",
        q.ENDPOINTS_KEPT,
        "2m",
        Severity.TICKET,
        "Gateway {{ $labels.instance }} serves endpoints of {{ $value | humanizeDuration }} ago",
        "It started while the API server was away, and serves what it was told before. Nothing that"
        " was changed since reaches its callers. See why the API server does not answer it.",
    ),
    Alert(
        "HeadraceTritonAway",
        q.TRITON_AWAY,
        "2m",
        Severity.PAGE,
        "Triton {{ $labels.triton }} serves nothing",
        "Gateways asked it for every package and it has none ready: it is down, or loads. Other"
        " Tritons take over, if there are any. See its log and the loader's.",
    ),
)

STATISTICS_ALERTS: Final = (
    Alert(
        "HeadraceTextsChanged",
        q.CALIBRATED_ALARM,
        "1m",
        Severity.PAGE,
        "{{ $labels.endpoint }} version {{ $labels.version }}: {{ $labels.statistic }} has changed",
        "The texts or answers differ from the reference, by more than chance and by enough to"
        " matter. See Drift for what changed; then who calls, and whether to retrain.",
    ),
    Alert(
        "HeadraceTextsUnusual",
        q.UNUSUAL_TEXTS,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }}: {{ $labels.statistic }} is unusual",
        "What comes differs from what this endpoint usually gets at this time of the week, by more"
        " than days differ. It may be a few percent of the texts: see Drift, and who calls.",
    ),
    Alert(
        "HeadraceEventDrops",
        q.EVENTS_DROPPED,
        "0m",
        Severity.TICKET,
        "Gateway {{ $labels.instance }} lost {{ $value | humanize }} events in ten minutes",
        "Requests were answered but are in no statistic and no rollout. See Gateway, Lost events:"
        " Kafka away, or slower than the gateway.",
    ),
    Alert(
        "HeadraceEventsLost",
        q.EVENTS_DELETED,
        "0m",
        Severity.TICKET,
        "{{ $value | humanize }} messages of events can never be counted",
        "Kafka deleted messages before they were folded, lost some that gateways had sent, or a"
        " window's record was too large for it. Raise the retention of headrace.predictions, or"
        " max.message.bytes; headrace recount tells whose messages are missing.",
    ),
    Alert(
        "HeadraceFoldLagging",
        q.FOLD_LAGGING,
        "10m",
        Severity.TICKET,
        "{{ $value | humanize }} messages of events wait to be folded",
        "Drift and rollouts look at old windows. Start another fold worker, up to one a partition.",
    ),
    Alert(
        "HeadraceTrafficNotCounted",
        q.NOT_COUNTED,
        "2m",
        Severity.TICKET,
        "The traffic of the last {{ $value | humanizeDuration }} is not counted",
        "Gateways publish and Kafka holds it, but it is in no window: rollouts wait, drift and"
        " dashboards show the past. See the fold role's log, then restart it: nothing is lost.",
    ),
    Alert(
        "HeadraceNothingPublished",
        q.NOTHING_PUBLISHED,
        "5m",
        Severity.TICKET,
        "No gateway publishes events",
        "Each gateway says that it is alive every ten seconds, traffic or not. Either no gateway"
        " runs, or none reaches Kafka: see Gateway, Lost events, and their logs.",
    ),
    Alert(
        "HeadraceFoldAway",
        q.FOLD_AWAY,
        "5m",
        Severity.TICKET,
        "No fold worker is connected to Kafka",
        "Nothing is lost while Kafka keeps the events, but rollouts and drift stand still.",
    ),
    Alert(
        "HeadraceEvaluateAway",
        q.EVALUATE_AWAY,
        "5m",
        Severity.TICKET,
        "The evaluate role is away, or not connected to Kafka",
        "Dashboards of traffic and drift stand still, and nothing watches for drift. It begins"
        " anew by reading the windows again: restart it.",
    ),
)

ROLLOUT_ALERTS: Final = (
    Alert(
        "HeadraceRolloutBlocked",
        q.ROLLOUT_BLOCKED,
        "10m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }} is {{ $labels.phase }}",
        "The newest version does not come into service: headrace rollout status says why. Blocked"
        " is tried again by itself, Rejected only when asked for.",
    ),
    Alert(
        "HeadraceRolledBack",
        q.ROLLED_BACK,
        "0m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: a new version was rolled back",
        "Callers are on the old version again. headrace rollout history and the report in the"
        " version's MLflow run say which check failed, with figures.",
    ),
    Alert(
        "HeadraceRolloutExpired",
        q.ROLLOUT_EXPIRED,
        "0m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: a new version came to no verdict by its deadline",
        "Callers are on the old version again; nothing is known against the new one. headrace"
        " rollout history says what traffic a verdict would have taken, and headrace rollout retry"
        " tries it again.",
    ),
    Alert(
        "HeadraceWriteBackFailing",
        q.WRITE_BACK_FAILING,
        "15m",
        Severity.TICKET,
        "MLflow refuses what it should be told",
        "Verdicts are kept in the endpoint and told later; tags, alias and reports in MLflow are"
        " old until then. See the controller's log for what MLflow answers.",
    ),
    Alert(
        "HeadraceMlflowAway",
        q.MLFLOW_AWAY,
        "10m",
        Severity.TICKET,
        "MLflow does not answer the controller",
        "New versions are not seen. What serves goes on serving.",
    ),
    Alert(
        "HeadraceCandidateWithheld",
        q.CANDIDATE_WITHHELD,
        "1m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: stable answers the candidate's callers",
        "A gateway saw no sign of the controller for longer than the endpoint's controllerTimeout,"
        " so that nobody could take the new version back. It gets its callers again with the"
        " controller's next sign: see whether the controller runs, and its log.",
    ),
    Alert(
        "HeadraceControllerAway",
        q.CONTROLLER_AWAY,
        "10m",
        Severity.TICKET,
        "The controller does not work",
        "New versions are not seen, and rollouts stand still; a candidate's callers go to stable"
        " after the endpoint's controllerTimeout. It goes on from the stored state: restart it.",
    ),
)

ALERTS: Final = (*SERVING_ALERTS, *STATISTICS_ALERTS, *ROLLOUT_ALERTS)


def groups() -> dict[str, object]:
    """The whole file, as values."""
    records = [{"record": name, "expr": expr} for name, expr in RECORDS.items()]
    alerts = {
        "headrace-serving": SERVING_ALERTS,
        "headrace-statistics": STATISTICS_ALERTS,
        "headrace-rollouts": ROLLOUT_ALERTS,
    }
    return {
        "groups": [
            {"name": "headrace-records", "rules": records},
            *(
                {"name": name, "rules": [alert.rule() for alert in group]}
                for name, group in alerts.items()
            ),
        ]
    }

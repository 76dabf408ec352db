"""Prometheus' rules: the alerts, and the shares that they and people ask for again and again.

Written to ``generated/rules.yaml`` by ``python -P -m dashboards``. An alert says what is wrong in
its summary, what to do in its description, and where the runbook is. ``page`` wakes somebody,
``ticket`` waits for the morning. Expressions are in ``conditions.py``; what each catches and leaves
alone is in ``tests/dashboards/rules_test.yaml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dashboards import conditions as q
from dashboards import slo

RUNBOOK: Final = "docs/dashboards.md"


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
        wait: how long it must hold, in Prometheus' notation.
        severity: page or ticket.
        summary: one line with the labels in it.
        description: what it means and what to do first.
        board: the dashboard to look at.
    """

    name: str
    expr: str
    wait: str
    severity: Severity
    summary: str
    description: str
    board: str = "endpoints"

    def rule(self) -> dict[str, object]:
        """As Prometheus reads it, with placeholders for thresholds."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{RUNBOOK}#{self.name.lower()}",
                "dashboard": f"headrace-{self.board}",
            },
        }


# Series that Prometheus keeps, by name.
RECORDS: Final = {
    q.ERRORS_RECORD: q.STABLE_ERROR_SHARE,
    q.LATENCY_RECORD: q.ANSWER_SECONDS_P95,
    q.REFUSED_RECORD: q.REFUSED_SHARE,
}
SLO_RECORDS: Final = slo.RATES | slo.SHARES
ALL_RECORDS: Final = RECORDS | SLO_RECORDS | slo.LONG_SHARES

SLO_ALERTS: Final = (
    Alert(
        "HeadraceErrorsFast",
        slo.ERRORS_FAST,
        "2m",
        Severity.PAGE,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests fail",
        "At this pace the 30 days' budget of spec.slo.availability is gone within days. A"
        " candidate's failures are not counted: those roll back by themselves. See Endpoints,"
        " Attempts by status and Refusals, then Triton's log.",
    ),
    Alert(
        "HeadraceErrorsLasting",
        slo.ERRORS_LASTING,
        "15m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests fail, for hours",
        "The 30 days' budget of spec.slo.availability will not last. See Endpoints, Service level,"
        " for since when; then Attempts by status and Refusals.",
    ),
    Alert(
        "HeadraceLatencyFast",
        slo.SLOW_FAST,
        "2m",
        Severity.PAGE,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of answers come too late",
        "At this pace the 30 days' budget of spec.slo.latency is gone within days. See Endpoints,"
        " Where the time goes: wait means too few engines, infer longer texts or a shared machine,"
        " queue a gateway without CPU.",
    ),
    Alert(
        "HeadraceLatencyLasting",
        slo.SLOW_LASTING,
        "15m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of answers come too late, for"
        " hours",
        "The 30 days' budget of spec.slo.latency will not last. See Endpoints, Service level, for"
        " since when; then Where the time goes.",
    ),
)

SERVING_ALERTS: Final = (
    Alert(
        "HeadraceSlow",
        q.SLOW,
        "10m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: one answer in twenty takes over {{ $value | humanizeDuration }}",
        "The endpoint has no spec.slo.latency, and is held to one line for all. See Endpoints,"
        " Where the time goes: wait means too few engines, infer longer texts or a shared machine,"
        " queue a gateway without CPU.",
    ),
    Alert(
        "HeadraceGatewayRefusing",
        q.REFUSING,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: {{ $value | humanizePercentage }} of requests are turned away",
        "The gateway refuses with 429 or 503 before any attempt. Those with 503 count against"
        " spec.slo.availability too, which pages. See Gateway, Refused, for the reason: overloaded"
        " wants engines, rate_limited a word with a caller.",
        board="gateway",
    ),
    Alert(
        "HeadraceGatewayAway",
        q.GATEWAY_AWAY,
        "2m",
        Severity.PAGE,
        "No gateway is ready",
        "No gateway says that it should get traffic, or Prometheus reaches none. See the"
        " gateways' logs and Prometheus' targets.",
        board="gateway",
    ),
    Alert(
        "HeadraceGatewayOnKeptEndpoints",
        q.ENDPOINTS_KEPT,
        "2m",
        Severity.TICKET,
        "Gateway {{ $labels.instance }} serves endpoints of {{ $value | humanizeDuration }} ago",
        "It started while the API server was away, and serves what it was told before, or a bug"
        " keeps it from what it is told. Nothing that was changed since reaches its callers."
        " /readyz says which; see why the API server does not answer it.",
        board="gateway",
    ),
    Alert(
        "HeadraceNoTriton",
        q.NO_TRITON,
        "2m",
        Severity.PAGE,
        "No Triton serves anything",
        "Gateways asked every Triton for every package, and none is ready. Callers get 503. See"
        " Triton's log and the loader's.",
        board="gateway",
    ),
    Alert(
        "HeadraceTritonAway",
        q.TRITON_AWAY,
        "5m",
        Severity.TICKET,
        "Triton {{ $labels.triton }} serves nothing",
        "Gateways asked it for every package and it has none ready: it is down, or loads. Other"
        " Tritons have taken over. See its log and the loader's.",
        board="gateway",
    ),
    Alert(
        "HeadraceTritonSick",
        q.TRITON_SICK,
        "2m",
        Severity.TICKET,
        "The Triton of {{ $labels.loader }} is sick",
        "Other Tritons of its pool hold what it refuses, it refuses a package that is known to be"
        " good, or it has not answered its loader for two minutes. No version is blamed for it, and"
        " it is out of service while the others suffice. headrace status says what it refuses, in"
        " its own words: see its GPU, its disk and its log, and replace the node.",
        board="gateway",
    ),
    Alert(
        "HeadraceEndpointWithoutVersion",
        q.WITHOUT_VERSION,
        "15m",
        Severity.TICKET,
        "{{ $labels.endpoint }} has no version that serves",
        "Its callers get 503. No version was registered, or none could be converted and loaded:"
        " headrace status says which.",
        board="rollout",
    ),
    Alert(
        "HeadraceScaledOut",
        q.SCALED_OUT,
        "15m",
        Severity.TICKET,
        "{{ $labels.horizontalpodautoscaler }} is at its maximum of {{ $value }} pods",
        "More traffic finds no more pods: callers wait, then are refused. Raise maxReplicas, or see"
        " why each pod does less than it did. Needs kube-state-metrics.",
        board="gateway",
    ),
)

STATISTICS_ALERTS: Final = (
    Alert(
        "HeadraceTextsChanged",
        q.CALIBRATED_ALARM,
        "1m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }}: {{ $labels.statistic }} has changed",
        "The texts or answers differ from the reference, by more than chance and by enough to"
        " matter. See Drift for what changed; then who calls, and whether to retrain.",
        board="drift",
    ),
    Alert(
        "HeadraceTextsUnusual",
        q.UNUSUAL_TEXTS,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }}: {{ $labels.statistic }} is unusual",
        "What comes differs from what this endpoint usually gets at this time of the week, by more"
        " than days differ. It may be a few percent of the texts: see Drift, and who calls.",
        board="drift",
    ),
    Alert(
        "HeadraceEventDrops",
        q.EVENTS_DROPPED,
        "0m",
        Severity.TICKET,
        "Gateway {{ $labels.instance }} lost {{ $value | humanize }} events in ten minutes",
        "Requests were answered but are in no statistic and no rollout. See Gateway, Lost events:"
        " Kafka away, or slower than the gateway.",
        board="gateway",
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
        board="gateway",
    ),
    Alert(
        "HeadraceFoldLagging",
        q.FOLD_LAGGING,
        "10m",
        Severity.TICKET,
        "{{ $value | humanize }} messages of events wait to be folded",
        "Drift and rollouts look at old windows. Start another fold worker, up to one a partition.",
        board="gateway",
    ),
    Alert(
        "HeadraceTrafficNotCounted",
        q.NOT_COUNTED,
        "2m",
        Severity.TICKET,
        "The traffic of the last {{ $value | humanizeDuration }} is not counted",
        "Gateways publish and Kafka holds it, but it is in no window: rollouts wait, drift and"
        " dashboards show the past. See the fold role's log, then restart it: nothing is lost.",
        board="gateway",
    ),
    Alert(
        "HeadraceNothingPublished",
        q.NOTHING_PUBLISHED,
        "5m",
        Severity.TICKET,
        "No gateway publishes events",
        "Each gateway says that it is alive every ten seconds, traffic or not. Either no gateway"
        " runs, or none reaches Kafka: see Gateway, Lost events, and their logs.",
        board="gateway",
    ),
    Alert(
        "HeadraceFoldAway",
        q.FOLD_AWAY,
        "5m",
        Severity.TICKET,
        "No fold worker is connected to Kafka",
        "Nothing is lost while Kafka keeps the events, but rollouts and drift stand still.",
        board="gateway",
    ),
    Alert(
        "HeadraceEvaluateFull",
        q.EVALUATE_FULL,
        "0m",
        Severity.TICKET,
        "{{ $value | humanize }} {{ $labels.what }} are counted as other, or not at all",
        "The evaluate role keeps a bounded number of series. Dashboards lack what is above the"
        " bound; rollouts and the exact windows do not. See headrace_evaluate_overflow_total for"
        " which bound: labels, statuses, values of your own statistics, or endpoints.",
        board="gateway",
    ),
    Alert(
        "HeadraceEvaluateNearlyFull",
        q.EVALUATE_NEARLY_FULL,
        "15m",
        Severity.TICKET,
        "{{ $value | humanizePercentage }} of the {{ $labels.what }} that an evaluate process tells"
        " apart are taken",
        "Nothing is left out yet. Beyond its bound, new arms have no series, new versions are not"
        " watched for drift, and refusals of further endpoints are summed. Divide the endpoints"
        " among more processes (stats.evaluate.shards), or raise stats.evaluate.mostArms and"
        " stats.evaluate.mostVersions.",
        board="gateway",
    ),
    Alert(
        "HeadraceEvaluateAway",
        q.EVALUATE_AWAY,
        "5m",
        Severity.TICKET,
        "The evaluate role is away, or not connected to Kafka",
        "Dashboards of traffic and drift stand still, and nothing watches for drift. Restart"
        " it: it reads the windows again.",
        board="gateway",
    ),
)

ROLLOUT_ALERTS: Final = (
    Alert(
        "HeadraceConversionStuck",
        q.CONVERSION_STUCK,
        "1h",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }} has not loaded for an hour",
        "It waits, converts, verifies or loads. Large models take long: headrace status says where"
        " it is. Else see the conversion's log, and whether its pod has room.",
        board="rollout",
    ),
    Alert(
        "HeadraceDeadlineNear",
        q.DEADLINE_NEAR,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }}: {{ $value | humanizePercentage }} of"
        " the rollout's time is left",
        "Without a verdict by the deadline it expires, and callers go back to the old version."
        " headrace rollout status says what each check lacks; headrace rollout promote decides by"
        " hand, a longer deadline waits.",
        board="rollout",
    ),
    Alert(
        "HeadraceEvidenceStandsStill",
        q.EVIDENCE_STILL,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }}: no new evidence",
        "The rollout waits for requests that do not come: the endpoint has no traffic, no caller"
        " falls into the candidate's arm, or events are not counted. headrace rollout status says"
        " which.",
        board="rollout",
    ),
    Alert(
        "HeadraceRolloutBlocked",
        q.ROLLOUT_BLOCKED,
        "10m",
        Severity.TICKET,
        "{{ $labels.endpoint }} version {{ $labels.version }} is {{ $labels.phase }}",
        "The newest version does not come into service: headrace rollout status says why. Blocked"
        " is tried again by itself, Rejected only when asked for.",
        board="rollout",
    ),
    Alert(
        "HeadraceRolledBack",
        q.ROLLED_BACK,
        "0m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: a new version was rolled back",
        "Callers are on the old version again. headrace rollout history and the report in the"
        " version's MLflow run say which check failed, with figures.",
        board="rollout",
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
        board="rollout",
    ),
    Alert(
        "HeadraceWriteBackFailing",
        q.WRITE_BACK_FAILING,
        "15m",
        Severity.TICKET,
        "MLflow refuses what it should be told",
        "Verdicts are kept in the endpoint and told later; tags, alias and reports in MLflow are"
        " old until then. See the controller's log for what MLflow answers.",
        board="rollout",
    ),
    Alert(
        "HeadraceMlflowAway",
        q.MLFLOW_AWAY,
        "10m",
        Severity.TICKET,
        "MLflow{{ with $labels.workspace }}'s workspace {{ . }}{{ end }} does not answer the"
        " controller",
        "New versions are not seen. What serves goes on serving.",
        board="gateway",
    ),
    Alert(
        "HeadraceStoreAway",
        q.STORE_AWAY,
        "10m",
        Severity.TICKET,
        "The package store does not answer the controller",
        "New versions wait, and no Triton can fetch a package. What is loaded goes on serving.",
        board="gateway",
    ),
    Alert(
        "HeadraceKubernetesAway",
        q.KUBERNETES_AWAY,
        "10m",
        Severity.TICKET,
        "The API server does not answer the controller",
        "What people ask for is not seen and no status can be written, so that rollouts stand"
        " still. What serves goes on serving.",
        board="gateway",
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
        board="rollout",
    ),
    Alert(
        "HeadraceSpaceUnnamed",
        q.SPACE_UNNAMED,
        "5m",
        Severity.TICKET,
        "{{ $labels.endpoint }}: callers name no vector space, and another one waits",
        "The cutover changes their vectors, whether or not their indexes are ready. Have them send"
        " x-headrace-space; their answers have x-headrace-space-next.",
        board="rollout",
    ),
    Alert(
        "HeadraceControllerAway",
        q.CONTROLLER_AWAY,
        "10m",
        Severity.TICKET,
        "The controller does not work",
        "New versions are not seen, and rollouts stand still; a candidate's callers go to stable"
        " after the endpoint's controllerTimeout. It goes on from the stored state: restart it.",
        board="gateway",
    ),
)

ALERTS: Final = (*SLO_ALERTS, *SERVING_ALERTS, *STATISTICS_ALERTS, *ROLLOUT_ALERTS)


def groups() -> dict[str, object]:
    """The whole file, as values, with placeholders for thresholds."""
    minute = {"interval": f"{slo.INTERVAL_SECONDS}s"}
    return {
        "groups": [
            {"name": "headrace-records", "rules": _records(RECORDS)},
            {"name": "headrace-slo", **minute, "rules": _records(SLO_RECORDS)},
            {"name": "headrace-slo-long", "interval": "2m", "rules": _records(slo.LONG_SHARES)},
            *(
                {"name": name, "rules": [alert.rule() for alert in group]}
                for name, group in (
                    ("headrace-slo-alerts", SLO_ALERTS),
                    ("headrace-serving", SERVING_ALERTS),
                    ("headrace-statistics", STATISTICS_ALERTS),
                    ("headrace-rollouts", ROLLOUT_ALERTS),
                )
            ),
        ]
    }


def _records(named: Mapping[str, str]) -> list[object]:
    return [{"record": name, "expr": expr} for name, expr in named.items()]

"""Every metric of traffic, drift and rollouts: name, kind, labels, help, buckets.

The evaluate role (``stats/evaluation``), the fold role and the controller expose them. Dashboards
and rules read the same constants, so that a query can't name what nobody exposes. A gateway's are
in ``contracts.gateway_metrics``, the registry's and the loaders' in ``contracts.registry_metrics``.
No I/O.

Names follow Prometheus: ``headrace_``, base units, ``_total`` for what only grows. What each family
may cost at most stands in ``docs/statistics.md``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contracts.statistics import EDGES, LATENCY_EDGES, Statistic


class MetricKind(StrEnum):
    """What Prometheus knows."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One family of series.

    Attributes:
        name: as it is queried; a histogram's without ``_bucket``, ``_sum`` and ``_count``.
        kind: counter, gauge or histogram.
        help: one sentence for people.
        labels: names of its labels, in the order in which values are given.
        buckets: upper edges of a histogram, inclusive, without the one to infinity; empty if
            they are declared by users.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name as ``prometheus_client`` takes it: without a counter's ``_total``."""
        return self.name.removesuffix("_total")

    @property
    def bucket(self) -> str:
        """Name of a histogram's cumulative buckets, label ``le``."""
        return f"{self.name}_bucket"

    @property
    def sum(self) -> str:
        """Name of a histogram's sum."""
        return f"{self.name}_sum"

    @property
    def count(self) -> str:
        """Name of a histogram's count."""
        return f"{self.name}_count"


# Labels
ENDPOINT, VERSION, ARM = "endpoint", "version", "arm"
SLOT: Final = (ENDPOINT, VERSION, ARM)
OTHER: Final = "other"  # value of a label whose own values are past their bound

# A window's 270 buckets of latency in 55: every fifth edge, so that the counts stay exact.
LATENCY_BUCKETS: Final = LATENCY_EDGES.upper[::5]


def counter(name: str, help_text: str, *labels: str) -> Metric:
    """A counter, by its name without ``headrace_`` and ``_total``."""
    return Metric(f"headrace_{name}_total", MetricKind.COUNTER, help_text, labels)


def gauge(name: str, help_text: str, *labels: str) -> Metric:
    """A gauge, by its name without ``headrace_``."""
    return Metric(f"headrace_{name}", MetricKind.GAUGE, help_text, labels)


def histogram(
    name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
) -> Metric:
    """A histogram, by its name without ``headrace_``."""
    return Metric(f"headrace_{name}", MetricKind.HISTOGRAM, help_text, labels, buckets)


# Traffic, by the evaluate role: what the merged windows gained since the process started.

ATTEMPTS: Final = counter("attempts", "Attempts on a version, by HTTP status.", *SLOT, "status")
ANSWERED: Final = counter("answered_attempts", "Attempts that became the caller's answer.", *SLOT)
REPEATED: Final = counter(
    "repeated_attempts", "Second attempts, after another version failed the request.", *SLOT
)
TEXTS: Final = counter("texts", "Texts in attempts.", *SLOT)
TRUNCATED: Final = counter("truncated_texts", "Texts longer than the model can read.", *SLOT)
LABELS: Final = counter("labels", "Texts by predicted label.", *SLOT, "label")
FEEDBACK: Final = counter(
    "feedback_texts", "Texts whose truth was told later: right or wrong.", *SLOT, "outcome"
)
PAIRS: Final = counter(
    "shadow_pairs",
    "Texts answered by shadow and stable alike: equal labels or not.",
    ENDPOINT,
    VERSION,
    "outcome",
)
REFUSALS: Final = counter(
    "refusals",
    "Requests that an endpoint refused before any attempt.",
    ENDPOINT,
    "status",
    "reason",
)

TEXT_HISTOGRAMS: Final[dict[Statistic, Metric]] = {
    statistic: histogram(name, text, SLOT, EDGES[statistic].upper)
    for statistic, name, text in (
        (Statistic.TOKENS, "text_tokens", "Tokens a text, special ones included."),
        (Statistic.WORDS, "text_words", "Words a text."),
        (Statistic.UNK_TOKENS, "text_unk_tokens", "Tokens a text that the vocabulary lacks."),
        (Statistic.UNK_SHARE, "text_unk_ratio", "Share of a text's tokens that are unknown."),
        (Statistic.TOKENS_PER_WORD, "text_tokens_per_word", "Tokens a word, of a text."),
        (Statistic.VECTOR_NORM, "vector_norm", "Length of an embedding."),
        (Statistic.NON_ZEROS, "vector_non_zeros", "Weights of a sparse vector that are not 0."),
        (Statistic.GENERATED_TOKENS, "generated_tokens", "Tokens written after a prompt."),
    )
}
SCORES: Final = histogram(
    "label_score_ratio",
    "Score of the predicted label.",
    (*SLOT, "label"),
    EDGES[Statistic.SCORE].upper,
)
LATENCY: Final = histogram(
    "attempt_seconds",
    "Time of an attempt in each stage: queue, tokenise, wait, infer, total.",
    (*SLOT, "stage"),
    LATENCY_BUCKETS,
)
PAIR_DISTANCE: Final = histogram(
    "shadow_distance_ratio",
    "Distance of a shadow's answer from the one that the caller got, 0 to 1.",
    (ENDPOINT, VERSION),
    EDGES[Statistic.SCORE].upper,
)

# Users' own statistics
OWN_HISTOGRAM: Final = histogram(
    "own_histogram", "A declared histogram of the users' own.", (*SLOT, "statistic"), ()
)
OWN_CATEGORY: Final = counter(
    "own_category", "A declared category of the users' own.", *SLOT, "statistic", "value"
)
OWN_COUNTER: Final = counter(
    "own_counter", "A declared counter of the users' own.", *SLOT, "statistic"
)
OWN_UNFIT: Final = counter(
    "own_unfit_observations",
    "Observations that the declaration does not allow.",
    *SLOT,
    "statistic",
)
OWN_UNDECLARED: Final = counter(
    "own_undeclared_observations", "Observations of names that nobody declared.", *SLOT
)

# Drift, by the evaluate role. Statistics are those of contracts.statistics, ``truncated``,
# ``labels``, and ``own:NAME``; with ``week:`` before it, against what the endpoint usually gets at
# this time of the week; ``topics`` and ``vectors`` are against that too. Lambda 1 is the last
# window only, and 0.01 about the last hundred.
DRIFT: Final = (ENDPOINT, VERSION, "statistic")
DRIFT_PSI: Final = gauge(
    "drift_psi",
    "Population stability index against the reference, less what equal samples would show.",
    *DRIFT,
    "lambda",
)
DRIFT_SIGNIFICANCE: Final = gauge(
    "drift_significance_ratio",
    "Chi-square over its threshold at the endpoint's false-alarm budget; above 1 is significant.",
    *DRIFT,
    "lambda",
)
DRIFT_LEVEL: Final = gauge(
    "drift_level",
    "0: quiet; 1: significant and PSI above 0.1 (of week: statistics 0.005); 2: and above 0.2.",
    *DRIFT,
)
DRIFT_ALARM: Final = gauge(
    "drift_alarm", "1 while the level is 2 and the null is calibrated.", *DRIFT
)
DRIFT_CALIBRATED: Final = gauge(
    "drift_calibrated",
    "1 once a full day of stable traffic has told how this statistic moves without drift.",
    *DRIFT,
)
DRIFT_CALIBRATION: Final = gauge(
    "drift_calibration_ratio", "How much of that day has been seen, 0 to 1.", ENDPOINT, VERSION
)
DRIFT_REFERENCE: Final = gauge(
    "drift_reference_info",
    "1; what a version is compared with: profile, traffic (its first day), or none yet.",
    ENDPOINT,
    VERSION,
    "kind",
)
DRIFT_REFERENCE_TEXTS: Final = gauge(
    "drift_reference_texts", "Texts in the reference.", ENDPOINT, VERSION
)
DRIFT_TIME_KNOWN: Final = gauge(
    "drift_time_known",
    "1 while enough is known of this time of the week to say what is usual at it; 0: it is learnt.",
    ENDPOINT,
    VERSION,
)
DRIFT_FALSE_ALARM_SECONDS: Final = gauge(
    "drift_false_alarm_interval_seconds",
    "Expected time between false alarms of an endpoint, as it is set.",
    ENDPOINT,
)

# Accuracy over the last hour, by the evaluate role
ACCURACY_ESTIMATED: Final = gauge(
    "accuracy_estimated_ratio",
    "Mean score of the predicted labels, if the feedback of the last day does not contradict the"
    " scores; no series elsewhere.",
    *SLOT,
)
ACCURACY_INTERVAL: Final = gauge(
    "accuracy_estimated_interval_ratio",
    "Ends of the estimate's 95 % interval, if texts with feedback are like all others.",
    *SLOT,
    "end",
)
MEAN_SCORE: Final = gauge(
    "mean_score_ratio", "Mean score of the predicted labels, which need not be an accuracy.", *SLOT
)
SCORES_TRUST: Final = gauge(
    "scores_trust",
    "1 for what the feedback of the last day says of scores as probabilities: held (it does not"
    " contradict them), off, or unknown (fewer than 100 texts).",
    *SLOT,
    "state",
)
ACCURACY_MEASURED: Final = gauge(
    "accuracy_measured_ratio", "Share of right answers among those with feedback.", *SLOT
)
ACCURACY_FEEDBACK: Final = gauge(
    "accuracy_feedback_texts", "Texts with feedback that the measured accuracy rests on.", *SLOT
)

# Where a version comes from, by the evaluate role
VERSION_INFO: Final = gauge(
    "version_info",
    "1; the model version behind an endpoint's version, its MLflow run and data set.",
    ENDPOINT,
    VERSION,
    "model",
    "package",
    "run_id",
    "data_set",
    "task",
    "precision",
)

# The evaluate role itself
EVALUATE_CONNECTED: Final = gauge("evaluate_connected", "1 while Kafka answers.")
EVALUATE_LAG: Final = gauge(
    "evaluate_lag_records", "Window records in Kafka that are not read yet."
)
EVALUATE_SINCE: Final = gauge(
    "evaluate_since_timestamp_seconds", "When the counters of traffic began at 0, unix time."
)
EVALUATE_THROUGH: Final = gauge(
    "evaluate_known_through_timestamp_seconds",
    "Up to when events are in the windows, of the slowest partition, unix time.",
)
EVALUATE_RECORDS: Final = counter("evaluate_records", "Window records taken.")
EVALUATE_SKIPPED: Final = counter(
    "evaluate_skipped_records", "Window records that are none, or of an unknown schema."
)
EVALUATE_FAILURES: Final = counter("evaluate_failures", "Times that reading began again.")
EVALUATE_OVERFLOW: Final = counter(
    "evaluate_overflow",
    "Amounts counted under the label value other, or not at all, because a bound was reached.",
    "what",
)
EVALUATE_LIMIT_USED: Final = gauge(
    "evaluate_limit_used_ratio",
    "How much of a bound is taken, 1: nothing more is told apart. Arms with series, versions in"
    " drift, and endpoints with refusals.",
    "what",
)
EVALUATE_PARTITIONS: Final = gauge("evaluate_partitions", "Partitions of window records.")
EVALUATE_PARTITIONS_READ: Final = gauge(
    "evaluate_partitions_read", "Those of them whose endpoints this process tells of."
)
UNCOUNTED_MESSAGES: Final = gauge(
    "uncounted_messages", "Messages of events in Kafka that are in no window yet."
)
COUNTING_STATE: Final = gauge(
    "counting_state",
    "1 for what is known of the traffic: counted, behind, stalled (nobody counts it), silent"
    " (no gateway publishes) or unknown (Kafka does not answer).",
    "state",
)
COUNTED_THROUGH: Final = gauge(
    "counted_through_timestamp_seconds",
    "While traffic is not counted: since when, unix time; else now.",
)
EVENTS_SKIPPED: Final = counter(
    "skipped_messages", "Messages of events that no fold worker understood."
)
EVENTS_COPIED: Final = counter("copied_messages", "Messages of events that were in the log before.")
EVENTS_MISTIMED: Final = counter(
    "mistimed_messages", "Messages of events from a clock that was minutes off Kafka's."
)
MESSAGES_MISSING: Final = counter(
    "missing_messages",
    "Messages of events that gateways numbered and that are not in the log: they were lost.",
)
EVENTS_REPORTED_LOST: Final = counter(
    "reported_lost_events",
    "Attempts, refusals and feedback that gateways lost, as their messages say.",
    ENDPOINT,
    "reason",
)
GATEWAYS_SILENT: Final = gauge(
    "silent_gateways",
    "Starts of gateways that fell silent in the last hour without saying that they end.",
)

EVALUATE: Final[tuple[Metric, ...]] = (
    ATTEMPTS, ANSWERED, REPEATED, TEXTS, TRUNCATED, LABELS, FEEDBACK, PAIRS, REFUSALS,
    *TEXT_HISTOGRAMS.values(), SCORES, LATENCY, PAIR_DISTANCE,
    OWN_HISTOGRAM, OWN_CATEGORY, OWN_COUNTER, OWN_UNFIT, OWN_UNDECLARED,
    DRIFT_PSI, DRIFT_SIGNIFICANCE, DRIFT_LEVEL, DRIFT_ALARM, DRIFT_CALIBRATED, DRIFT_CALIBRATION,
    DRIFT_REFERENCE, DRIFT_REFERENCE_TEXTS, DRIFT_TIME_KNOWN, DRIFT_FALSE_ALARM_SECONDS,
    ACCURACY_ESTIMATED, ACCURACY_INTERVAL, MEAN_SCORE, SCORES_TRUST, ACCURACY_MEASURED,
    ACCURACY_FEEDBACK, VERSION_INFO,
    EVALUATE_CONNECTED, EVALUATE_LAG, EVALUATE_SINCE, EVALUATE_THROUGH, EVALUATE_RECORDS,
    EVALUATE_SKIPPED, EVALUATE_FAILURES, EVALUATE_OVERFLOW, EVALUATE_LIMIT_USED,
    EVALUATE_PARTITIONS, EVALUATE_PARTITIONS_READ, EVENTS_SKIPPED, EVENTS_COPIED,
    EVENTS_MISTIMED, MESSAGES_MISSING, EVENTS_REPORTED_LOST, GATEWAYS_SILENT, UNCOUNTED_MESSAGES,
    COUNTING_STATE, COUNTED_THROUGH,
)  # fmt: skip

# Rollouts, by the controller: what the endpoint's status says.

ROUTE_WEIGHT: Final = gauge(
    "route_weight_ratio",
    "Share of callers that an arm's version answers; of a shadow, of requests copied to it.",
    *SLOT,
)
ROLLOUT_PHASE: Final = gauge(
    "rollout_phase",
    "1 for the phase that the newest version is in, 0 for all others.",
    ENDPOINT,
    VERSION,
    "phase",
)
ROLLOUT_STEP: Final = gauge(
    "rollout_step", "Step of the rollout that goes on, from 0.", ENDPOINT, VERSION
)
ROLLOUT_PAUSED: Final = gauge("rollout_paused", "1 while a person holds it.", ENDPOINT, VERSION)
ENDPOINT_STABLE: Final = gauge(
    "endpoint_has_stable", "1 if a version answers by default, 0 if there is none.", ENDPOINT
)
# Of a rollout that waits for a verdict: neither paused nor promoted.
ROLLOUT_BEGAN: Final = gauge(
    "rollout_began_timestamp_seconds", "When it began, unix time.", ENDPOINT, VERSION
)
ROLLOUT_DEADLINE: Final = gauge(
    "rollout_deadline_timestamp_seconds",
    "When it expires without a verdict, unix time.",
    ENDPOINT,
    VERSION,
)
ROLLOUT_JUDGED: Final = gauge(
    "rollout_judged_through_timestamp_seconds",
    "Up to when events are in its evidence, unix time.",
    ENDPOINT,
    VERSION,
)
ROLLOUT_REQUESTS: Final = gauge(
    "rollout_step_requests",
    "Requests that the newest version had in this step.",
    ENDPOINT,
    VERSION,
)
CHECK_VERDICT: Final = gauge(
    "rollout_check_verdict",
    "What a check says of the newest version: -1 fail, 0 unknown, 1 pass.",
    ENDPOINT,
    VERSION,
    "check",
)
ROLLOUT_TRANSITIONS: Final = counter(
    "rollout_transitions",
    "Times that a version entered a phase, since the controller started.",
    ENDPOINT,
    "phase",
)
WRITE_BACK_FAILURES: Final = counter(
    "registry_write_back_failures", "Failed tries to tell MLflow what became of a version."
)

CONTROLLER: Final[tuple[Metric, ...]] = (
    ROUTE_WEIGHT, ROLLOUT_PHASE, ROLLOUT_STEP, ROLLOUT_PAUSED, CHECK_VERDICT, ROLLOUT_TRANSITIONS,
    WRITE_BACK_FAILURES, ENDPOINT_STABLE, ROLLOUT_BEGAN, ROLLOUT_DEADLINE, ROLLOUT_JUDGED,
    ROLLOUT_REQUESTS,
)  # fmt: skip

# The fold role: what one worker did. The traffic's own numbers are in the merged windows.

FOLD_CONNECTED: Final = gauge(
    "fold_connected",
    "1 while Kafka says that this worker is a member of its group, or that there is no topic yet.",
)
FOLD_STALLED: Final = gauge(
    "fold_stalled_seconds",
    "Time since this worker was last where it should be: in its group, with no message that waits"
    " and is not read. A few seconds at most while all is well.",
)
FOLD_LAST_READ: Final = gauge(
    "fold_last_read_timestamp_seconds", "When a message was last read, unix time; 0: never."
)
FOLD_CHECKED: Final = gauge(
    "fold_checked_timestamp_seconds",
    "When Kafka last said where this worker stands, unix time; 0: never.",
)
FOLD_END: Final = gauge(
    "fold_end_offset",
    "Offset behind the last message of a partition that is this worker's, as Kafka says.",
    "partition",
)
FOLD_POSITION: Final = gauge(
    "fold_position_offset",
    "Offset of the next message that this worker reads of a partition of its own.",
    "partition",
)
FOLD_STALLS: Final = counter(
    "fold_stalls", "New connections because messages waited unread, or the group had lost us."
)
FOLD_EMPTY_POLLS: Final = counter(
    "fold_empty_polls",
    "Pauses because Kafka's client gave nothing, again and again, without waiting for it.",
)
FOLD_LAG: Final = gauge(
    "fold_lag_messages",
    "Messages between what is folded and the end of a partition.",
    "partition",
)
FOLD_MISSING: Final = counter("fold_missing", "Messages deleted before they were folded.")
FOLD_OVERSIZED: Final = counter(
    "fold_oversized", "Window records written without their counts, because they were too large."
)
FOLD_MESSAGES: Final = counter(
    "fold_messages", "Messages read, those read again after a rebalance included."
)
FOLD_EVENTS: Final = counter(
    "fold_events", "Prediction events in complete ranges that were folded here."
)
FOLD_SKIPPED: Final = counter("fold_skipped", "Messages that were no batches of a known schema.")
FOLD_COPIES: Final = counter("fold_copies", "Messages that a gateway had written before.")
FOLD_MISTIMED: Final = counter(
    "fold_mistimed", "Messages of a gateway whose clock is off, or that waited long for Kafka."
)
FOLD_RECORDS: Final = counter("fold_records", "Window records written.")
FOLD_FAILURES: Final = counter("fold_failures", "Times that folding had to begin again.")
FOLD_ASSIGNMENTS: Final = counter("fold_assignments", "Times that partitions were assigned.")

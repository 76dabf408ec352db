"""What the evaluate role knows, as Prometheus reads it. Names are those of ``contracts.metrics``.

Pure: totals and board in, families out. Latency is told in every fifth of its buckets, everything
else as it is counted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from prometheus_client.core import Metric as Family

from contracts import metrics
from contracts.endpoint import Arm
from contracts.statistics import EDGES, LATENCY_EDGES, LatencyStage, Statistic
from contracts.windows import MICRO, OwnCounts, Sparse
from measures.counting import CountingState, CountingStatus
from measures.histograms import dense
from measures.losses import MessageLosses
from measures.trust import Trust
from service.families import Labels, histograms, numbers
from stats.evaluation.board import Board, EndpointBoard, StatisticDrift, VersionDrift
from stats.evaluation.totals import (
    MOST_ENDPOINTS,
    ArmKey,
    ArmTotals,
    TrafficTotals,
)

_Numbers = Iterator[tuple[Labels, float]]
_Histograms = Iterator[tuple[Labels, Sequence[float], Sequence[int], float]]
_COARSE = 5  # edges of LATENCY_EDGES in a bucket that is told


@dataclass(frozen=True, slots=True)
class RoleHealth:
    """How the role itself is.

    Attributes:
        lag: window records in Kafka that are not read; None while nobody knows.
        records: window records taken.
        skipped: those that were none.
        failures: times that reading began again.
    """

    lag: int | None = None
    records: int = 0
    skipped: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class ExpositionSnapshot:
    """One instant.

    Attributes:
        totals: the counters.
        arms: those of ``totals`` that are shown; others were gone from their endpoint too long.
        refusals: those that are shown: endpoint -> status and reason -> count.
        board: everything else about traffic.
        health: of the role itself.
        counting: whether all that gateways published is in the windows.
        false_alarm_seconds: expected time between false alarms of an endpoint.
        lost: what gateways sent and is not in the log.
        partitions: of window records, how many are ours, and how many there are.
        has_common: what is of no single endpoint lies in one of ours.
    """

    totals: TrafficTotals
    arms: Collection[ArmKey]
    refusals: Mapping[str, Mapping[str, int]]
    board: Board
    health: RoleHealth
    counting: CountingStatus
    false_alarm_seconds: float
    lost: MessageLosses = field(default_factory=MessageLosses)
    partitions: tuple[int, int] = (1, 1)
    has_common: bool = True


def families(now: ExpositionSnapshot) -> Iterator[Family]:
    """Every family of ``contracts.metrics.EVALUATE``, each once."""
    arms = {key: now.totals.arms[key] for key in sorted(now.arms) if key in now.totals.arms}
    return chain(_traffic(arms), _own_families(arms), _totals(now), _board(now), _health(now))


def _traffic(arms: Mapping[ArmKey, ArmTotals]) -> Iterator[Family]:
    by_status = _count_by_key(arms, lambda arm: arm.statuses)
    yield numbers(metrics.ATTEMPTS, by_status)
    for metric, count in _COUNTS:
        yield numbers(metric, (((*_slot(key),), count(arm)) for key, arm in arms.items()))
    yield numbers(metrics.LABELS, _count_by_key(arms, lambda arm: arm.labels))
    yield numbers(
        metrics.FEEDBACK, _count_by_key(arms, lambda arm: {"right": arm.right, "wrong": arm.wrong})
    )
    yield numbers(metrics.PAIRS, _pairs(arms))
    for statistic, metric in metrics.TEXT_HISTOGRAMS.items():
        yield histograms(metric, _texts(arms, statistic))
    yield histograms(metrics.SCORES, _scores(arms))
    yield histograms(metrics.LATENCY, _latency(arms))
    yield histograms(metrics.PAIR_DISTANCE, _distances(arms))


_COUNTS: tuple[tuple[metrics.Metric, Callable[[ArmTotals], int]], ...] = (
    (metrics.ANSWERED, lambda arm: arm.answered),
    (metrics.REPEATED, lambda arm: arm.repeated),
    (metrics.TEXTS, lambda arm: arm.texts),
    (metrics.TRUNCATED, lambda arm: arm.truncated),
)


def _slot(key: ArmKey) -> tuple[str, str, str]:
    return key.endpoint, key.version, key.arm.value


def _count_by_key(
    arms: Mapping[ArmKey, ArmTotals], counts: Callable[[ArmTotals], Mapping[str, int]]
) -> _Numbers:
    for key, arm in arms.items():
        for value, count in counts(arm).items():
            yield (*_slot(key), value), count


def _pairs(arms: Mapping[ArmKey, ArmTotals]) -> _Numbers:
    for key, arm in arms.items():
        if key.arm is Arm.SHADOW:
            yield (key.endpoint, key.version, "equal"), arm.pairs_equal
            yield (key.endpoint, key.version, "differing"), arm.pairs_differing


# Only sparse vectors have these, and generated text.
_OF_SOME = (Statistic.NON_ZEROS, Statistic.GENERATED_TOKENS)


def _texts(arms: Mapping[ArmKey, ArmTotals], statistic: Statistic) -> _Histograms:
    edges = EDGES[statistic].upper
    for key, arm in arms.items():
        if statistic is Statistic.VECTOR_NORM and arm.labels and statistic not in arm.histograms:
            continue  # a classifier has no vectors
        if statistic in _OF_SOME and statistic not in arm.histograms:
            continue
        counts = _spread(arm.histograms.get(statistic, {}), len(edges))
        yield _slot(key), edges, counts, arm.sums.get(statistic, 0) / MICRO


def _scores(arms: Mapping[ArmKey, ArmTotals]) -> _Histograms:
    edges = EDGES[Statistic.SCORE].upper
    for key, arm in arms.items():
        for label in arm.labels.keys() | arm.label_scores.keys():
            yield (
                (*_slot(key), label),
                edges,
                _spread(arm.label_scores.get(label, {}), len(edges)),
                arm.label_score_sums.get(label, 0) / MICRO,
            )


def _latency(arms: Mapping[ArmKey, ArmTotals]) -> _Histograms:
    for key, arm in arms.items():
        for stage in LatencyStage:
            counts = coarsen(_spread(arm.latency.get(stage, {}), len(LATENCY_EDGES.upper)))
            total = arm.latency_sums.get(stage, 0) / MICRO
            yield (*_slot(key), stage.value), metrics.LATENCY_BUCKETS, counts, total


def _distances(arms: Mapping[ArmKey, ArmTotals]) -> _Histograms:
    edges = EDGES[Statistic.SCORE].upper
    for key, arm in arms.items():
        if key.arm is Arm.SHADOW:
            counts = _spread(arm.pair_distance, len(edges))
            yield (key.endpoint, key.version), edges, counts, arm.pair_distance_sum / MICRO


def _spread(counts: Sparse, edges: int) -> list[int]:
    """``[edges + 1]`` counts; a bucket that these edges do not have joins the last."""
    spread: list[int] = dense(counts, edges + 1).tolist()
    return spread


def coarsen(counts: Sequence[int]) -> list[int]:
    """Counts of ``LATENCY_EDGES`` by the edges of ``LATENCY_BUCKETS``: exact, only fewer."""
    edges = len(metrics.LATENCY_BUCKETS)
    found = [counts[0]]
    found += [sum(counts[at - _COARSE + 1 : at + 1]) for at in range(_COARSE, len(counts), _COARSE)]
    del found[edges:]
    return [*found, sum(counts) - sum(found)]


def _own_families(arms: Mapping[ArmKey, ArmTotals]) -> Iterator[Family]:
    held = [
        (*_slot(key), own) for key, arm in arms.items() for own in _newest_declarations(arm.own)
    ]
    yield histograms(
        metrics.OWN_HISTOGRAM,
        (
            (
                (*slot, own.spec.name),
                own.spec.edges,
                _spread({int(at): n for at, n in own.counts.items()}, len(own.spec.edges)),
                own.sum_micro / MICRO,
            )
            for *slot, own in held
            if own.spec.kind == "histogram"
        ),
    )
    yield numbers(
        metrics.OWN_CATEGORY,
        (
            ((*slot, own.spec.name, value), own.counts.get(value, 0))
            for *slot, own in held
            if own.spec.kind == "category"
            for value in own.spec.values
        ),
    )
    yield numbers(
        metrics.OWN_COUNTER,
        (
            ((*slot, own.spec.name), own.sum_micro / MICRO)
            for *slot, own in held
            if own.spec.kind == "counter"
        ),
    )
    yield numbers(metrics.OWN_UNFIT, (((*slot, own.spec.name), own.unfit) for *slot, own in held))
    yield numbers(
        metrics.OWN_UNDECLARED, ((_slot(key), arm.undeclared) for key, arm in arms.items())
    )


def _newest_declarations(own: Iterable[OwnCounts]) -> Iterable[OwnCounts]:
    """One of each name: a declaration that was changed makes another series of the same labels."""
    return {counts.spec.name: counts for counts in own}.values()


def _totals(now: ExpositionSnapshot) -> Iterator[Family]:
    totals = now.totals
    yield numbers(metrics.REFUSALS, _refusals(now.refusals))
    first = now.has_common
    for metric, count in (
        (metrics.EVENTS_SKIPPED, totals.skipped),
        (metrics.EVENTS_COPIED, totals.copies),
        (metrics.EVENTS_MISTIMED, totals.mistimed),
        (metrics.MESSAGES_MISSING, now.lost.messages),
        (metrics.GATEWAYS_SILENT, now.lost.silent),
    ):
        yield numbers(metric, [((), count)] if first else [])
    yield numbers(metrics.EVENTS_REPORTED_LOST, _sum_reported(now.lost) if first else [])
    yield numbers(metrics.EVALUATE_OVERFLOW, (((what,), n) for what, n in totals.overflow.items()))
    versions = sum(len(endpoint.drift) for endpoint in now.board.by_endpoint.values())
    used = {
        "arms": len(now.arms) / totals.most.arms,  # one that is gone makes room
        "versions": versions / totals.most.versions,
        "endpoints": len(now.refusals) / totals.most.endpoints,
    }
    yield numbers(metrics.EVALUATE_LIMIT_USED, (((what,), share) for what, share in used.items()))


def _sum_reported(lost: MessageLosses) -> _Numbers:
    summed: dict[tuple[str, str], int] = {}
    for place, (endpoint, reasons) in enumerate(sorted(lost.dropped.items())):
        for reason, count in reasons.items():
            key = (endpoint if place < MOST_ENDPOINTS else metrics.OTHER, reason)
            summed[key] = summed.get(key, 0) + count
    yield from summed.items()


def _refusals(refusals: Mapping[str, Mapping[str, int]]) -> _Numbers:
    for endpoint, counts in refusals.items():
        for told, count in counts.items():
            status, _, reason = told.partition(" ")
            yield (endpoint, status, reason), count


def _board(now: ExpositionSnapshot) -> Iterator[Family]:
    board = now.board
    endpoints = [board.by_endpoint[name] for name in board.endpoints()]
    # Two packages of one version would make series of the same labels: the one seen last counts.
    newest = {
        (one.name, found.version): found
        for one in endpoints
        for found in sorted(one.drift, key=lambda drift: drift.at)
    }
    drifts = [(name, found) for (name, _), found in newest.items()]
    yield from _drift(drifts)
    yield numbers(
        metrics.DRIFT_FALSE_ALARM_SECONDS,
        (((one.name,), now.false_alarm_seconds) for one in endpoints),
    )
    yield from _accuracy(endpoints)
    yield numbers(metrics.VERSION_INFO, _origins(endpoints))


def _drift(drifts: Sequence[tuple[str, VersionDrift]]) -> Iterator[Family]:
    found = [
        ((name, drift.version, one.statistic), one) for name, drift in drifts
        for one in drift.statistics
    ]  # fmt: skip
    watched = [(labels, one) for labels, one in found if one.monitors]
    weights = [
        ((*labels, f"{monitor.weight:g}"), monitor)
        for labels, one in watched
        for monitor in one.monitors
    ]
    yield numbers(metrics.DRIFT_PSI, ((labels, one.psi) for labels, one in weights))
    yield numbers(metrics.DRIFT_SIGNIFICANCE, ((labels, one.ratio) for labels, one in weights))
    for metric, value in _LEVELS:
        yield numbers(metric, ((labels, value(one)) for labels, one in watched))
    yield numbers(
        metrics.DRIFT_CALIBRATION,
        (((name, drift.version), drift.calibration) for name, drift in drifts),
    )
    yield numbers(
        metrics.DRIFT_REFERENCE,
        (((name, drift.version, drift.reference.kind), 1) for name, drift in drifts),
    )
    yield numbers(
        metrics.DRIFT_REFERENCE_TEXTS,
        (((name, drift.version), drift.reference.texts) for name, drift in drifts),
    )
    yield numbers(
        metrics.DRIFT_TIME_KNOWN,
        (((name, drift.version), not drift.learns_time) for name, drift in drifts),
    )


_LEVELS: tuple[tuple[metrics.Metric, Callable[[StatisticDrift], float]], ...] = (
    (metrics.DRIFT_LEVEL, lambda found: found.level),
    (metrics.DRIFT_ALARM, lambda found: found.alarm),
    (metrics.DRIFT_CALIBRATED, lambda found: found.calibrated),
)


def _accuracy(endpoints: Iterable[EndpointBoard]) -> Iterator[Family]:
    largest = {
        (one.name, accuracy.version, accuracy.arm.value): accuracy
        for one in endpoints
        for accuracy in sorted(one.accuracy, key=lambda accuracy: accuracy.texts)
    }
    found = list(largest.items())
    yield numbers(
        metrics.ACCURACY_ESTIMATED,
        ((labels, one.estimated) for labels, one in found if one.estimated is not None),
    )
    yield numbers(
        metrics.ACCURACY_INTERVAL,
        (
            ((*labels, end), value)
            for labels, one in found
            for end, value in (("low", one.low), ("high", one.high))
            if value is not None
        ),
    )
    yield numbers(
        metrics.MEAN_SCORE,
        ((labels, one.mean_score) for labels, one in found if one.mean_score is not None),
    )
    yield numbers(
        metrics.SCORES_TRUST,
        (
            ((*labels, trust.value), float(one.trust is trust))
            for labels, one in found
            if one.mean_score is not None
            for trust in Trust
        ),
    )
    yield numbers(
        metrics.ACCURACY_MEASURED,
        ((labels, one.measured) for labels, one in found if one.measured is not None),
    )
    yield numbers(metrics.ACCURACY_FEEDBACK, ((labels, one.feedback) for labels, one in found))


def _origins(endpoints: Iterable[EndpointBoard]) -> _Numbers:
    for one in endpoints:
        for origin in one.origins:
            yield (
                one.name, origin.version, origin.model, origin.package[:12], origin.run_id,
                ", ".join(origin.data_sets), origin.task, origin.precision,
            ), 1  # fmt: skip


def _counting_families(now: ExpositionSnapshot) -> Iterator[Family]:
    counting = now.counting
    states = [((state.value,), float(state is counting.state)) for state in CountingState]
    through = [((), counting.since or now.board.at)]
    first = now.has_common
    yield numbers(metrics.UNCOUNTED_MESSAGES, [((), counting.messages)] if first else [])
    yield numbers(metrics.COUNTING_STATE, states if first else [])
    yield numbers(metrics.COUNTED_THROUGH, through if first else [])


_PARTITIONS = (metrics.EVALUATE_PARTITIONS_READ, metrics.EVALUATE_PARTITIONS)


def _health(now: ExpositionSnapshot) -> Iterator[Family]:
    board, health = now.board, now.health
    yield numbers(metrics.EVALUATE_CONNECTED, [((), float(board.connected))])
    yield numbers(metrics.EVALUATE_LAG, [] if health.lag is None else [((), health.lag)])
    yield numbers(metrics.EVALUATE_SINCE, [((), board.since)])
    yield numbers(metrics.EVALUATE_THROUGH, [((), board.through)])
    for metric, count in zip(_PARTITIONS, now.partitions, strict=True):
        yield numbers(metric, [((), count)])
    yield from _counting_families(now)
    yield numbers(metrics.EVALUATE_RECORDS, [((), health.records)])
    yield numbers(metrics.EVALUATE_SKIPPED, [((), health.skipped)])
    yield numbers(metrics.EVALUATE_FAILURES, [((), health.failures)])

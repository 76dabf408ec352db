"""Drift and accuracy as the page draws them: the board's figures, over columns of time. Pure.

It never decides what drift is.
"""

from collections.abc import Iterable

from stats.evaluation import board
from stats.ui.columns import Span, round_value
from stats.ui.document import AccuracyView, Drift, MonitorView, StatisticView, Values

MOST_STATISTICS = 60  # of a version; those of users come last in the order of names


def build_drift(found: board.VersionDrift, over: Span) -> Drift:
    """One version's drift."""
    return Drift(
        version=found.version,
        kind=found.reference.kind,
        source=found.reference.source,
        reference_texts=found.reference.texts,
        calibration=round_value(found.calibration),
        at=found.at or None,
        texts=found.texts,
        statistics=[
            _statistic(item, over) for item in found.statistics[:MOST_STATISTICS] if item.monitors
        ],
        learns_time=found.learns_time,
    )


def _statistic(found: board.StatisticDrift, over: Span) -> StatisticView:
    return StatisticView(
        statistic=found.statistic,
        ratio=round_value(found.ratio),
        psi=round_value(found.psi),
        level=found.level,
        alarm=found.alarm,
        calibrated=found.calibrated,
        monitors=[
            MonitorView(monitor.weight, round_value(monitor.ratio), round_value(monitor.psi))
            for monitor in found.monitors
        ],
        bins=list(found.bins),
        reference=[round_value(share) for share in found.reference],
        now=[round_value(share) for share in found.now],
        ratios=_find_largest(((point.at, point.ratio) for point in found.history), over),
        psis=_find_largest(((point.at, point.psi) for point in found.history), over),
    )


def _find_largest(points: Iterable[tuple[float, float]], over: Span) -> Values:
    """The largest value in each column; a point lies in the column that it ends in."""
    values: Values = [None] * over.count
    for at, value in points:
        column = over.column(at - 0.001)
        if column is not None:
            values[column] = round_value(max(value, values[column] or 0.0))
    return values


def accuracy(found: board.Accuracy) -> AccuracyView:
    """One arm's accuracy."""
    return AccuracyView(
        version=found.version,
        arm=found.arm.value,
        estimated=None if found.estimated is None else round_value(found.estimated),
        texts=found.texts,
        measured=None if found.measured is None else round_value(found.measured),
        feedback=found.feedback,
        trust=found.trust.value,
        low=None if found.low is None else round_value(found.low),
        high=None if found.high is None else round_value(found.high),
    )

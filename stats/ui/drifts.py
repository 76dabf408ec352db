"""Drift and accuracy as the page draws them: the board's figures, over columns of time. Pure.

It never decides what drift is.
"""

from collections.abc import Iterable

from stats.evaluation import board
from stats.ui.columns import Span, rounded
from stats.ui.document import AccuracyView, Drift, MonitorView, StatisticView, Values

MOST_STATISTICS = 60  # of a version; those of users come last in the order of names


def of(found: board.VersionDrift, over: Span) -> Drift:
    """One version's drift."""
    return Drift(
        version=found.version,
        kind=found.reference.kind,
        source=found.reference.source,
        reference_texts=found.reference.texts,
        calibration=rounded(found.calibration),
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
        ratio=rounded(found.ratio),
        psi=rounded(found.psi),
        level=found.level,
        alarm=found.alarm,
        calibrated=found.calibrated,
        monitors=[
            MonitorView(monitor.weight, rounded(monitor.ratio), rounded(monitor.psi))
            for monitor in found.monitors
        ],
        bins=list(found.bins),
        reference=[rounded(share) for share in found.reference],
        now=[rounded(share) for share in found.now],
        ratios=_largest(((point.at, point.ratio) for point in found.history), over),
        psis=_largest(((point.at, point.psi) for point in found.history), over),
    )


def _largest(points: Iterable[tuple[float, float]], over: Span) -> Values:
    """The largest value in each column; a point lies in the column that it ends in."""
    values: Values = [None] * over.count
    for at, value in points:
        column = over.column(at - 0.001)
        if column is not None:
            values[column] = rounded(max(value, values[column] or 0.0))
    return values


def accuracy(found: board.Accuracy) -> AccuracyView:
    """One arm's accuracy."""
    return AccuracyView(
        version=found.version,
        arm=found.arm.value,
        estimated=None if found.estimated is None else rounded(found.estimated),
        texts=found.texts,
        measured=None if found.measured is None else rounded(found.measured),
        feedback=found.feedback,
        trust=found.trust.value,
        low=None if found.low is None else rounded(found.low),
        high=None if found.high is None else rounded(found.high),
    )

"""Both arms over time, for plots: points that grow coarser, never more than a bounded number.

Called by ``rollout.judge``. Nothing is decided by it.
"""

from collections.abc import Sequence

from contracts.rollout import SERIES_LIMIT, SeriesPoint


def extended(
    series: Sequence[SeriesPoint], points: Sequence[SeriesPoint]
) -> tuple[SeriesPoint, ...]:
    """With more points at the end; all are merged two by two whenever there are too many."""
    grown = list(series)
    for point in points:
        if len(grown) == SERIES_LIMIT:
            grown = [_sum(*grown[at : at + 2]) for at in range(0, len(grown), 2)]
        grown.append(point)
    return tuple(grown)


def _sum(one: SeriesPoint, other: SeriesPoint) -> SeriesPoint:
    """Two neighbours as one; ``seconds`` reaches from the start to the end, gaps included."""
    return SeriesPoint(
        start=one.start,
        seconds=other.start + other.seconds - one.start,
        candidate_requests=one.candidate_requests + other.candidate_requests,
        candidate_errors=one.candidate_errors + other.candidate_errors,
        candidate_slow=one.candidate_slow + other.candidate_slow,
        stable_requests=one.stable_requests + other.stable_requests,
        stable_errors=one.stable_errors + other.stable_errors,
        stable_slow=one.stable_slow + other.stable_slow,
    )

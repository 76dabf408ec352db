"""Both arms over time, for plots: points that grow coarser, never more than a bounded number.

Nothing is decided by it.
"""

import math
from collections.abc import Sequence

from contracts.rollout import SERIES_LIMIT, SeriesPoint

_COUNTS = tuple(name for name in SeriesPoint.model_fields if name not in ("start", "seconds"))


def extend(series: Sequence[SeriesPoint], points: Sequence[SeriesPoint]) -> tuple[SeriesPoint, ...]:
    """With more points at the end; all are merged two by two whenever there are too many."""
    grown = list(series)
    for point in points:
        if len(grown) == SERIES_LIMIT:
            grown = [join(grown[at : at + 2]) for at in range(0, len(grown), 2)]
        grown.append(point)
    return tuple(grown)


def join(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """Neighbours as one; ``seconds`` reaches from the first to the end of the last, with gaps."""
    first, last = points[0], points[-1]
    counts = {name: sum(getattr(point, name) for point in points) for name in _COUNTS}
    return SeriesPoint(start=first.start, seconds=last.start + last.seconds - first.start, **counts)


def gather(series: Sequence[SeriesPoint], most: int) -> list[SeriesPoint]:
    """The same counts in at most ``most`` points, so that small numbers don't jump."""
    size = math.ceil(len(series) / most) or 1
    return [join(series[first : first + size]) for first in range(0, len(series), size)]

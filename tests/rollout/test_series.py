"""A plot's points grow coarser, and no count is lost."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.rollout import SERIES_LIMIT, SeriesPoint
from rollout.series import extend


def point(at: int) -> SeriesPoint:
    return SeriesPoint(
        start=10.0 * at,
        seconds=10,
        candidate_requests=at,
        candidate_errors=1,
        candidate_slow=2,
        stable_requests=3 * at,
        stable_errors=4,
        stable_slow=5,
        stable_feedback=2 * at,
        stable_wrong=at,
    )


@given(st.integers(0, 3 * SERIES_LIMIT), st.integers(0, SERIES_LIMIT))
def test_all_counts_and_all_time_are_kept_in_a_bounded_number_of_points(
    first: int, more: int
) -> None:
    points = [point(at) for at in range(first + more)]
    series = extend(extend((), points[:first]), points[first:])
    assert len(series) <= SERIES_LIMIT
    for name in SeriesPoint.model_fields.keys() - {"start", "seconds"}:
        kept = sum(getattr(one, name) for one in series)
        assert kept == sum(getattr(one, name) for one in points)
    assert sum(one.seconds for one in series) == 10 * len(points)
    ends = [one.start + one.seconds for one in series]
    assert [one.start for one in series[1:]] == ends[:-1]


def test_few_points_stay_as_they_are() -> None:
    points = tuple(point(at) for at in range(SERIES_LIMIT))
    assert extend((), points) == points
    assert len(extend(points, [point(SERIES_LIMIT)])) == SERIES_LIMIT // 2 + 1

"""Whose fault Triton's ends are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from registry.loading.crashes import REFUSED_PROBABILITY, CrashCount, crash_probability, reason

DAY, HOUR = 86_400.0, 3_600.0

counts = st.integers(0, 30)
seconds = st.floats(0.0, DAY)


@given(counts, seconds, counts, seconds)
def test_the_chance_is_that_of_the_negative_binomial(
    ends: int, under: float, usual: int, without: float
) -> None:
    told = crash_probability(
        CrashCount(count=ends, seconds=under), CrashCount(count=usual, seconds=without)
    )
    known = (600.0 + without) / (600.0 + without + under)
    expected = stats.nbinom.sf(ends - 1, usual + 0.5, known)
    assert told == pytest.approx(expected, abs=1e-9)


@given(counts, seconds, counts, seconds)
def test_more_ends_in_as_long_are_less_likely(
    ends: int, under: float, usual: int, without: float
) -> None:
    known = CrashCount(count=usual, seconds=without)
    more = crash_probability(CrashCount(count=ends + 1, seconds=under), known)
    assert more <= crash_probability(CrashCount(count=ends, seconds=under), known)


@pytest.mark.parametrize(
    ("under", "usual", "blamed"),
    [
        (CrashCount(count=1, seconds=1), CrashCount(seconds=DAY), False),  # once is nobody's fault
        (
            CrashCount(count=2, seconds=20),
            CrashCount(),
            True,
        ),  # a version that ends it again and again
        (CrashCount(count=2, seconds=HOUR), CrashCount(seconds=DAY), True),  # it never ended before
        (
            CrashCount(count=2, seconds=60),
            CrashCount(count=10, seconds=1500),
            False,
        ),  # it ends anyway
        (CrashCount(count=3, seconds=60), CrashCount(count=10, seconds=1500), False),
        (
            CrashCount(count=6, seconds=60),
            CrashCount(count=10, seconds=1500),
            True,
        ),  # but not as often
        (CrashCount(count=4, seconds=DAY), CrashCount(count=4, seconds=DAY), False),
    ],
)
def test_a_version_is_blamed_for_more_ends_than_there_are_without_it(
    under: CrashCount, usual: CrashCount, *, blamed: bool
) -> None:
    assert bool(reason(0, under, usual)) == blamed
    assert (crash_probability(under, usual) <= REFUSED_PROBABILITY) == blamed or under.count < 2


def test_a_second_end_in_a_row_while_it_is_loaded_is_the_versions() -> None:
    assert not reason(1, CrashCount(), CrashCount(count=100, seconds=1))
    assert "in a row" in reason(2, CrashCount(), CrashCount(count=100, seconds=1))


def test_what_is_long_ago_counts_less_and_the_rate_stays() -> None:
    seen = CrashCount(count=24, seconds=DAY).watched(2 * HOUR)
    assert seen.seconds < DAY
    assert seen.count / seen.seconds == pytest.approx(24 / (DAY + 2 * HOUR))

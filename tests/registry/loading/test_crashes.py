"""Whose fault Triton's ends are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

from registry.loading.crashes import REFUSED_PROBABILITY, CrashCount, crash_probability, reason

DAY, HOUR = 86_400.0, 3_600.0

counts = st.integers(0, 30)
seconds = st.floats(0.0, DAY)


def crashes(count: float, seconds: float) -> CrashCount:
    return CrashCount(count=count, seconds=seconds)


@given(counts, seconds, counts, seconds)
def test_the_chance_is_that_of_the_negative_binomial(
    ends: int, under: float, usual: int, without: float
) -> None:
    told = crash_probability(crashes(ends, under), crashes(usual, without))
    known = (600.0 + without) / (600.0 + without + under)
    expected = betainc(ends, usual + 0.5, 1.0 - known) if ends else 1.0  # its upper tail
    assert told == pytest.approx(expected, abs=1e-9)


@given(counts, seconds, counts, seconds)
def test_more_ends_in_as_long_are_less_likely(
    ends: int, under: float, usual: int, without: float
) -> None:
    known = crashes(usual, without)
    more = crash_probability(crashes(ends + 1, under), known)
    assert more <= crash_probability(crashes(ends, under), known)


@pytest.mark.parametrize(
    ("under", "usual", "blamed"),
    [
        (crashes(1, 1), crashes(0, DAY), False),  # once is nobody's fault
        (crashes(3, 10), crashes(0, 0), True),  # a version that ends it again and again
        (crashes(2, 10), crashes(0, 0), False),  # of a new Triton little is known
        (crashes(3, HOUR / 2), crashes(0, DAY), True),  # it never ended before
        (crashes(2, HOUR), crashes(0, DAY), False),
        (crashes(2, 18), crashes(1, 545), False),  # somebody killed it twice
        (crashes(4, 18), crashes(1, 545), True),
        (crashes(2, 60), crashes(10, 1500), False),  # it ends anyway
        (crashes(3, 60), crashes(10, 1500), False),
        (crashes(6, 60), crashes(10, 1500), True),  # but not as often
        (crashes(4, DAY), crashes(4, DAY), False),
    ],
)
def test_a_version_is_blamed_for_more_ends_than_there_are_without_it(
    under: CrashCount, usual: CrashCount, *, blamed: bool
) -> None:
    assert bool(reason(0, under, usual)) == blamed
    assert (crash_probability(under, usual) <= REFUSED_PROBABILITY) == blamed or under.count < 2


def test_a_second_end_in_a_row_while_it_is_loaded_is_the_versions() -> None:
    assert not reason(1, CrashCount(), crashes(100, 1))
    assert "in a row" in reason(2, CrashCount(), crashes(100, 1))


def test_what_is_long_ago_counts_less_and_the_rate_stays() -> None:
    seen = crashes(24, DAY).count_seconds(2 * HOUR)
    assert seen.seconds < DAY
    assert seen.count / seen.seconds == pytest.approx(24 / (DAY + 2 * HOUR))

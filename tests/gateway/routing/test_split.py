"""Callers stay on their arm, arms get their share, and a growing weight only adds callers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.routes import Split, position

SPACE = 2**64
keys = st.text(max_size=40)
percent = st.floats(min_value=0, max_value=100, allow_nan=False)


def test_a_position_never_changes() -> None:
    assert position("salt", "caller") == 8969124377456056644


def test_a_lone_surrogate_is_a_key_like_any_other() -> None:
    assert 0 <= position("salt", "\ud800") < SPACE


@given(keys, keys)
def test_positions_lie_in_the_space(salt: str, key: str) -> None:
    assert 0 <= position(salt, key) < SPACE


@given(percent, keys)
def test_every_caller_has_exactly_one_arm(weight: float, key: str) -> None:
    split = Split.of_weights("salt", [weight, 100 - weight])
    assert split.choose(key) in {0, 1}
    assert split.ends[-1] == SPACE


@given(percent, percent, keys)
def test_a_growing_weight_only_adds_callers(one: float, other: float, key: str) -> None:
    small, large = sorted((one, other))
    before = Split.of_weights("salt", [small, 100 - small]).choose(key)
    after = Split.of_weights("salt", [large, 100 - large]).choose(key)
    assert not (before == 0 and after != 0)


@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0, 50.0, 99.0, 100.0])
def test_a_hundred_thousand_callers_split_by_weight(weight: float) -> None:
    split = Split.of_weights("rollout-1", [weight, 100 - weight])
    count = 100_000
    hits = sum(split.choose(f"caller-{number}") == 0 for number in range(count))
    share = weight / 100
    # Five standard deviations: a fair split leaves these bounds once in two million runs; this
    # one is the same in every run.
    assert abs(hits - share * count) <= 5 * math.sqrt(count * share * (1 - share))


def test_another_salt_meets_other_callers() -> None:
    callers = [f"caller-{number}" for number in range(20_000)]
    one, other = (Split.of_weights(salt, [10, 90]) for salt in ("a", "b"))
    both = sum(one.choose(key) == 0 == other.choose(key) for key in callers)
    assert both < 0.02 * len(callers)  # independent draws of 10 % meet in 1 %


@pytest.mark.parametrize("weights", [[], [50], [-1, 101], [50, 60]])
def test_weights_that_are_no_percentages_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Split.of_weights("salt", weights)

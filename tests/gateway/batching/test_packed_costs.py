"""Costs by tokens: what was measured is believed, the best batch follows, answers correct it."""

import random
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.loading import CostPoint
from gateway.batching.packed_costs import MOST_TOKENS, LineModel, TokenCosts


def points(fixed: float, a_token: float) -> tuple[CostPoint, ...]:
    """What a warm-up measures, from milliseconds of a run and microseconds of a token."""
    sizes = [64 << step for step in range(9)]
    return tuple(
        CostPoint(bucket=size, batch=1, milliseconds=fixed + a_token * size / 1000)
        for size in sizes
    )


def costs(fixed: float, a_token: float) -> TokenCosts:
    found = TokenCosts(2048)
    found.seed("t", points(fixed, a_token))
    found.serve({"t": 1})
    return found


@given(st.floats(0.05, 50), st.floats(0.01, 100))
def test_a_measured_line_is_believed(fixed: float, a_token: float) -> None:
    found = costs(fixed, a_token)
    for size in (64, 1000, MOST_TOKENS):
        wanted = (fixed + a_token * size / 1000) / 1000
        assert found.seconds(size, 1) == pytest.approx(wanted, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, MOST_TOKENS), st.floats(0.001, 1e4)), max_size=8))
def test_whatever_was_measured_every_batch_costs_something_and_more_tokens_no_less(
    measured: list[tuple[int, float]],
) -> None:
    model = LineModel()
    model.seed(CostPoint(bucket=size, batch=1, milliseconds=ms) for size, ms in measured)
    assert 0 < model.seconds(1, 1) <= model.seconds(100, 1) <= model.seconds(MOST_TOKENS, 1) < inf


def test_a_batch_costs_by_its_tokens_whatever_their_rows() -> None:
    found = costs(0.2, 0.1)
    assert found.seconds(64, 10) == found.seconds(640, 1)


def test_a_gpu_gets_large_batches_and_a_cpu_small_ones() -> None:
    assert costs(0.7, 0.1).best_tokens == MOST_TOKENS
    assert costs(1.0, 40.0).best_tokens <= 1024


@pytest.mark.parametrize("share", [(0.5, 0.1), (0.2, 0.4)], ids=["fixed", "tokens"])
def test_answers_teach_the_fixed_time_and_that_of_tokens(share: tuple[float, float]) -> None:
    fixed, a_token = share
    found = costs(0.2, 0.1)
    for number in range(4000):
        size = 100 if number % 2 else 10_000
        found.observe("t", size, 1, (fixed + a_token * size / 1000) / 1000)
    for size in (100, 10_000):
        wanted = (fixed + a_token * size / 1000) / 1000
        assert found.seconds(size, 1) == pytest.approx(wanted, rel=0.1)


def test_the_first_answer_replaces_what_was_assumed() -> None:
    found = TokenCosts(2048)
    found.serve({"t": 1})
    found.observe("t", 100, 1, 0.004)
    assert found.seconds(100, 1) == pytest.approx(0.004)


def test_an_answer_that_can_not_be_teaches_nothing_and_a_pause_little() -> None:
    found = costs(0.2, 0.1)
    before = found.seconds(1000, 1)
    for seconds in (0.0, -1.0, inf, nan):
        found.observe("t", 1000, 1, seconds)
    assert found.seconds(1000, 1) == before
    found.observe("t", 1000, 1, 60.0)
    assert found.seconds(1000, 1) < 2 * before


def test_a_triton_that_is_gone_is_forgotten() -> None:
    found = costs(50.0, 1.0)
    found.keep(())
    assert found.seconds(1000, 1) < 0.01


# Of a gateway's loop: how long an iteration takes, and so how late an answer may be seen.
LAGS = st.floats(0, 0.001)


@given(st.floats(0.0001, 0.1), LAGS, st.floats(0.1, 10), st.floats(0.3, 1), st.integers(0, 1 << 16))
@settings(max_examples=40, deadline=None)
def test_costs_are_learnt_however_late_answers_are_seen(
    own: float, lag: float, wrong: float, alone: float, seed: int
) -> None:
    """An engine of 0.1 to 100 ms is known to a third, whatever was thought of it before.

    ``alone`` is the share of batches that were sent while none was on its way. The others begin
    when the one before them is seen to end, which is late too.
    """
    chance = random.Random(seed)
    found = costs(1000 * own * wrong, 0.0)
    for _ in range(2000):
        took = own * chance.uniform(0.9, 1.1) + lag * chance.random()
        more = 0.0
        if chance.random() > alone:
            took, more = max(1e-9, took - lag * chance.random()), lag
        found.observe("t", 1000, 1, took, less=lag, more=more)
    assert found.seconds(1000, 1) == pytest.approx(own, rel=0.33)


@given(st.floats(0.0001, 0.1), LAGS, LAGS, st.floats(0.0001, 0.1))
def test_what_is_within_its_bounds_teaches_nothing_and_nothing_is_learnt_beyond_them(
    seconds: float, less: float, more: float, before: float
) -> None:
    found = costs(1000 * before, 0.0)
    known = found.seconds(1000, 1)
    found.observe("t", 1000, 1, seconds, less=less, more=more)
    now = found.seconds(1000, 1)
    least, most = seconds - less, seconds + (more if less else 0.0)
    if least <= known <= most:
        assert now == pytest.approx(known, rel=1e-6)
    else:
        nearest = least if known < least else most
        assert min(known, nearest) * 0.999 <= now <= max(known, nearest) * 1.001

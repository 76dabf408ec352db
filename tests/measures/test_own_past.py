"""Strata of callers by their own past."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.windows import CALLER_BUCKETS
from measures.correlation import Floats
from measures.own_past import STRATA, UNKNOWN, CallersAnswers, OwnPast

LENGTHS = 2
# Bucket, length, slow or not.
answer = st.tuples(st.integers(0, 5), st.integers(0, LENGTHS - 1), st.booleans())


def answers(told: list[tuple[int, int, bool]]) -> CallersAnswers:
    bucket, length, slow = (
        np.array(part, dtype=np.intp) for part in (zip(*told, strict=True) if told else ((),) * 3)
    )
    return CallersAnswers((bucket,), length, slow.astype(np.float64), np.ones(len(told)))


def totals(told: list[tuple[int, int, bool]], nobodys: int = 0) -> tuple[Floats, Floats]:
    """Slow answers and all, a length; so many quick ones of nobody in each length besides."""
    slow, timed = np.zeros(LENGTHS), np.full(LENGTHS, float(nobodys))
    for _, length, is_slow in told:
        slow[length] += is_slow
        timed[length] += 1
    return slow, timed


def after(past: OwnPast, told: list[tuple[int, int, bool]], nobodys: int = 0) -> OwnPast:
    return past.after(answers(told), *totals(told, nobodys))


def parts(past: OwnPast) -> list[Floats]:
    return [np.asarray(getattr(past, name)) for name in OwnPast.PARTS]


def drawn(rates: Floats, each: int, rng: np.random.Generator) -> list[tuple[int, int, bool]]:
    """So many answers of each caller, whose chances to be slow these are."""
    slow = rng.random((len(rates), each)) < rates[:, None]
    return [(at, 0, bool(one)) for at, row in enumerate(slow) for one in row]


@given(st.lists(answer, max_size=30), st.lists(st.integers(0, STRATA - 1), min_size=6, max_size=6))
def test_every_answer_is_in_one_stratum(
    told: list[tuple[int, int, bool]], strata: list[int]
) -> None:
    of = np.zeros(CALLER_BUCKETS, dtype=np.intp)
    of[:6] = strata
    slow, timed = totals(told, nobodys=3)
    found = answers(told).by_stratum(of, slow, timed)
    for counts, every in zip(found, (slow, timed), strict=True):
        assert counts.min() >= 0
        assert counts.sum(axis=0) == pytest.approx(every)
    for stratum in range(1, STRATA):
        mine = [each for each in told if strata[each[0]] == stratum]
        assert found[1][stratum].sum() == len(mine)
        assert found[0][stratum].sum() == sum(is_slow for _, _, is_slow in mine)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(answer, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_a_windows_answers_changes_nothing(
    told: list[tuple[int, int, bool]], random: np.random.Generator
) -> None:
    past = after(OwnPast.begin(), [(0, 0, True), (1, 0, False)] * 20, nobodys=5)
    mixed = list(told)
    random.shuffle(mixed)
    for one, other in zip(parts(after(past, told)), parts(after(past, mixed)), strict=True):
        assert one == pytest.approx(other)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.lists(answer, max_size=12), max_size=5))
def test_rollouts_side_by_side_learn_what_each_learns(
    windows: list[list[tuple[int, int, bool]]],
) -> None:
    other = [(2, 1, True)]
    alone, both = OwnPast.begin(), OwnPast.begin((2,))
    for told in windows:
        alone = after(alone, told, 4)
        of = [answers(each) for each in (other, told)]
        row = np.repeat([0, 1], [len(each.events) for each in of])
        joined = CallersAnswers(
            (row, np.concatenate([each.at[0] for each in of])),
            np.concatenate([each.length for each in of]),
            np.concatenate([each.events for each in of]),
            np.concatenate([each.requests for each in of]),
        )
        every = [totals(each, 4) for each in (other, told)]
        both = both.after(joined, *(np.stack(part) for part in zip(*every, strict=True)))
    for one, two in zip(parts(alone), parts(both), strict=True):
        assert one == pytest.approx(two[1])
    assert (alone.strata == both.strata[1]).all()


def test_callers_are_in_one_stratum_with_those_as_slow_as_they_were() -> None:
    rng = np.random.default_rng(1)
    rates = np.array([0.03] * 18 + [0.2] * 2)
    past = OwnPast.begin()
    for _ in range(50):
        past = after(past, drawn(rates, 20, rng))
    quick, slow = past.strata[:18], past.strata[18:20]
    assert slow.min() >= quick.max() + 3
    assert (past.strata[20:] == UNKNOWN).all()


def test_a_few_answers_do_not_make_a_slow_caller() -> None:
    quick = [(0, 0, False)] * 190 + [(1, 0, True)] * 10
    usual = after(OwnPast.begin(), quick + [(2, 0, False)] * 5).strata[2]
    unlucky = after(OwnPast.begin(), quick + [(2, 0, True)] + [(2, 0, False)] * 4).strata[2]
    assert usual <= unlucky <= usual + 1


@given(st.integers(0, 20), st.integers(0, 20))
def test_strata_grow_with_slow_answers(one: int, other: int) -> None:
    told = [(0, 0, at < one) for at in range(20)] + [(1, 0, at < other) for at in range(20)]
    strata = after(OwnPast.begin(), told, nobodys=100).strata
    if one <= other:
        assert strata[0] <= strata[1]


@pytest.mark.slow
def test_callers_who_are_alike_set_no_arms_apart_and_others_do() -> None:
    rng = np.random.default_rng(2)
    beyond = []
    for _ in range(40):
        past = OwnPast.begin()
        for _ in range(20):
            past = after(past, drawn(np.full(30, 0.05), 20, rng))
        beyond.append(float((past.above**2).sum() / past.by_chance))
    assert np.mean(beyond) == pytest.approx(1.0, abs=0.1)
    unlike = OwnPast.begin()
    for _ in range(20):  # who is slow changes, which no stratum knows before
        unlike = after(unlike, drawn(rng.permutation([0.5] * 3 + [0.0] * 27), 20, rng))
    assert float((unlike.above**2).sum() / unlike.by_chance) > 2
    assert unlike.deviation(0.05) > unlike.deviation(0.5) > 0
    assert unlike.deviation(0.0) == unlike.deviation(1.0) == 0


def test_what_the_past_explains_sets_no_arms_apart() -> None:
    """The deviation of lasting differences is what was not known of them at first."""
    rng = np.random.default_rng(3)
    rates = np.array([0.02] * 27 + [0.4] * 3)
    past = OwnPast.begin()
    for _ in range(10):
        past = after(past, drawn(rates, 20, rng))
    learnt = past.above
    for _ in range(100):
        past = after(past, drawn(rates, 20, rng))
    whole = ((past.above**2).sum(), ((past.events - past.expected) ** 2).sum())
    assert whole[0] < whole[1] / 20
    assert np.abs(past.above - learnt).max() < 0.1 * np.abs(past.events - past.expected).max()


@given(st.lists(answer, max_size=30))
def test_it_is_the_same_after_it_was_stored(told: list[tuple[int, int, bool]]) -> None:
    past = after(after(OwnPast.begin(), told, nobodys=9), told, nobodys=1)
    again = OwnPast.of_json(json.loads(json.dumps(past.to_json())))
    for one, other in zip(parts(past), parts(again), strict=True):
        assert (one == other).all()


def test_rare_events_are_expected_of_every_caller_however_little_a_window_expects() -> None:
    past = OwnPast.begin()
    one = [(at, 0, False) for at in range(4)]
    for _ in range(500):
        past = after(past, [*one, (5, 0, True)], nobodys=5000)
    assert past.expected[0] == pytest.approx(500 / 5005, rel=1e-3)
    assert past.strata[0] > UNKNOWN


def test_the_fewer_callers_lack_a_past_the_further_they_may_set_arms_apart() -> None:
    past = after(OwnPast.begin(), [(1, 0, True), (2, 0, False)])

    def newcomers(new: int, known: int, nobodys: int = 0) -> float:
        arm = answers([(1, 0, False)] * known + [(9, 0, False)] * new)
        requests = np.zeros(STRATA)
        requests[UNKNOWN], requests[UNKNOWN + 1] = new + nobodys, known
        return float(past.newcomers([arm, arm], 2 * requests))

    assert newcomers(0, 20) == newcomers(0, 20, 10) == 0
    assert newcomers(20, 0) == pytest.approx(1.0)
    assert newcomers(5, 15) == pytest.approx(2.0)
    # Nobody's requests, of which each falls to an arm by itself, bring the arms together.
    assert newcomers(5, 15, 15) == pytest.approx(0.5 * 1.75)


def test_callers_together_are_further_apart_than_within_strata() -> None:
    rng = np.random.default_rng(3)
    past = OwnPast.begin()
    for _ in range(40):
        past = after(past, drawn(np.array([0.02] * 27 + [0.4] * 3), 20, rng))
    assert past.deviation_of_all(0.1) > 2 * past.deviation(0.1)
    assert past.deviation_of_all(0.0) == 0

"""The other judges of the comparison decide as their sources say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.findings import needed, share
from bench.rollouts import __main__ as program
from bench.rollouts import rivals
from bench.rollouts.rivals import ERRORS, LABEL, SECONDS, Seen, Sums
from bench.rollouts.traffic import Harm, Places, World


def sums(n: float, means: np.ndarray, variances: np.ndarray) -> Sums:
    """Windows of ``n`` requests with these means ``[rollouts, windows, metrics]``."""
    every = np.full(means.shape, n)
    return Sums(every, n * means, n * (variances + means**2))


def test_the_interval_is_that_of_kayentas_own_test() -> None:
    # MannWhitneySuite: control 1 to 4, experiment 10 to 40, a confidence of 0.95.
    found = rivals.hodges_lehmann(
        np.array([10.0, 20.0, 30.0, 40.0]), np.array([1.0, 2.0, 3.0, 4.0]), 0.95
    )
    assert found == pytest.approx((6.0, 39.0, 22.5))


@given(
    one=st.lists(st.integers(0, 20), min_size=2, max_size=30),
    other=st.lists(st.integers(0, 20), min_size=2, max_size=30),
    moved=st.integers(-50, 50),
)
def test_an_interval_moves_with_its_sample_and_holds_the_estimate(
    one: list[int], other: list[int], moved: int
) -> None:
    first, second = np.array(one, float), np.array(other, float)
    lower, upper, estimate = rivals.hodges_lehmann(first, second, 0.98)
    assert lower <= estimate <= upper
    shifted = rivals.hodges_lehmann(first + moved, second, 0.98)
    assert shifted == pytest.approx((lower + moved, upper + moved, estimate + moved))
    back = rivals.hodges_lehmann(second, first, 0.98)
    assert back == pytest.approx((-upper, -lower, -estimate))


def test_a_metric_fails_in_its_direction_alone_and_never_without_a_difference() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.normal(1.0, 0.1, 60), rng.normal(1.3, 0.1, 60)
    for metric in (ERRORS, SECONDS, LABEL):
        assert rivals.is_metric_failed(high, low, metric)
        assert rivals.is_metric_failed(low, high, metric) == (metric == LABEL)
        assert not rivals.is_metric_failed(np.full(60, 0.2), np.full(60, 0.2), metric)
        assert not rivals.is_metric_failed(np.full(60, np.nan), high, metric)
        with_holes = np.where(np.arange(60) % 3 == 0, np.nan, high)
        assert rivals.is_metric_failed(with_holes, low, metric)


def test_kayenta_fails_at_the_end_of_the_hour_whose_analysis_finds_a_metric() -> None:
    rng = np.random.default_rng(2)
    base = 0.5 + 0.02 * rng.normal(size=(3, rivals.WINDOWS, 3))
    other = 0.5 + 0.02 * rng.normal(size=(3, rivals.WINDOWS, 3))
    base[1, :, ERRORS] += 0.2  # from the beginning
    base[2, 720:, SECONDS] += 0.2  # in the last hour, so that no analysis before can show it
    flat = np.zeros_like(base)
    failed, passed = rivals.kayenta(sums(100.0, base, flat), sums(100.0, other, flat))
    assert failed[1:].tolist() == [359.0, 1079.0]
    assert np.isinf(passed[1:]).all()
    assert np.isfinite(failed[0]) != np.isfinite(passed[0])


def test_the_msprt_is_the_closed_form_of_its_paper() -> None:
    # Johari and others (2017): of n pairs, V the sum of both variances, a mixture of variance t.
    n, p, q, t = 400.0, 0.06, 0.01, rivals._MIXTURE[ERRORS] ** 2
    v = p * (1 - p) + q * (1 - q)
    log = 0.5 * np.log(v / (v + n * t)) + n**2 * t * (p - q) ** 2 / (2 * v * (v + n * t))
    means = np.zeros((2, 1, 3))
    means[0, 0], means[1, 0] = (p, 1.0, 0.5), (q, 1.0, 0.5)
    variances = means * (1 - means)
    candidate, stable = (sums(n, means[at : at + 1], variances[at : at + 1]) for at in range(2))
    for alpha, told in ((np.exp(-log * 0.999), True), (np.exp(-log * 1.001), False)):
        assert np.isfinite(rivals.msprt(candidate, stable, float(alpha))).tolist() == [told]
    assert np.isinf(rivals.msprt(stable, candidate)).all()  # fewer errors fail nobody


def test_the_msprt_says_nothing_of_few_requests() -> None:
    means = np.tile([1.0, 1.0, 0.5], (1, 3, 1))
    few = sums(30.0, means, 0.1 * means)
    assert np.isinf(rivals.msprt(few, sums(30.0, 0.0 * means, 0.1 * means))).all()


def test_requests_are_the_candidates_until_the_verdict() -> None:
    flat = np.zeros((2, 4, 3))
    arm = sums(10.0, flat, flat)
    seen = Seen(arm, arm, np.zeros(2), np.zeros(2))
    assert seen.requests(np.array([1.0, np.inf])).tolist() == [20.0, np.inf]


@pytest.mark.slow
def test_all_judges_see_the_same_windows_and_find_a_gross_harm() -> None:
    rng = np.random.default_rng(3)
    places = Places.of([World(1500.0, 0.0, 0.0)] * 2, rng)
    seen = rivals.walked(places, 2, rng, Harm("made up", fails=0.2), length=360)
    for judge, (failed, passed) in rivals.verdicts(seen).items():
        assert np.isfinite(failed).all(), judge
        assert np.isinf(passed).all(), judge
    whole_rates = seen.candidate.total.sum(axis=1) / seen.candidate.n.sum(axis=1)
    stable = seen.stable.total.sum(axis=1) / seen.stable.n.sum(axis=1)
    assert whole_rates[:, ERRORS] == pytest.approx(0.2, abs=0.03)
    assert whole_rates[:, SECONDS] == pytest.approx(stable[:, SECONDS], rel=0.02)


def test_harmful_versions_have_a_table_of_their_own() -> None:
    rows = [
        share("a world", "Kayenta: wrongly failed", np.array([True, False])),
        needed("a harm", "mSPRT: requests", np.array([7.0])),
    ]
    made = program.tables_of("rivals", rows)
    assert [text.splitlines()[-1].split(" | ")[0] for text in made.values()] == [
        "| a world",
        "| a harm",
    ]

"""Traffic whose requests resemble one another is measured for what it is, and no other."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.correlation import (
    ASSUMED,
    CAUTION,
    ENOUGH_WINDOWS,
    Floats,
    IntraclassCorrelation,
    RequestTexts,
    design_effect,
)


def learnt(events: Sequence[Sequence[float]], requests: Sequence[float]) -> IntraclassCorrelation:
    """After these windows, each with the counts of some events."""
    found = IntraclassCorrelation.begin(len(events[0]))
    for counts, n in zip(events, requests, strict=True):
        found = found.after(np.array(counts, dtype=float), np.full(len(counts), float(n)))
    return found


def test_a_request_alone_counts_as_one() -> None:
    assert design_effect(np.array([1.0, 0.0]), 0.5).tolist() == [1, 1]
    assert float(design_effect(np.array(101.0), 0.01)) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_a_correlation_is_always_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    found = learnt([[min(pair)] for pair in pairs], [n for _, n in pairs])
    assert 0 <= found.each[0] <= 1
    assert 0 <= found.shared <= 1


def test_the_arithmetic() -> None:
    # p = 0.3, rates 0.2 and 0.4 of 50 in turn: each difference squared is 0.04, over
    # 0.21 x 2/50 = 0.0084: X = 4.7619. rho = 1.5 (X - 1) / 49.
    events = [[10, 40], [20, 30]] * 5
    by_hand = 1.5 * (0.04 / 0.0084 - 1) / 49
    found = learnt(events, [50] * 10)
    assert found.each == pytest.approx([by_hand, by_hand])
    assert found.shared == pytest.approx(by_hand)  # a histogram of two classes is a proportion
    with_an_empty_class = learnt([[*counts, 0] for counts in events], [50] * 10)
    assert with_an_empty_class.shared == pytest.approx(by_hand)
    assert with_an_empty_class.each[2] == ASSUMED


def test_too_few_windows_are_taken_for_what_callers_usually_cause() -> None:
    few = learnt([[10], [40]] * 4 + [[0]], [50] * 8 + [0])
    assert (few.windows[0], ENOUGH_WINDOWS) == (8, 10)
    assert (few.each[0], few.shared) == (ASSUMED, ASSUMED)


def test_events_that_stable_never_or_hardly_had_are_no_less_correlated_than_is_usual() -> None:
    """Nor are those that nothing else ever was."""
    windows = [[0, 50, 9 * (at == 3), 1 * (at < 9)] for at in range(30)]
    found = learnt(windows, [50] * 30)
    assert found.each[:2].tolist() == [ASSUMED, ASSUMED]
    assert found.each[2] > ASSUMED  # they did clump, as far as can be told
    assert found.each[3] == ASSUMED
    assert learnt([[0, 50]] * 30, [50] * 30).shared == ASSUMED


def test_ten_events_and_ten_others_are_enough_to_go_by() -> None:
    spread = learnt([[1 * (at % 3 == 0)] for at in range(30)], [50] * 30)
    assert spread.events.tolist() == [10]
    assert spread.each.tolist() == [0]


def test_a_slow_trend_is_no_correlation() -> None:
    assert learnt([[1000 * rate] for rate in np.linspace(0.05, 0.15, 200)], [1000] * 200).each == 0


@pytest.mark.parametrize("rho", [0.0, 0.005, 0.02])
def test_a_correlation_is_found_again(rho: float) -> None:
    rng = np.random.default_rng(11)
    n, p = 500, 0.1
    rates = np.full(2000, p) if rho == 0 else rng.beta(p / rho - p, (1 - p) / rho - 1 + p, 2000)
    found = learnt(rng.binomial(n, rates)[:, None].tolist(), [n] * 2000).each[0] / CAUTION
    assert found == pytest.approx(rho, abs=0.1 * rho + 0.0005)


def test_windows_without_requests_change_nothing_and_a_new_event_begins_again() -> None:
    before = learnt([[10, 1], [20, 2]] * 6, [50] * 12)
    after = before.after(np.zeros(2), np.zeros(2))
    assert after.to_json() == before.to_json()
    wider = before.widen(1)
    assert wider.each.tolist() == [*before.each, ASSUMED]
    stored = json.loads(json.dumps(wider.to_json()))
    assert IntraclassCorrelation.of_json(stored).to_json() == stored


def texts_of(requests: Floats) -> RequestTexts:
    """After a window of these requests, ``[requests, classes]`` texts each."""
    others = requests.sum(axis=1, keepdims=True) - 1
    return RequestTexts.begin(requests.shape[1]).after(
        requests.sum(axis=0),
        (requests * others).sum(axis=0),
        (requests * (requests - 1)).sum(axis=0),
    )


def drawn(texts: int, alike: float, share: float = 0.4, requests: int = 4000) -> Floats:
    """Requests of which a part has one label for all of its texts."""
    rng = np.random.default_rng(5)
    second = np.where(
        rng.random(requests) < alike,
        texts * rng.binomial(1, share, requests),
        rng.binomial(texts, share, requests),
    )
    return np.stack([texts - second, second], axis=1).astype(np.float64)


def test_the_part_of_a_request_is_the_variance_of_its_count_over_that_of_single_texts() -> None:
    # Requests of 3 and 1 texts, ten of each: (3, 0), (1, 2) and (0, 1), (1, 0); p = 5/8.
    requests = np.array([[3, 0], [1, 2], [0, 1], [1, 0]] * 10, dtype=float)
    p = 5 / 8
    squares = 10 * sum(
        (events - p * size) ** 2 for events, size in ((3, 3), (1, 3), (0, 1), (1, 1))
    )
    by_hand = squares / (80 * p * (1 - p))
    found = texts_of(requests)
    assert found.each == pytest.approx([by_hand, by_hand])
    assert float(found.shared) == pytest.approx(by_hand)  # two classes are a proportion
    most = (3 * 3 * 20 + 20) / 80
    assert found.effect == pytest.approx([min(1 + CAUTION * (by_hand - 1), most)] * 2)


@pytest.mark.parametrize(("texts", "alike"), [(1, 0.0), (16, 0.0), (16, 0.5), (8, 0.25), (8, 1.0)])
def test_how_much_texts_of_a_request_resemble_one_another_is_found_again(
    texts: int, alike: float
) -> None:
    found = texts_of(drawn(texts, alike))
    assert found.each == pytest.approx(1 + (texts - 1) * alike, rel=0.1)
    assert found.shared == pytest.approx(1 + (texts - 1) * alike, rel=0.1)


@given(
    st.lists(
        st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), min_size=1, max_size=60
    )
)
def test_the_part_of_a_request_is_between_that_of_single_texts_and_of_texts_all_alike(
    requests: list[list[int]],
) -> None:
    table = np.array(requests, dtype=float)
    found = texts_of(table)
    sizes = table.sum(axis=1)
    most = (sizes**2).sum() / sizes.sum() + 1e-9
    for each, careful in ((found.each, found.effect), (found.shared, found.shared_effect)):
        assert (each >= 1).all()
        assert (careful >= each - 1e-9).all()
        assert (careful <= most).all()


def test_a_class_of_which_too_little_is_known_is_taken_to_be_alike_in_a_request() -> None:
    requests = np.pad(drawn(16, 0.0), ((0, 0), (0, 1)))
    assert texts_of(requests).each == pytest.approx([1, 1, 16], rel=0.1)
    assert texts_of(requests[:5]).effect == pytest.approx([16, 16, 16])
    assert float(texts_of(requests[:5]).shared) == 16


def test_windows_that_tell_no_neighbours_are_of_single_texts() -> None:
    zero = np.zeros(2)
    older = RequestTexts.begin(2).after(np.array([300.0, 500.0]), zero, zero)
    assert older.effect.tolist() == [1, 1]
    assert older.shared_effect == 1
    stored = json.loads(json.dumps(older.to_json()))
    assert RequestTexts.of_json(stored).to_json() == stored


def test_what_requests_make_of_a_windows_scatter_is_no_correlation_of_windows() -> None:
    rng = np.random.default_rng(3)
    counts = [[16.0 * rng.binomial(100, 0.4)] for _ in range(300)]
    found = learnt(counts, [1600] * 300)
    assert 13 < 1 + 1599 * found.each[0] / CAUTION < 19  # all of it
    assert found.subtract(16.0)[0] == pytest.approx(0.0, abs=0.002)
    both = learnt([[*count, 1600 - count[0]] for count in counts], [1600] * 300)
    assert both.shared_beyond(16.0) == pytest.approx(0.0, abs=0.002)


def test_the_part_of_a_request_is_the_same_in_a_small_arm_and_the_part_of_a_window_is_not() -> None:
    effects = design_effect(np.array([10.0, 100.0, 2000.0]), 0.001, 8.5)
    assert effects == pytest.approx([8.509, 8.599, 10.499])
    assert design_effect(np.array([3.0]), 0.0, 8.5).tolist() == [3]

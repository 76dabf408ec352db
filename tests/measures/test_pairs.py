"""A test by pairs bets on what changed between two answers to one request."""

import numpy as np
import pytest

from measures.correlation import Floats
from measures.evalue import Tolerance
from measures.pairs import BETS, Pairs, bet_to_pass
from measures.proportions import ALTERNATIVES

FAIL, PASS = (Tolerance(np.array([a, a]), np.array([1.0, 1.0])) for a in (0.02, 0.05))


def table(same: float, gained: float, lost: float) -> Floats:
    """Of two classes, seen from the second."""
    return np.array([[same / 2, gained], [lost, same / 2]])


def test_there_is_a_bet_for_each_place_of_the_alternatives() -> None:
    assert len(BETS) == ALTERNATIVES
    assert BETS.max() < 1


def test_a_table_is_counted_from_each_class_and_its_falling() -> None:
    pairs = Pairs.of(np.array([[5.0, 2.0, 1.0], [3.0, 7.0, 0.0], [0.0, 4.0, 9.0]]), 6)
    assert pairs.both[:3].tolist() == [5, 7, 9]
    assert pairs.gained[:3].tolist() == [3, 6, 1]
    assert pairs.lost[:3].tolist() == [3, 3, 4]
    assert (pairs.count == 31).all()
    assert pairs.gained[3:].tolist() == pairs.lost[:3].tolist()
    assert pairs.arms[0].tolist()[:3] == [8, 13, 10]


def test_an_event_is_counted_by_whether_each_version_has_it() -> None:
    pairs = Pairs.of_event(np.array([[90.0, 4.0], [3.0, 2.0]]))
    found = (pairs.neither, pairs.gained, pairs.lost, pairs.both)
    assert [part.tolist() for part in found] == [[90], [4], [3], [2]]
    assert pairs.arms.tolist() == [[6], [99], [5], [99]]


@pytest.mark.parametrize("relative", [1.0, 1.25])
def test_no_pair_on_the_line_is_expected_to_win(relative: float) -> None:
    """The mean of one pair's e-value, over pairs whose share of y is the line's, is 1."""
    a, stable = 0.02, 0.3
    line = Tolerance(np.array([a, a]), np.array([relative, relative]))
    lost = 0.1
    gained = a + relative * stable - (stable - lost)
    shares = {"both": stable - lost, "gained": gained, "lost": lost}
    shares["neither"] = 1 - sum(shares.values())
    mean = np.zeros((2, len(BETS)))
    for where, share in shares.items():
        one = {name: np.full(2, float(name == where)) for name in shares}
        mean += share * np.exp(Pairs(**one).log_to_fail(line, 0.0))
    assert mean == pytest.approx(np.ones_like(mean))


def test_equal_answers_pass_after_few_pairs_and_a_fault_fails() -> None:
    line = bet_to_pass(None, PASS)
    same = Pairs.of(table(150.0, 0.0, 0.0), 2)
    assert (same.log_to_pass(PASS, line, 0.0) > np.log(20)).all()
    fault = Pairs.of(table(900.0, 80.0, 20.0), 2)
    assert fault.log_to_fail(FAIL, 0.0).max() > np.log(400)
    assert fault.log_to_pass(PASS, line, 0.0)[1] < 0


def test_the_bet_shrinks_with_what_changes_by_itself_and_vanishes_beyond_the_line() -> None:
    quiet, noisy, worse = (
        bet_to_pass(Pairs.of(table(*counts), 2).add(None), PASS)[1]
        for counts in ((1000.0, 5.0, 5.0), (800.0, 100.0, 100.0), (800.0, 150.0, 50.0))
    )
    assert quiet > noisy > worse == 0


def test_failures_of_stables_that_pass_allow_as_many_more_and_more_is_bet_on_rare_ones() -> None:
    line = Tolerance(np.array([0.01]), np.array([1.25]))
    bets = [
        bet_to_pass(Pairs.of_event(np.array(table)).add(None), line, 0.75)[0]
        for table in ([[2000.0, 10.0], [10.0, 0.0]], [[2000.0, 10.0], [0.0, 0.0]])
    ]
    assert bets[0] > 0
    rare, usual = (bet_to_pass(None, line, most)[0] for most in (0.75, 0.5))
    assert rare == pytest.approx(1.5 * usual)
    none = Pairs.of_event(np.array([[450.0, 0.0], [0.0, 0.0]]))
    assert none.log_to_pass(line, np.array([rare]), 0.0)[0] > np.log(20)


def test_pairs_that_depend_on_one_another_win_less() -> None:
    pairs = Pairs.of(table(900.0, 80.0, 20.0), 2)
    alone, together = pairs.log_to_fail(FAIL, 0.0), pairs.log_to_fail(FAIL, 0.01)
    assert together == pytest.approx(alone / 10.99)

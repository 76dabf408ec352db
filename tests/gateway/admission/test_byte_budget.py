"""What callers hold is bounded, shared fairly, and given back whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.byte_budget import ByteBudget, Holding
from gateway.errors import OverloadedError

MOST = 1000


def holding(budget: ByteBudget, endpoint: str = "e", key: str | None = None) -> Holding:
    made = Holding(budget)
    made.belongs(endpoint, key)
    return made


def test_a_request_holds_what_it_last_said() -> None:
    budget = ByteBudget(MOST)
    one = holding(budget, key="k")
    one.resize(100)
    one.resize(40)
    assert (budget.held, budget.of_endpoint("e"), budget.of_key("k")) == (40, 40, 40)
    one.end()
    assert (budget.held, budget.of_endpoint("e"), budget.of_key("k")) == (0, 0, 0)


def test_what_has_no_room_is_refused_and_changes_nothing() -> None:
    budget = ByteBudget(MOST)
    one, other = holding(budget, "a"), holding(budget, "b")
    one.resize(900)
    with pytest.raises(OverloadedError, match="too much memory") as refused:
        other.resize(101)
    assert refused.value.retry_after_seconds
    assert (other.size, budget.held) == (0, 900)
    other.resize(100)


def test_one_request_may_fill_what_is_free_and_many_of_one_endpoint_or_key_not() -> None:
    budget = ByteBudget(MOST)
    holding(budget).resize(MOST)
    for names in ((("e", "k1"), ("e", "k2")), (("e1", "k"), ("e2", "k"))):
        budget = ByteBudget(MOST)
        holding(budget, *names[0]).resize(750)
        second = holding(budget, *names[1])
        with pytest.raises(OverloadedError):
            second.resize(251)
        second.resize(240)
        third = holding(budget, *names[0])
        with pytest.raises(OverloadedError):
            third.resize(10)  # there is room, for others
        holding(budget, "other", "another").resize(10)


def test_a_request_that_gets_a_name_takes_its_bytes_with_it() -> None:
    budget = ByteBudget(MOST)
    made = Holding(budget)
    made.resize(70)
    assert (budget.held, budget.of_endpoint("e")) == (70, 0)
    made.belongs("e", "k")
    assert (budget.held, budget.of_endpoint("e"), budget.of_key("k")) == (70, 70, 70)


def test_who_waits_is_told_of_room() -> None:
    budget = ByteBudget(MOST)
    told: list[bool] = []
    budget.on_release.append(lambda: told.append(budget.fits(MOST)))
    one = holding(budget)
    one.resize(10)
    one.end()
    assert told == [True]


_names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(st.integers(0, 5), _names, _names, st.integers(0, 1200)), max_size=60))
def test_the_bound_holds_whatever_happens_and_all_comes_back(
    steps: list[tuple[int, str, str, int]],
) -> None:
    budget = ByteBudget(MOST)
    requests = [Holding(budget) for _ in range(6)]
    for which, endpoint, key, size in steps:
        try:
            requests[which].belongs(endpoint, key)
            requests[which].resize(size)
        except OverloadedError:
            pass
        assert budget.held == sum(each.size for each in requests) <= MOST
    for each in requests:
        each.end()
    assert budget.held == 0
    assert all(budget.of_endpoint(name) == budget.of_key(name) == 0 for name in "abc")

"""No endpoint takes the room of others, and what has none is refused at once."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.token_budget import TokenBudget
from gateway.errors import OverloadedError, TooLargeError


def test_an_endpoint_has_at_most_its_own_tokens_in_flight() -> None:
    budget = TokenBudget(1000)
    budget.reserve("a", 60, 100)
    with pytest.raises(OverloadedError) as refused:
        budget.reserve("a", 41, 100)
    assert refused.value.retry_after_seconds
    budget.reserve("a", 40, 100)
    assert budget.of("a") == 100


def test_a_request_that_never_fits_is_too_large_not_too_early() -> None:
    with pytest.raises(TooLargeError):
        TokenBudget(1000).reserve("a", 101, 100)
    with pytest.raises(TooLargeError):
        TokenBudget(50).reserve("a", 60, 100)


def test_a_busy_endpoint_leaves_room_for_a_quiet_one() -> None:
    budget = TokenBudget(1000)
    with suppress(OverloadedError):
        while True:
            budget.reserve("busy", 1, 10_000)
    assert 700 < budget.of("busy") < 900
    budget.reserve("quiet", 100, 10_000)


def test_a_newcomer_is_judged_by_the_usual_length_and_by_those_before_it() -> None:
    budget = TokenBudget(10_000)
    for _ in range(4):
        budget.reserve("a", 100, 1000)
    for ahead in range(4):
        budget.check_arrival("a", ahead, 1000)
    with pytest.raises(OverloadedError):
        budget.check_arrival("a", 4, 1000)  # 400 and 5 times 100 are over 850
    budget.check_arrival("quiet", 0, 1000)


def test_nothing_in_flight_lets_the_next_one_in_however_long_the_last_was() -> None:
    budget = TokenBudget(1000)
    budget.reserve("a", 990, 1000)
    with pytest.raises(OverloadedError):
        budget.check_arrival("a", 0, 1000)
    budget.release("a", 990)
    budget.check_arrival("a", 0, 1000)
    budget.check_estimate("a", 5000.0, 1000)


def test_an_estimate_keeps_a_margin() -> None:
    budget = TokenBudget(10_000)
    budget.reserve("a", 500, 1000)
    budget.check_estimate("a", 450.0, 1000)
    with pytest.raises(OverloadedError):
        budget.check_estimate("a", 480.0, 1000)


def test_two_busy_endpoints_end_with_equal_shares() -> None:
    budget = TokenBudget(900)
    full: set[str] = set()
    while len(full) < 2:
        for name in ("a", "b"):
            try:
                budget.reserve(name, 1, 10_000)
            except OverloadedError:
                full.add(name)
    assert abs(budget.of("a") - budget.of("b")) <= 2
    assert sum(budget.by_endpoint().values()) <= 900


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.booleans()), max_size=80))
def test_tokens_are_never_lost_nor_made(steps: list[tuple[str, int, bool]]) -> None:
    budget = TokenBudget(1000)
    held: list[tuple[str, int]] = []
    for name, tokens, release in steps:
        if release and held:
            budget.release(*held.pop())
            continue
        try:
            budget.reserve(name, tokens, 500)
        except (OverloadedError, TooLargeError):
            continue
        held.append((name, tokens))
    used = sum(tokens for _, tokens in held)
    assert sum(budget.by_endpoint().values()) == used <= 1000
    for name, tokens in held:
        budget.release(name, tokens)
    assert budget.by_endpoint() == {}

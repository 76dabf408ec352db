"""No caller gets more than its rate for longer than a burst, and none is kept waiting too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RateLimitedError
from gateway.rates import BURST_SECONDS, RateLimits


def allowed(
    limits: RateLimits, now: float, *, caller: str | None = "team", rate: float = 5
) -> bool:
    try:
        limits.check(caller, "sentiment", rate, now)
    except RateLimitedError:
        return False
    return True


def test_a_burst_of_one_second_is_taken_and_then_the_rate_holds() -> None:
    limits = RateLimits()
    assert [allowed(limits, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [allowed(limits, 0.2) for _ in range(2)] == [True, False]
    assert [allowed(limits, 100.0) for _ in range(6)] == [True] * 5 + [False]


def test_a_refusal_says_when_to_come_back_and_that_is_true() -> None:
    limits = RateLimits()
    assert allowed(limits, 0.0, rate=0.1)
    with pytest.raises(RateLimitedError) as refused:
        limits.check("team", "sentiment", 0.1, 4.0)
    assert refused.value.retry_after_seconds == pytest.approx(6.0)
    assert not allowed(limits, 9.9, rate=0.1)
    assert allowed(limits, 10.0, rate=0.1)


def test_callers_and_endpoints_have_buckets_of_their_own() -> None:
    limits = RateLimits()
    for caller in ("a", "b", None):
        for endpoint in ("x", "y"):
            limits.check(caller, endpoint, 1.0, 0.0)
            with pytest.raises(RateLimitedError):
                limits.check(caller, endpoint, 1.0, 0.0)


def test_a_keys_own_limit_goes_before_the_endpoints() -> None:
    limits = RateLimits({"slow": 1.0, "free": None}.get)
    assert allowed(limits, 0.0, caller="slow")
    assert not allowed(limits, 0.0, caller="slow")
    assert [allowed(limits, 0.0, caller="free") for _ in range(6)] == [True] * 5 + [False]
    limits.check("free", "unlimited", None, 0.0)


def test_no_limit_keeps_no_bucket() -> None:
    limits = RateLimits()
    limits.check("team", "sentiment", None, 0.0)
    assert len(limits) == 0


def test_the_number_of_buckets_is_bounded_and_the_idle_go_first() -> None:
    limits = RateLimits(max_buckets=2)
    for caller in ("a", "b", "a", "c"):
        limits.check(caller, "sentiment", 5, 0.0)
    assert len(limits) == 2
    assert [allowed(limits, 0.0, caller="a") for _ in range(4)] == [True] * 3 + [False]


@given(
    rate=st.floats(0.1, 200),
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_no_span_of_time_holds_more_than_the_rate_and_one_burst(
    rate: float, gaps: list[float]
) -> None:
    limits, now, taken = RateLimits(), 0.0, []
    for gap in gaps:
        now += gap
        if allowed(limits, now, rate=rate):
            taken.append(now)
    burst = max(BURST_SECONDS, 1 / rate)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= (taken[last] - start + burst) * rate + 1e-6

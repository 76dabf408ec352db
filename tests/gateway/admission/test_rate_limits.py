"""No caller gets more than its rate for longer than a burst, and none is kept waiting too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.rate_limits import BURST_SECONDS, FEEDBACK, UNNAMED, RateLimits
from gateway.errors import RateLimitedError


def allowed(
    limits: RateLimits,
    now: float,
    *,
    caller: str | None = "team",
    endpoint: str = "sentiment",
    rate: float | None = 5,
) -> bool:
    try:
        limits.check(caller, endpoint, rate, now)
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


def test_a_keys_own_limit_goes_before_the_endpoints() -> None:
    limits = RateLimits({"slow": 1.0, "free": None}.get)
    assert allowed(limits, 0.0, caller="slow")
    assert not allowed(limits, 0.0, caller="slow")
    assert [allowed(limits, 0.0, caller="free") for _ in range(6)] == [True] * 5 + [False]
    limits.check("free", "unlimited", None, 0.0)


def test_a_keys_own_limit_is_one_for_all_endpoints() -> None:
    limits = RateLimits({"team": 10.0}.get)
    taken = 0
    for tick in range(600):  # a minute, 50 requests a second
        for endpoint in ("a", "b", "c", "d", "e"):
            taken += allowed(limits, tick / 10, endpoint=endpoint, rate=None)
    assert 600 <= taken <= 610 + 1


@pytest.mark.parametrize("gateways", [2, 4, 7])
@pytest.mark.parametrize("endpoints", [1, 5])
def test_gateways_take_a_keys_limit_together_and_not_each(gateways: int, endpoints: int) -> None:
    processes = [RateLimits({"team": 10.0}.get) for _ in range(gateways)]
    for process in processes:
        process.share(gateways)
    taken = 0
    for tick in range(600):
        for process in processes:
            for endpoint in range(endpoints):
                for _ in range(2):
                    taken += allowed(process, tick / 10, endpoint=str(endpoint), rate=None)
    burst = max(10, gateways)
    assert 0.97 * 600 <= taken <= 600 + burst


def test_an_endpoints_limit_is_for_each_endpoint_and_key_over_all_gateways() -> None:
    processes = [RateLimits(), RateLimits()]
    for process in processes:
        process.share(2)
    taken = {
        (caller, endpoint): sum(
            allowed(process, tick / 10, caller=caller, endpoint=endpoint, rate=4)
            for tick in range(600)
            for process in processes
        )
        for caller in ("a", "b")
        for endpoint in ("x", "y")
    }
    assert all(0.97 * 240 <= count <= 244 for count in taken.values()), taken


def test_a_share_of_less_than_one_request_still_lets_one_in_at_its_time() -> None:
    limits = RateLimits()
    limits.share(4)
    assert allowed(limits, 0.0, rate=1)
    assert not allowed(limits, 3.9, rate=1)
    assert allowed(limits, 4.0, rate=1)


def test_when_gateways_come_and_go_the_shares_follow() -> None:
    limits = RateLimits()
    for round_, (gateways, expected) in enumerate(((1, 600), (4, 150), (2, 300), (0, 600))):
        start = 1000.0 * round_
        limits.share(gateways)
        taken = sum(allowed(limits, start + tick / 20, rate=10) for tick in range(1200))
        assert expected * 0.97 <= taken <= expected + 10, (gateways, taken)


def test_who_may_find_room_at_another_gateway_is_sent_there_once_a_request() -> None:
    limits = RateLimits()

    def sent_away(now: float) -> bool:
        with pytest.raises(RateLimitedError) as refused:
            limits.check("team", "sentiment", 2, now)
        return refused.value.elsewhere

    limits.share(2)
    assert allowed(limits, 0.0, rate=2)
    assert [sent_away(0.1) for _ in range(3)] == [True, False, False]
    assert allowed(limits, 1.0, rate=2)
    assert sent_away(1.1)
    limits.share(1)
    assert allowed(limits, 9.0, rate=2)
    assert allowed(limits, 9.0, rate=2)
    assert not sent_away(9.0)


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


def test_what_is_charged_may_be_more_than_the_bucket_holds_and_has_to_be_waited_for() -> None:
    limits = RateLimits()
    limits.charge("team", "sentiment", lambda: 5.0, 20, 0.0)
    with pytest.raises(RateLimitedError, match="counts as several") as refused:
        limits.check("team", "sentiment", 5.0, 0.0)
    assert refused.value.retry_after_seconds == pytest.approx(21 / 5 - BURST_SECONDS)
    assert allowed(limits, 21 / 5 - BURST_SECONDS)


def test_a_look_refuses_as_a_check_would_and_counts_nothing() -> None:
    limits = RateLimits()
    for _ in range(3):
        limits.look("team", UNNAMED, 0.0)
    assert len(limits) == 0
    for _ in range(2):
        limits.look("team", UNNAMED, 0.0)
        limits.charge("team", UNNAMED, lambda: 2.0, 1, 0.0)
    for _ in range(3):
        with pytest.raises(RateLimitedError) as refused:
            limits.look("team", UNNAMED, 0.0)
        assert refused.value.retry_after_seconds == pytest.approx(0.5)


def test_a_limit_that_takes_long_to_find_is_asked_for_once_a_second() -> None:
    limits, asked = RateLimits(), []

    def per_second() -> float | None:
        asked.append(now)
        return None

    for tick in range(100):
        now = tick / 10
        limits.charge("team", UNNAMED, per_second, 1, now)
        limits.look("team", UNNAMED, now)
    assert len(asked) == 10


def test_feedback_is_counted_apart_from_what_a_keys_own_limit_counts() -> None:
    limits = RateLimits({"team": 1.0}.get)
    limits.check("team", "sentiment", None, 0.0)
    with pytest.raises(RateLimitedError):
        limits.look("team", UNNAMED, 0.0)
    limits.look("team", FEEDBACK, 0.0)
    limits.charge("team", FEEDBACK, lambda: None, 1, 0.0)
    with pytest.raises(RateLimitedError):
        limits.look("team", FEEDBACK, 0.0)

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replay.tally import Latencies, Tally


@given(st.lists(st.floats(1e-5, 1e3), min_size=1), st.sampled_from([1, 50, 90, 99, 100]))
def test_a_quantile_is_right_within_one_percent(seconds: list[float], percent: float) -> None:
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)
    exact = sorted(seconds)[math.ceil(len(seconds) * percent / 100) - 1]
    assert latencies.quantile(percent) == pytest.approx(exact, rel=0.0101)
    assert latencies.most == max(seconds)


def test_without_any_latency_there_is_no_quantile() -> None:
    assert Latencies().quantile(99) is None
    assert Tally().summary(1.0, 5.0)["latencySeconds"]["max"] is None


def test_a_latency_too_small_to_tell_is_no_error() -> None:
    latencies = Latencies()
    latencies.add(0.0)
    assert latencies.quantile(50) == 0.0


def test_failures_of_ever_new_kinds_take_no_more_room() -> None:
    tally = Tally()
    for number in range(1000):
        tally.note_failure(f"failure {number}")
    tally.note_failure("failure 0")
    assert len(tally.failures) == 20
    assert tally.failures["failure 0"] == 2

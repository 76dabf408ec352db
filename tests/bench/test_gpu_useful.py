"""The share of the time in which a packed engine's device computes texts, from its counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from bench.gpu.useful import Useful, counts, watched


@given(st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.integers(4, 20))
def test_of_a_steady_load_it_is_what_the_device_computes_without_its_padding(
    busy: float, padding: float, changes: int
) -> None:
    useful = Useful()
    for number in range(changes):
        # Counts stand still before the load and are read several times between two changes.
        for now in (number / 4, number / 4 + 0.1):
            useful.read(
                now, busy * number / 4, 1e6 * number * (1 - padding), 1e6 * number * padding
            )
    assert useful.share() == pytest.approx(busy * (1 - padding))


def test_idle_time_before_and_after_a_load_does_not_count() -> None:
    useful = Useful()
    useful.read(0.0, 0.0, 0.0, 0.0)
    for now, seconds in ((10.0, 0.1), (10.25, 0.35), (10.5, 0.6), (30.0, 0.7)):
        useful.read(now, seconds, 1000 * seconds, 0.0)
    assert useful.share() == pytest.approx(1.0)


def test_nothing_is_said_of_a_load_that_was_too_short_or_of_an_engine_without_counts() -> None:
    useful = Useful()
    for number in range(3):
        useful.read(float(number), number, number, 0.0)
    assert useful.share() is None
    with watched(0) as unseen:
        pass
    assert unseen.share() is None


def test_it_is_read_while_a_load_runs() -> None:
    asked = []

    def page(port: int) -> str:
        asked.append(port)
        return (
            "# TYPE headrace_packed_tokens_total counter\n"
            f'headrace_packed_tokens_total{{model="m",version="1"}} {100 * len(asked)}\n'
            "# TYPE headrace_packed_device_seconds_total counter\n"
            f'headrace_packed_device_seconds_total{{model="m",version="1"}} {1e-6 * len(asked)}\n'
        )

    with watched(8002, page) as useful:
        until("it has seen changes", 60.0, lambda: useful.share() is not None)
    assert set(asked) == {8002}
    assert 0 < (useful.share() or 0) < 1


def test_the_counts_are_those_of_all_models_together() -> None:
    page = (
        "# TYPE headrace_packed_padding_tokens_total counter\n"
        'headrace_packed_padding_tokens_total{model="m",version="1"} 3\n'
        'headrace_packed_padding_tokens_total{model="n",version="1"} 4\n'
        "# TYPE headrace_packed_runs_total counter\n"
        'headrace_packed_runs_total{model="m",version="1"} 9\n'
    )
    assert counts(page) == (0, 0, 7)

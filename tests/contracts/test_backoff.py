"""Pauses between tries grow, and stay within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.backoff import Backoff

BACKOFFS = st.builds(
    lambda first, more, jitter: Backoff(first, first + more, jitter),
    st.just(0.0) | st.floats(1e-6, 1e3),
    st.floats(0.0, 1e4),
    st.floats(0.0, 1.0),
)
FAILURES = st.integers(1, 10**9)
DRAWN = st.floats(0.0, 1.0)


@given(BACKOFFS, FAILURES, DRAWN)
def test_a_pause_lies_between_its_undrawn_share_and_the_most(
    backoff: Backoff, failures: int, drawn: float
) -> None:
    whole = backoff.after(failures)
    pause = backoff.after(failures, drawn)
    assert backoff.first <= whole <= backoff.most
    assert whole * (1 - backoff.jitter) * (1 - 1e-9) <= pause <= whole * (1 + 1e-9)


@given(BACKOFFS, FAILURES)
def test_one_more_failure_doubles_the_pause_up_to_the_most(backoff: Backoff, failures: int) -> None:
    assert backoff.after(1) == backoff.first
    assert backoff.after(failures + 1) == min(backoff.most, 2 * backoff.after(failures))


@given(BACKOFFS, FAILURES, DRAWN, DRAWN)
def test_a_larger_draw_never_gives_a_shorter_pause(
    backoff: Backoff, failures: int, one: float, other: float
) -> None:
    least, most = sorted((one, other))
    assert backoff.after(failures, least) <= backoff.after(failures, most) * (1 + 1e-9)

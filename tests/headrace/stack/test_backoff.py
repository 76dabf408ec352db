from hypothesis import given
from hypothesis import strategies as st

from headrace.stack import backoff


@given(st.integers(1, 10_000))
def test_the_wait_is_bounded_and_never_shrinks(failures: int) -> None:
    assert backoff.FIRST_SECONDS <= backoff.delay_seconds(failures) <= backoff.LAST_SECONDS
    assert backoff.delay_seconds(failures) <= backoff.delay_seconds(failures + 1)


def test_a_process_that_ran_long_begins_again_at_the_first_wait() -> None:
    assert backoff.failures_after(7, backoff.SETTLED_SECONDS) == 1
    assert backoff.failures_after(7, backoff.SETTLED_SECONDS - 0.1) == 8

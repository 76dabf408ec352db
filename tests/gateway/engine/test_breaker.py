"""A breaker lets nothing through until a probe has succeeded, and probes soon enough."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.fleet import Breaker, State


def test_a_new_replica_is_probed_at_once_and_serves_nobody_before() -> None:
    breaker = Breaker()
    assert not breaker.closed
    assert breaker.probe_due(0.0)


def test_one_probe_at_a_time() -> None:
    breaker = Breaker()
    assert breaker.probe_due(0.0)
    assert breaker.state is State.HALF_OPEN
    assert not breaker.probe_due(100.0)
    assert not breaker.closed


def test_an_answer_closes_it_and_a_failure_opens_it_at_once() -> None:
    breaker = Breaker()
    breaker.succeed()
    assert (breaker.closed, breaker.probe_due(100.0)) == (True, False)
    breaker.fail(100.0)
    assert (breaker.closed, breaker.probe_due(100.0)) == (False, False)
    assert breaker.probe_due(100.0 + breaker.first_pause)


@given(st.integers(min_value=1, max_value=5000))
def test_the_pause_between_probes_is_bounded(failures: int) -> None:
    breaker = Breaker()
    for _ in range(failures):
        breaker.fail(0.0)
    assert breaker.probe_at <= breaker.longest_pause


def test_a_success_forgets_the_failures() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker.fail(0.0)
    breaker.succeed()
    breaker.fail(0.0)
    assert breaker.probe_at == breaker.first_pause


def test_after_a_fault_that_no_probe_sees_it_waits_longer() -> None:
    breaker = Breaker()
    breaker.fail(0.0, at_least=5.0)
    assert not breaker.probe_due(4.9)
    assert breaker.probe_due(5.0)

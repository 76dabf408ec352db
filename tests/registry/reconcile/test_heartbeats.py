"""Which loaders count, whatever their clocks say."""

import pytest

from contracts.loading import LoaderReport
from registry.reconcile.heartbeats import HeartbeatTracker

NOW = 1000.0


def report(at: float, loader: str = "l") -> LoaderReport:
    return LoaderReport(loader=loader, triton_grpc="t:1", at=at, ready=True)


@pytest.mark.parametrize("wrong", [-50.0, 0.0, 3600.0])
def test_a_loader_that_reports_counts_however_wrong_its_clock_is(wrong: float) -> None:
    tracker = HeartbeatTracker(15.0)
    for second in range(100):
        told = report(NOW + wrong + second)
        assert tracker.heard([told], NOW + second) == (told,)


@pytest.mark.parametrize("wrong", [-50.0, 0.0, 3600.0])
def test_a_loader_whose_report_stays_the_same_is_silent_in_the_end(wrong: float) -> None:
    tracker, told = HeartbeatTracker(15.0), report(NOW + wrong)
    assert tracker.heard([told], NOW) == (told,)
    assert tracker.heard([told], NOW + 15.0) == (told,)
    assert tracker.heard([told], NOW + 15.1) == ()
    again = report(NOW + wrong + 20.0)
    assert tracker.heard([again], NOW + 20.0) == (again,)


def test_what_a_loader_left_that_is_gone_does_not_count_until_it_changes() -> None:
    tracker = HeartbeatTracker(15.0)
    left, alive = report(NOW - 76.0, "gone"), report(NOW)
    assert tracker.heard([left, alive], NOW) == (alive,)
    assert tracker.heard([left, alive], NOW + 1.0) == (alive,)
    back = report(NOW - 70.0, "gone")
    assert tracker.heard([back, alive], NOW + 2.0) == (back, alive)


def test_a_report_that_was_removed_is_forgotten() -> None:
    tracker = HeartbeatTracker(15.0)
    tracker.heard([report(NOW)], NOW)
    tracker.heard([], NOW + 10.0)
    assert tracker.heard([report(NOW)], NOW + 80.0) == ()


def test_time_in_which_no_report_could_reach_us_does_not_count() -> None:
    tracker = HeartbeatTracker(15.0)
    alive, gone = report(NOW, "alive"), report(NOW - 10.0, "gone")
    tracker.heard([gone], NOW - 10.0)
    assert tracker.heard([alive, gone], NOW) == (alive, gone)
    for second in range(1, 100):
        assert tracker.heard([alive, gone], NOW + second, disconnected=True) == (alive, gone)
    assert tracker.heard([alive, gone], NOW + 99.0 + 5.0) == (alive, gone)
    assert tracker.heard([alive, gone], NOW + 99.0 + 6.0) == (alive,)
    assert tracker.heard([alive, gone], NOW + 99.0 + 16.0) == ()

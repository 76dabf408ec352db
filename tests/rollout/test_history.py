"""What is remembered stays within its bounds, and the newest stays."""

from rollout_fakes import ref
from rollout_walk import loaded_candidate

from contracts.endpoint import HISTORY_LIMIT, REASONS_LIMIT, Phase, Transition
from contracts.rollout import CheckResult, RolloutState, Verdict
from rollout import history


def line(number: int) -> Transition:
    return Transition(at=float(number), version=str(number), phase=Phase.CANARY, reason="r")


def of(number: int) -> RolloutState:
    made = ref(str(number))
    return RolloutState(
        id="r", candidate=made, options=f"o{number}", stable=ref("1"), began=0, step_began=0
    )


def test_the_oldest_line_gives_way() -> None:
    status = loaded_candidate()
    for number in range(HISTORY_LIMIT + 3):
        status = history.with_line(status, line(number))
    assert [item.at for item in status.history] == [float(n) for n in range(3, HISTORY_LIMIT + 3)]


def test_a_version_is_rejected_once_and_none_newer_than_stable_is_forgotten() -> None:
    status = loaded_candidate()
    numbers = [*range(2, 2 + 10 * REASONS_LIMIT), 7]
    for number in numbers:
        status = history.with_rejection(status, of(number), "why", float(number))
    versions = [item.version for item in status.rejected]
    assert len(versions) == len(set(versions))
    assert set(versions) == {str(number) for number in numbers}
    assert (versions[-1], status.rejected[-1].reason) == ("7", "why")


def test_the_last_phase_of_a_version_is_that_of_its_last_line() -> None:
    status = history.with_line(loaded_candidate(), line(4))
    assert history.last_phase(status, "4") is Phase.CANARY
    assert history.last_phase(status, "1") is Phase.SERVING


def test_figures_bear_the_name_of_their_check() -> None:
    check = CheckResult(name="a", verdict=Verdict.PASS, reason="r", figures={"n": 3})
    assert history.figures([check]) == {"a.n": 3}

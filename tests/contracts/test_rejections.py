"""No rejection that still matters is forgotten, however many there are, in a bounded room."""

import pytest
from registry_fakes import ref

from contracts import rejections
from contracts.endpoint import (
    REASONS_LIMIT,
    REJECTIONS_LIMIT,
    Arm,
    EndpointStatus,
    Rejection,
    Route,
)
from contracts.rollout import Outcome, RolloutState

MOST_BYTES = 100_000  # of all rejections: a cluster takes objects of 1.5 MB


def stable_at(number: int, **parts: object) -> EndpointStatus:
    route = Route(arm=Arm.STABLE, ref=ref(str(number)), weight=100)
    return EndpointStatus.model_validate({"routes": (route,), **parts})


def rejecting(status: EndpointStatus, *numbers: int, reason: str = "why") -> EndpointStatus:
    for number in numbers:
        rejection = Rejection(
            version=str(number), options=f"{number:064x}", reason=reason, at=float(number)
        )
        status = rejections.added(status, rejection)
    return status


def forgotten(status: EndpointStatus, *numbers: int) -> list[int]:
    """Those that would be tried again."""
    return [
        number
        for number in numbers
        if rejections.of(status, str(number), f"{number:064x}") is None
        and not rejections.is_passed_over(status, str(number))
    ]


@pytest.mark.parametrize("most", [21, 200, REJECTIONS_LIMIT, REJECTIONS_LIMIT + 300])
def test_no_rejection_newer_than_stable_is_forgotten_however_many_there_are(most: int) -> None:
    numbers = range(2, most + 2)
    status = rejecting(stable_at(1), *numbers)
    assert forgotten(status, *numbers) == []
    assert forgotten(status, most + 2) == [most + 2]


def test_the_order_of_rejections_does_not_matter() -> None:
    numbers = [*range(400, 800), *range(399, 1, -1)]
    assert forgotten(rejecting(stable_at(1), *numbers), *numbers) == []


def test_rejections_take_a_bounded_room_whatever_their_reasons() -> None:
    status = rejecting(stable_at(1), *range(2, 3 * REJECTIONS_LIMIT), reason="x" * 1000)
    stored = status.model_dump_json(include={"rejected", "rejected_through"})
    assert len(stored) < MOST_BYTES
    assert EndpointStatus.model_validate_json(status.model_dump_json()) == status


def test_the_newest_rejections_keep_their_reasons() -> None:
    status = rejecting(stable_at(1), *range(2, REASONS_LIMIT + 12))
    reasons = [item.reason for item in status.rejected]
    assert reasons == [""] * 10 + ["why"] * REASONS_LIMIT


def test_a_version_is_rejected_once_under_the_same_options_and_once_under_others() -> None:
    status = rejecting(stable_at(1), 7, 8, 7)
    assert [item.version for item in status.rejected] == ["8", "7"]
    other = Rejection(version="7", options="other", reason="why", at=9.0)
    assert [item.version for item in rejections.added(status, other).rejected] == ["8", "7", "7"]


def test_rejections_older_than_stable_make_room_first() -> None:
    older, newer = range(1, 301), range(302, 302 + REJECTIONS_LIMIT)
    status = rejecting(stable_at(301), *older, *newer)
    assert status.rejected_through == 0
    assert forgotten(status, *newer) == []
    assert len(status.rejected) == REJECTIONS_LIMIT


@pytest.mark.parametrize("bake_is_over", [False, True])
def test_what_an_undo_would_make_newer_than_stable_again_is_not_forgotten(
    bake_is_over: bool,
) -> None:
    state = RolloutState(
        id="r", candidate=ref("30"), stable=ref("1"), began=1.0, step_began=1.0, promoted_at=2.0
    )
    ended = state.model_copy(update={"ended_at": 3.0, "outcome": Outcome.SETTLED})
    part = {"last_rollout": ended} if bake_is_over else {"rollout": state}
    before = range(2, 30)
    after = range(31, 31 + REJECTIONS_LIMIT)
    status = rejecting(stable_at(30, **part), *before, *after)
    undone = status.model_copy(update={"routes": stable_at(1).routes})
    assert forgotten(undone, *before, *after) == []


def test_what_was_passed_over_does_not_hide_the_stable_version() -> None:
    status = rejecting(stable_at(1), *range(2, REJECTIONS_LIMIT + 10))
    assert status.rejected_through > 1
    assert not rejections.is_passed_over(status, "1")


def test_a_retried_version_is_not_rejected_any_more_and_others_stay() -> None:
    status = rejecting(stable_at(1), *range(2, 40))
    cleared = rejections.cleared(status, "7")
    assert forgotten(cleared, *range(2, 40)) == [7]
    assert rejections.cleared(cleared, "7") == cleared


def test_a_version_that_was_just_rejected_is_on_record_even_where_there_is_no_room() -> None:
    status = rejecting(stable_at(1), *range(100, 100 + REJECTIONS_LIMIT))
    status = rejecting(status, 5)  # an old one that a person pinned
    assert rejections.of(status, "5", f"{5:064x}") is not None
    assert forgotten(status, *range(100, 100 + REJECTIONS_LIMIT)) == []

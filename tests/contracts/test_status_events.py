"""What is remembered of an endpoint: within its bounds, once, and as long as it matters."""

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_fakes import ref

from contracts.endpoint import (
    HISTORY_LIMIT,
    REASONS_LIMIT,
    REJECTIONS_LIMIT,
    Candidate,
    EndpointStatus,
    Phase,
    Route,
)
from contracts.rollout import (
    COMMANDS_LIMIT,
    CheckResult,
    CommandOutcome,
    Outcome,
    RolloutState,
    Verb,
    Verdict,
)
from contracts.status_events import (
    CandidateUpdate,
    CommandAnswer,
    Event,
    HistoryNote,
    Promotion,
    RetryAllowed,
    RolloutEnding,
    StepEntered,
    VersionRejection,
    apply,
    is_passed_over,
    rejection_of,
)

MOST_BYTES = 100_000  # of all rejections: a cluster takes objects of 1.5 MB


def stable_at(number: int, **parts: object) -> EndpointStatus:
    route = Route.all_callers(ref(str(number)))
    return EndpointStatus.model_validate({"routes": (route,), **parts})


def options(number: int) -> str:
    return f"{number:064x}"


def rejection(number: int, reason: str = "why", at: float = 0.0) -> VersionRejection:
    return VersionRejection(at or float(number), str(number), options(number), reason)


def rejecting(status: EndpointStatus, *numbers: int, reason: str = "why") -> EndpointStatus:
    for number in numbers:
        status = apply(status, rejection(number, reason))
    return status


def retry(number: int) -> RetryAllowed:
    return RetryAllowed(1.0, str(number), "may be tried again by ann", by="ann")


def is_forgotten(status: EndpointStatus, number: int) -> bool:
    """Whether it would be tried again."""
    known = rejection_of(status, str(number), options(number)) is not None
    return not known and not is_passed_over(status, str(number))


def forgotten(status: EndpointStatus, *numbers: int) -> list[int]:
    return [number for number in numbers if is_forgotten(status, number)]


def rollout(number: int, stable: int = 1) -> RolloutState:
    return RolloutState(
        id="r",
        candidate=ref(str(number)),
        options=options(number),
        stable=ref(str(stable)),
        began=1.0,
        step_began=1.0,
    )


# The rejections


@pytest.mark.slow
@pytest.mark.parametrize("most", [21, 200, REJECTIONS_LIMIT, REJECTIONS_LIMIT + 300])
def test_no_rejection_newer_than_stable_is_forgotten_however_many_there_are(most: int) -> None:
    numbers = range(2, most + 2)
    status = rejecting(stable_at(1), *numbers)
    assert forgotten(status, *numbers) == []
    assert forgotten(status, most + 2) == [most + 2]


def test_the_order_of_rejections_does_not_matter() -> None:
    numbers = [*range(400, 800), *range(399, 1, -1)]
    status = rejecting(stable_at(1), *numbers)
    assert forgotten(status, *numbers) == []
    assert status.rejected_through < 400  # the oldest are passed over, not the first to come


@pytest.mark.slow
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
    status = apply(status, VersionRejection(9.0, "7", "other", "why"))
    assert [item.version for item in status.rejected] == ["8", "7", "7"]


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
    state = rollout(30).model_copy(update={"promoted_at": 2.0})
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
    assert not is_passed_over(status, "1")


def test_a_retried_version_is_not_rejected_any_more_and_others_stay() -> None:
    status = rejecting(stable_at(1), *range(2, 40))
    assert forgotten(apply(status, retry(7)), *range(2, 40)) == [7]


def test_a_version_that_was_just_rejected_is_on_record_even_where_there_is_no_room() -> None:
    status = rejecting(stable_at(1), *range(100, 100 + REJECTIONS_LIMIT))
    status = rejecting(status, 5)  # an old one that a person pinned
    assert rejection_of(status, "5", options(5)) is not None
    assert forgotten(status, *range(100, 100 + REJECTIONS_LIMIT)) == []


# The history


def noted(number: int, reason: str = "r") -> HistoryNote:
    return HistoryNote(float(number), str(number), reason, phase=Phase.CANARY)


def preparing(
    phase: Phase, reason: str = "", *, version: str = "2", at: float = 1.0
) -> CandidateUpdate:
    return CandidateUpdate(at, Candidate(version=version, phase=phase, reason=reason))


def after(*events: Event) -> EndpointStatus:
    status = stable_at(1)
    for event in events:
        status = apply(status, event)
    return status


def told(status: EndpointStatus) -> list[tuple[str, Phase]]:
    return [(line.version, line.phase) for line in status.history]


def test_the_oldest_line_gives_way() -> None:
    status = after(*map(noted, range(HISTORY_LIMIT + 3)))
    assert [item.at for item in status.history] == [float(n) for n in range(3, HISTORY_LIMIT + 3)]


def test_a_note_is_kept_on_the_last_phase_of_its_version() -> None:
    status = after(
        noted(4), HistoryNote(9.0, "4", "paused by ann"), HistoryNote(9.0, "1", "pinned by ann")
    )
    assert told(status)[1:] == [("4", Phase.CANARY), ("1", Phase.SERVING)]


def test_an_event_that_is_told_twice_is_noted_once() -> None:
    assert len(after(noted(4), noted(4)).history) == 1


def test_preparation_is_noted_where_it_is_news() -> None:
    status = after(
        preparing(Phase.LOADING),
        preparing(Phase.LOADING, "no loader has given a sign of life", at=2.0),
        preparing(Phase.LOADED, at=3.0),
        HistoryNote(4.0, "1", "paused by ann"),
        preparing(Phase.LOADED, at=5.0),
        preparing(Phase.BLOCKED, "the store is away", at=6.0),
        preparing(Phase.BLOCKED, "the store is away", at=7.0),
        preparing(Phase.BLOCKED, "MLflow is away", at=8.0),
    )
    assert [line.at for line in status.history] == [1.0, 3.0, 4.0, 6.0, 8.0]
    assert status.candidate is not None
    assert status.candidate.reason == "MLflow is away"


def test_a_version_that_is_tried_again_is_noted_again() -> None:
    status = after(preparing(Phase.LOADING), rejection(2, at=2.0))
    status = apply(status, retry(2))
    assert status.candidate is None
    status = apply(status, preparing(Phase.LOADING, at=4.0))
    phases = [Phase.LOADING, Phase.REJECTED, Phase.WAITING, Phase.LOADING]
    assert told(status) == [("2", phase) for phase in phases]


def test_the_line_of_an_end_holds_the_figures_of_the_checks() -> None:
    check = CheckResult(name="a", verdict=Verdict.PASS, reason="r", figures={"n": 3})
    state = rollout(2).model_copy(update={"checks": (check,)})
    status = after(RolloutEnding(5.0, state, Outcome.ROLLED_BACK, "why"))
    assert status.history[-1].figures == {"a.n": 3}
    assert status.last_rollout is not None
    assert status.last_rollout.ended_at == 5.0


def test_a_version_that_expired_is_on_record_as_that_and_not_as_a_bad_one() -> None:
    status = after(RolloutEnding(5.0, rollout(2), Outcome.EXPIRED, "no verdict within 24h"))
    assert [item.phase for item in status.rejected] == [Phase.EXPIRED]
    assert told(status)[-1] == ("2", Phase.EXPIRED)
    assert told(apply(status, retry(2)))[-1] == ("2", Phase.WAITING)
    rolled_back = after(RolloutEnding(5.0, rollout(2), Outcome.ROLLED_BACK, "errors"))
    assert [item.phase for item in rolled_back.rejected] == [Phase.REJECTED]


# Whatever happens

VERSIONS = range(2, 9)
PHASES = (Phase.WAITING, Phase.CONVERTING, Phase.LOADING, Phase.LOADED, Phase.BLOCKED)
OUTCOMES = tuple(Outcome)
TAKEN_BACK = (Outcome.ROLLED_BACK, Outcome.REVERTED, Outcome.EXPIRED)


@dataclass
class Remembered:
    """What a status must know after the events that came so far."""

    status: EndpointStatus
    rejected: set[int] = field(default_factory=set)

    def happens(self, kind: int, number: int, second: int, at: float) -> None:
        """One of the events, as far as it is possible now."""
        event = self._event(kind, number, second, at)
        if event is None:
            return
        self.status = apply(self.status, event)
        assert apply(self.status, event) == self.status or not isinstance(
            event, CandidateUpdate | CommandAnswer | HistoryNote
        )
        if isinstance(event, RetryAllowed):
            self.rejected.discard(number)
        if isinstance(event, VersionRejection):
            self.rejected.add(number)
        if isinstance(event, RolloutEnding) and event.outcome in TAKEN_BACK:
            self.rejected.add(int(event.state.candidate.version))
        # What `latest` can't come back to need not be remembered, nor what people made stable.
        assert self.status.stable is not None
        least, stable = self._least(), int(self.status.stable.version)
        self.rejected = {item for item in self.rejected if item > least and item != stable}

    def _least(self) -> int:
        states = [self.status.rollout, self.status.last_rollout]
        refs = [self.status.stable, *(state.stable for state in states if state is not None)]
        return min(int(item.version) for item in refs if item is not None)

    def _event(self, kind: int, number: int, second: int, at: float) -> Event | None:
        version = str(number)
        said = CommandOutcome(
            id=f"c{number}{second}", verb=Verb.PAUSE, by="ann", at=at, accepted=True, said="r"
        )
        phase = PHASES[second % len(PHASES)]
        always: tuple[Event, ...] = (
            CandidateUpdate(at, Candidate(version=version, phase=phase, reason=f"{second % 2}")),
            VersionRejection(at, version, options(number), "why", refused=ref(version)),
            RetryAllowed(at, version, "may be tried again by ann", by="ann"),
            CommandAnswer(said),
            HistoryNote(at, version, f"paused {second % 2}"),
        )
        return always[kind] if kind < len(always) else self._of_a_rollout(kind, number, second, at)

    def _of_a_rollout(self, kind: int, number: int, second: int, at: float) -> Event | None:
        state, stable = self.status.rollout, self.status.stable
        assert stable is not None
        if state is None:
            begun = rollout(number, int(stable.version))
            is_newer = number > int(stable.version)
            return StepEntered(at, begun, Phase.SHADOW, "begun") if is_newer else None
        if kind == 5:
            return Promotion(at, state.model_copy(update={"promoted_at": at}), "passed")
        if kind == 6:
            return StepEntered(at, state, Phase.CANARY, "passed")
        return RolloutEnding(at, state, OUTCOMES[second % len(OUTCOMES)], "why")


@cache
def with_little_room() -> EndpointStatus:
    """One rejection less than there is room for."""
    return rejecting(stable_at(1), *range(100, 99 + REJECTIONS_LIMIT))


@settings(max_examples=60)
@given(
    full=st.booleans(),
    events=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(VERSIONS), st.integers(0, 30)), max_size=60
    ),
)
def test_no_sequence_of_events_forgets_repeats_or_outgrows_what_matters(
    *, full: bool, events: list[tuple[int, int, int]]
) -> None:
    status = with_little_room() if full else stable_at(1)
    remembered = Remembered(status, {int(item.version) for item in status.rejected})
    for place, (kind, number, second) in enumerate(events):
        remembered.happens(kind, number, second, float(place))
        status = remembered.status
        assert forgotten(status, *remembered.rejected.intersection(VERSIONS)) == []
        assert len(status.history) <= HISTORY_LIMIT
        assert len(status.rejected) <= REJECTIONS_LIMIT
        assert len(status.commands) <= COMMANDS_LIMIT
    assert forgotten(remembered.status, *remembered.rejected) == []
    keys = [(item.version, item.options) for item in remembered.status.rejected]
    assert len(keys) == len(set(keys))
    answers = [item.id for item in remembered.status.commands]
    assert len(answers) == len(set(answers))
    for number in VERSIONS:
        lines = [line for line in remembered.status.history if line.version == str(number)]
        assert all(one != other for one, other in pairwise(lines))

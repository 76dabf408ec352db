"""What happens to an endpoint, and what its status says then: the one writer of its records.

Records are the history, the rejections and the answers to commands. Registry and rollout say what
happened, as an event; ``apply`` makes the next status of it. Nobody else writes a record. It
never decides what happens, and has no clock.

After any sequence of events:

* ``history`` holds at most ``HISTORY_LIMIT`` lines, and no line that repeats the one before it
  about the same version. Preparation is reported in every pass, and is written if it is news.
* A version is rejected once under the same options. A rejection of a version newer than stable is
  never forgotten, else the version would be tried again for ever; only a person's retry takes it
  back. What bounds the room: only the newest rejections keep their reasons, and beyond
  ``REJECTIONS_LIMIT`` records the oldest versions are told by one number,
  ``status.rejected_through``, up to which ``latest`` tries nothing any more.
* A command is answered once, and the newest ``COMMANDS_LIMIT`` answers stay.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import assert_never

from contracts.endpoint import (
    HISTORY_LIMIT,
    REASONS_LIMIT,
    REJECTIONS_LIMIT,
    Candidate,
    EndpointStatus,
    KeptSpace,
    Phase,
    Rejection,
    Route,
    Transition,
)
from contracts.model import ModelRef
from contracts.rollout import COMMANDS_LIMIT, CommandOutcome, Outcome, RolloutState
from contracts.tasks import Task

# Events. ``at`` is unix time in seconds, ``reason`` a sentence for people, ``by`` the person who
# decided; empty for Headrace itself.


@dataclass(frozen=True, slots=True)
class CandidateUpdate:
    """A version is somewhere on its way to ``Loaded``, or blocked there."""

    at: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class DirectRelease:
    """A package got all callers without a rollout; the one before it stays loaded for now."""

    at: float
    ref: ModelRef
    task: Task


@dataclass(frozen=True, slots=True)
class VersionRejection:
    """A version turned out bad before its rollout; ``refused`` is the package, if there was one.

    ``expired``: it was tried often enough, and nothing is known bad of it.
    """

    at: float
    version: str
    options: str
    reason: str
    refused: ModelRef | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class StepEntered:
    """A rollout began, or is in another step."""

    at: float
    state: RolloutState
    phase: Phase
    reason: str
    by: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promotion:
    """The version of a rollout became stable, and is watched in its bake."""

    at: float
    state: RolloutState
    reason: str
    by: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RolloutEnding:
    """A rollout is over; ``state`` may be that of one that settled earlier and is undone now.

    Attributes:
        refused: packages that a Triton refused, and that nobody should try to load again.
        reject: not to try the version again, unless a person asks for it. A version that settled
            or was superseded is never rejected. The record of one that expired says so.
    """

    at: float
    state: RolloutState
    outcome: Outcome
    reason: str
    by: str = ""
    refused: AbstractSet[ModelRef] = frozenset()
    reject: bool = True


@dataclass(frozen=True, slots=True)
class HistoryNote:
    """Something that is only told; without a ``phase`` it is the version's last one."""

    at: float
    version: str
    reason: str
    by: str = ""
    step: int | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class RetryAllowed:
    """A person wants a rejected version to be tried again."""

    at: float
    version: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """A command was done or refused."""

    outcome: CommandOutcome


Event = (
    CandidateUpdate
    | DirectRelease
    | VersionRejection
    | StepEntered
    | Promotion
    | RolloutEnding
    | HistoryNote
    | RetryAllowed
    | CommandAnswer
)

_ENDS = {
    Outcome.SETTLED: Phase.SETTLED,
    Outcome.ROLLED_BACK: Phase.ROLLED_BACK,
    Outcome.REVERTED: Phase.ROLLED_BACK,
    Outcome.SUPERSEDED: Phase.SUPERSEDED,
    Outcome.EXPIRED: Phase.EXPIRED,
}


def apply(status: EndpointStatus, event: Event) -> EndpointStatus:
    """The status after an event; equal if it says nothing new."""
    match event:
        case CandidateUpdate():
            status = _apply_update(status, event)
        case DirectRelease():
            status = _apply_release(status, event)
        case VersionRejection():
            status = _apply_rejection(status, event)
        case StepEntered():
            status = _apply_step(status, event)
        case Promotion():
            status = _apply_promotion(status, event)
        case RolloutEnding():
            status = _apply_ending(status, event)
        case HistoryNote():
            status = _apply_note(status, event)
        case RetryAllowed():
            status = _retry_allowed(status, event)
        case CommandAnswer():
            status = _apply_answer(status, event.outcome)
        case _:
            assert_never(event)
    return status


# What is on record


def identify_line(line: Transition) -> tuple[object, ...]:
    """What tells a line of history from every other: one pass may enter two steps."""
    return line.at, line.version, line.phase, line.step, line.by, line.reason


def new_lines(before: EndpointStatus, after: EndpointStatus) -> list[Transition]:
    """The lines in one history and not in the other, oldest first."""
    known = {identify_line(line) for line in before.history}
    found = (line for line in after.history if identify_line(line) not in known)
    return sorted(found, key=lambda line: line.at)


def rejection_of(status: EndpointStatus, version: str, options: str) -> Rejection | None:
    """The record of a version's rejection under these options, if there is one."""
    wanted = (version, options)
    return next((item for item in status.rejected if (item.version, item.options) == wanted), None)


def is_rejected(status: EndpointStatus, version: str) -> bool:
    """Whether a version has a record of a rejection, under whatever options."""
    return any(item.version == version for item in status.rejected)


def is_passed_over(status: EndpointStatus, version: str) -> bool:
    """Whether ``latest`` tries a version no more, though it may have no record of its own.

    A version that a person names, by a pin or an alias, is not passed over.
    """
    if status.stable is not None and version == status.stable.version:
        return False
    return int(version) <= status.rejected_through


def left_last(status: EndpointStatus) -> str:
    """That the version which was on its way last is not brought in, and why; empty if it is not so.

    It is so until something else happens.
    """
    last = status.history[-1] if status.history else None
    is_over = status.candidate is None and status.rollout is None
    if last is None or last.phase is not Phase.SUPERSEDED or not is_over:
        return ""
    return f"version {last.version} is not brought in: {last.reason}"


def is_own(candidate: Candidate | None, state: RolloutState) -> bool:
    """Whether a candidate is the rollout's, and not one that comes after it."""
    return candidate is not None and candidate.ref == state.candidate


def show_on_its_way(
    status: EndpointStatus, state: RolloutState, phase: Phase, reason: str = ""
) -> EndpointStatus:
    """With the rollout's version shown as on its way, unless a newer one is by now."""
    if status.candidate is not None and not is_own(status.candidate, state):
        return status
    candidate = Candidate(
        version=state.candidate.version,
        phase=phase,
        reason=reason,
        # One that was rolled back need not stay loaded.
        ref=None if phase in (Phase.ROLLED_BACK, Phase.EXPIRED) else state.candidate,
        options=state.options,
    )
    return status.model_copy(update={"candidate": candidate})


# One event a function


def _apply_update(status: EndpointStatus, event: CandidateUpdate) -> EndpointStatus:
    candidate = event.candidate
    line = Transition(
        at=event.at, version=candidate.version, phase=candidate.phase, reason=candidate.reason
    )
    last = _last_line(status, candidate.version)
    is_known = (
        last is not None
        and last.phase is line.phase
        and (line.phase is not Phase.BLOCKED or last.reason == line.reason)
    )
    # A further attempt is announced by the fault before it.
    silent = (Phase.WAITING,) if candidate.attempts == 0 else (Phase.WAITING, Phase.CONVERTING)
    status = status.model_copy(update={"candidate": candidate})
    return status if is_known or candidate.phase in silent else _with_line(status, line)


def _apply_release(status: EndpointStatus, event: DirectRelease) -> EndpointStatus:
    update = {
        "routes": (Route.all_callers(event.ref),),
        "packages": _put_first(event.ref, status.packages),
        "candidate": None,
        "task": event.task,
    }
    line = Transition(at=event.at, version=event.ref.version, phase=Phase.SERVING)
    return _with_line(status.model_copy(update=update), line)


def _apply_rejection(status: EndpointStatus, event: VersionRejection) -> EndpointStatus:
    routed = {route.ref for route in status.routes}
    rejection = Rejection(
        version=event.version,
        options=event.options,
        reason=event.reason,
        at=event.at,
        expired=event.expired,
    )
    phase = rejection.phase
    update = {
        "packages": tuple(ref for ref in status.packages if ref in routed or ref != event.refused),
        "candidate": Candidate(
            version=event.version, phase=phase, reason=event.reason, options=event.options
        ),
    }
    line = Transition(at=event.at, version=event.version, phase=phase, reason=event.reason)
    return _with_rejection(_with_line(status.model_copy(update=update), line), rejection)


def _apply_step(status: EndpointStatus, event: StepEntered) -> EndpointStatus:
    state = event.state
    status = status.model_copy(update={"rollout": state})
    return show_on_its_way(_with_line(status, _line_of(event, event.phase)), state, event.phase)


def _line_of(event: StepEntered | Promotion, phase: Phase) -> Transition:
    return Transition(
        at=event.at,
        version=event.state.candidate.version,
        phase=phase,
        reason=event.reason,
        by=event.by,
        step=event.state.step,
        figures=dict(event.figures),
    )


def _apply_promotion(status: EndpointStatus, event: Promotion) -> EndpointStatus:
    state, line = event.state, _line_of(event, Phase.PROMOTED)
    update = {"packages": _put_first(state.candidate, status.packages), "rollout": state}
    return show_on_its_way(
        _with_line(status.model_copy(update=update), line), state, Phase.PROMOTED
    )


def _apply_ending(status: EndpointStatus, event: RolloutEnding) -> EndpointStatus:
    outcome, reason = event.outcome, event.reason
    state = event.state.model_copy(
        update={"ended_at": event.at, "outcome": outcome, "reason": reason}
    )
    version = state.candidate.version
    winner = state.candidate if outcome is Outcome.SETTLED else state.stable
    kept = tuple(ref for ref in status.packages if ref == winner or ref not in event.refused)
    line = Transition(
        at=event.at,
        version=version,
        phase=_ENDS[outcome],
        reason=reason,
        by=event.by,
        step=state.step,
        figures=state.figures,
    )
    update = {
        "routes": (Route.all_callers(winner),),
        "packages": _put_first(winner, kept),
        "kept": _keep_space(status, event, winner),
        "rollout": None,
        "last_rollout": state,
    }
    status = _with_line(status.model_copy(update=update), line)
    if outcome in (Outcome.SETTLED, Outcome.SUPERSEDED):
        own = is_own(status.candidate, state)
        return status.model_copy(update={"candidate": None}) if own else status
    status = show_on_its_way(status, state, _ENDS[outcome], reason)
    if not event.reject:
        return status
    rejection = Rejection(
        version=version,
        options=state.options,
        reason=reason,
        at=event.at,
        expired=outcome is Outcome.EXPIRED,
    )
    return _with_rejection(status, rejection)


def _keep_space(
    status: EndpointStatus, event: RolloutEnding, winner: ModelRef
) -> tuple[KeptSpace, ...]:
    """With the space that callers have just left: indexes may be of it, whichever way they went."""
    state = event.state
    left = state.stable if winner == state.candidate else state.candidate
    others = tuple(each for each in status.kept if each.ref.space not in (winner.space, left.space))
    had_callers = state.promoted_at is not None and left not in event.refused
    if not had_callers or left.space in ("", winner.space):
        return tuple(each for each in status.kept if each.ref.space != winner.space)
    return (*others, KeptSpace(ref=left, asked_at=event.at))


def _apply_note(status: EndpointStatus, event: HistoryNote) -> EndpointStatus:
    line = Transition(
        at=event.at,
        version=event.version,
        phase=event.phase or _last_phase(status, event.version),
        reason=event.reason,
        by=event.by,
        step=event.step,
    )
    return _with_line(status, line)


def _retry_allowed(status: EndpointStatus, event: RetryAllowed) -> EndpointStatus:
    update: dict[str, object] = {
        "rejected": tuple(item for item in status.rejected if item.version != event.version)
    }
    if status.candidate is not None and status.candidate.version == event.version:
        update["candidate"] = None  # it begins again
    line = Transition(
        at=event.at,
        version=event.version,
        phase=Phase.WAITING,
        reason=event.reason,
        by=event.by,
    )
    return _with_line(status.model_copy(update=update), line)


def _apply_answer(status: EndpointStatus, outcome: CommandOutcome) -> EndpointStatus:
    if any(known.id == outcome.id for known in status.commands):
        return status
    commands = (*status.commands, outcome)[-COMMANDS_LIMIT:]
    return status.model_copy(update={"commands": commands})


# The records themselves


def _with_line(status: EndpointStatus, line: Transition) -> EndpointStatus:
    """With one more line of history; the oldest gives way."""
    if _last_line(status, line.version) == line:
        return status
    lines = (*status.history, line)[-HISTORY_LIMIT:]
    return status.model_copy(update={"history": lines})


def _last_line(status: EndpointStatus, version: str) -> Transition | None:
    return next((line for line in reversed(status.history) if line.version == version), None)


def _last_phase(status: EndpointStatus, version: str) -> Phase:
    """The phase of a version by the last line about it; one without a line serves."""
    line = _last_line(status, version)
    return Phase.SERVING if line is None else line.phase


def _with_rejection(status: EndpointStatus, rejection: Rejection) -> EndpointStatus:
    """With one more rejection, which takes the place of an earlier one under the same options."""
    same = rejection_of(status, rejection.version, rejection.options)
    kept, through = _bound_rejections(
        status, [item for item in status.rejected if item is not same]
    )
    long_ago = len(kept) + 1 - REASONS_LIMIT
    short = [
        item.model_copy(update={"reason": ""}) if place < long_ago and item.reason else item
        for place, item in enumerate(kept)
    ]
    update = {"rejected": (*short, rejection), "rejected_through": through}
    return status.model_copy(update=update)


def _bound_rejections(
    status: EndpointStatus, rejected: list[Rejection]
) -> tuple[list[Rejection], int]:
    """The records that have room beside one more, and up to which number none is tried again.

    Those that ``latest`` can't come back to go first, the longest ago first; then the oldest
    versions.
    """
    through = status.rejected_through
    over = len(rejected) + 1 - REJECTIONS_LIMIT
    if over <= 0:
        return rejected, through
    least = max(_least_stable(status), through)
    numbers = [int(item.version) for item in rejected]
    behind = [place for place, number in enumerate(numbers) if number <= least][:over]
    ahead = [place for place, number in enumerate(numbers) if number > least]
    oldest = sorted(ahead, key=numbers.__getitem__)[: over - len(behind)]
    gone = {*behind, *oldest}
    through = max((through, *(numbers[place] for place in oldest)))
    return [item for place, item in enumerate(rejected) if place not in gone], through


def _least_stable(status: EndpointStatus) -> int:
    """The oldest version that is stable or that an undo may make so; 0 if there is none."""
    refs = [status.stable]
    refs += [state.stable for state in (status.rollout, status.last_rollout) if state is not None]
    return min((int(ref.version) for ref in refs if ref is not None), default=0)


def _put_first(ref: ModelRef, packages: tuple[ModelRef, ...]) -> tuple[ModelRef, ...]:
    return (ref, *(item for item in packages if item != ref))

"""Answers people's commands about a rollout: carries each out, or refuses it with a reason.

Each command is answered once, known by its id in ``status.commands``; the oldest comes first. It
never waits: what can't be done now is refused.
"""

from collections.abc import Callable, Iterable

from contracts.endpoint import EndpointStatus
from contracts.model import ModelRef
from contracts.rollout import (
    COMMANDS_LIMIT,
    Command,
    CommandOutcome,
    Outcome,
    RolloutState,
    Strategy,
    Verb,
)
from contracts.status_events import (
    CommandAnswer,
    HistoryNote,
    RetryAllowed,
    apply,
    is_passed_over,
    is_rejected,
)
from rollout import gates, status_updates, steps
from rollout.context import ReconcileContext
from rollout.view import ENDS


class _CommandRefusedError(Exception):
    """Why a command can't be done; its text is the answer."""


_Done = tuple[EndpointStatus, str]
_Handler = Callable[[EndpointStatus, Command, ReconcileContext], _Done]


def answer_commands(status: EndpointStatus, context: ReconcileContext) -> EndpointStatus:
    """Does or refuses each command that waits, and notes the answer."""
    for command in _list_waiting(status, context.observed.commands):
        try:
            status, answer = _HANDLERS[command.verb](status, command, context)
        except _CommandRefusedError as refusal:
            accepted, answer = False, str(refusal)
        else:
            accepted = True
        outcome = CommandOutcome(
            id=command.id,
            verb=command.verb,
            by=command.by,
            at=command.at,
            accepted=accepted,
            said=answer,
        )
        status = apply(status, CommandAnswer(outcome))
    return status


def _list_waiting(status: EndpointStatus, commands: Iterable[Command]) -> list[Command]:
    """Commands without an answer, oldest first, as many as answers are kept.

    An answer bears the time of its command. If the list of answers is full, a command older than
    all of them has had its answer before, and its author has not removed it yet.
    """
    known = {outcome.id for outcome in status.commands}
    is_full = len(status.commands) >= COMMANDS_LIMIT
    oldest = min((outcome.at for outcome in status.commands), default=0.0) if is_full else 0.0
    new = {
        command.id: command
        for command in commands
        if command.id not in known and not (is_full and command.at < oldest)
    }
    return sorted(new.values(), key=lambda command: (command.at, command.id))[:COMMANDS_LIMIT]


# One verb a function


def _promote(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    state = status.rollout
    if state is not None and state.promoted_at is not None:
        raise _CommandRefusedError(f"version {state.candidate.version} is promoted already")
    if command.space and (
        state is None or state.passed_at is None or state.candidate.space != command.space
    ):
        raise _CommandRefusedError(f"the space {command.space} does not wait for its cutover now")
    if state is None:
        status, state = _begin(status, command, context)
        if not command.full:  # its first step is the next one
            return _in_its_step(status, state, command, context)
    _check_version(command, state.candidate.version)
    if state.candidate not in context.observed.loaded:
        raise _CommandRefusedError(
            f"version {state.candidate.version} is not loaded on every Triton: "
            "callers would get no answer"
        )
    if not command.full and steps.following(context.spec, state) is not None:
        state = status_updates.resume(state, context.now)
        reason = _reason("sent to the next step", command)
        status = status_updates.enter_step(
            status, state, state.step + 1, context, reason=reason, by=command.by
        )
        return _in_its_step(status, status.rollout or state, command, context)
    if no_room := gates.explain_no_room(status, context):
        raise _CommandRefusedError(no_room)
    reason = _reason("promoted", command)
    status = status_updates.promote(status, state, context, reason=reason, by=command.by)
    held_back = "" if context.spec.strategy is Strategy.CUTOVER else " but the hold-back"
    return status, (
        f"version {state.candidate.version} is promoted: it has all callers{held_back}, "
        "and is watched until the end of its bake"
    )


def _in_its_step(
    status: EndpointStatus, state: RolloutState, command: Command, context: ReconcileContext
) -> _Done:
    _check_version(command, state.candidate.version)
    step = steps.describe(steps.current(context.spec, state))
    return status, (
        f"version {state.candidate.version} is in the step {step}, whose checks begin again; "
        "promote --full gives it all callers"
    )


def _begin(
    status: EndpointStatus, command: Command, context: ReconcileContext
) -> tuple[EndpointStatus, RolloutState]:
    """A rollout that had not begun yet, for its version waited, e.g. for statistics."""
    candidate = status.candidate
    if candidate is None or candidate.phase in ENDS:
        raise _CommandRefusedError("no version is on its way")
    _check_version(command, candidate.version)
    waiting = status_updates.find_waiting(status)
    if waiting is None:
        raise _CommandRefusedError(
            f"version {candidate.version} is {candidate.phase.value}, and its rollout begins "
            "once every Triton holds it; to stay on another one, pin that"
        )
    reason = _reason("begun", command)
    status = status_updates.begin(status, waiting, context, reason=reason, by=command.by)
    if status.rollout is None:
        raise AssertionError("a rollout that has begun is on")
    return status, status.rollout


def _pause(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    state = _require_rollout(status, command)
    if state.paused_at is not None:
        raise _CommandRefusedError(f"version {state.candidate.version} is paused already")
    status = status_updates.with_state(status, status_updates.pause(state, context.now))
    status = _note(status, state.candidate.version, _reason("paused", command), command, context)
    return status, (
        f"version {state.candidate.version} is paused: weights and deadline stand still; "
        "a check that fails still takes it back"
    )


def _resume(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    state = _require_rollout(status, command)
    if state.paused_at is None:
        raise _CommandRefusedError(f"version {state.candidate.version} is not paused")
    status = status_updates.with_state(status, status_updates.resume(state, context.now))
    status = _note(status, state.candidate.version, _reason("resumed", command), command, context)
    return status, f"version {state.candidate.version} goes on"


def _abort(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    state = status.rollout
    if state is None:
        status, state = _begin(status, command, context)  # given up before its first step
    _check_version(command, state.candidate.version)
    if state.promoted_at is not None:
        raise _CommandRefusedError(
            f"version {state.candidate.version} is promoted already: undo takes it back"
        )
    reason = _reason("aborted", command)
    status = status_updates.end_rollout(
        status, state, Outcome.ROLLED_BACK, context, reason=reason, by=command.by
    )
    return status, (
        f"version {state.candidate.version} is rolled back and not tried again; "
        f"all callers are on version {state.stable.version}"
    )


def _undo(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    state = status.rollout or status.last_rollout
    if state is None:
        raise _CommandRefusedError(
            "no version was promoted by a rollout: pin the version that you want"
        )
    _check_version(command, state.candidate.version)
    if status.rollout is not None and state.promoted_at is None:
        raise _CommandRefusedError(
            f"version {state.candidate.version} is not promoted yet: abort ends it"
        )
    if status.rollout is None and (
        state.outcome is not Outcome.SETTLED or status.stable != state.candidate
    ):
        raise _CommandRefusedError("the last rollout promoted nothing that still serves")
    if not _is_held(status, state.stable, context):
        raise _CommandRefusedError(
            f"version {state.stable.version} is not loaded any more: pin it to bring it back"
        )
    reason = _reason("undone", command)
    status = status_updates.end_rollout(
        status, state, Outcome.REVERTED, context, reason=reason, by=command.by
    )
    return status, (
        f"all callers are on version {state.stable.version} again; "
        f"version {state.candidate.version} is not tried again"
    )


def _pin(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    if command.version is None:
        raise _CommandRefusedError("pin needs the number of a version")
    answer = f"pinned to version {command.version}"
    status = _note_on_endpoint(status, answer, command, context)
    if is_rejected(status, command.version):
        answer += ", which was rejected, rolled back or expired: it gets callers only after retry"
    return status, answer


def _unpin(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    answer = "not pinned any more"
    return _note_on_endpoint(status, answer, command, context), answer


def _retry(status: EndpointStatus, command: Command, context: ReconcileContext) -> _Done:
    if status.rollout is not None:
        raise _CommandRefusedError(
            f"version {status.rollout.candidate.version} is on its way: retry when it has ended"
        )
    if not status.rejected:
        raise _CommandRefusedError("no version is rejected")
    version = command.version or status.rejected[-1].version
    if not is_rejected(status, version):
        if is_passed_over(status, version):
            raise _CommandRefusedError(
                f"version {version} is older than the versions whose rejections are on record: "
                "pin it to try it"
            )
        raise _CommandRefusedError(f"version {version} is not rejected")
    reason = _reason("may be tried again", command)
    status = apply(status, RetryAllowed(context.now, version, reason, by=command.by))
    return status, f"version {version} may be tried again, as far as the spec wants it"


_HANDLERS: dict[Verb, _Handler] = {
    Verb.PROMOTE: _promote,
    Verb.PAUSE: _pause,
    Verb.RESUME: _resume,
    Verb.ABORT: _abort,
    Verb.UNDO: _undo,
    Verb.PIN: _pin,
    Verb.UNPIN: _unpin,
    Verb.RETRY: _retry,
}


# What they share


def _require_rollout(status: EndpointStatus, command: Command) -> RolloutState:
    if status.rollout is None:
        raise _CommandRefusedError("no rollout is on")
    _check_version(command, status.rollout.candidate.version)
    return status.rollout


def _check_version(command: Command, version: str) -> None:
    """A person who names a version means that one, not another that took its place."""
    if command.version not in (None, version):
        raise _CommandRefusedError(
            f"it is version {version} that this is about, not {command.version}"
        )


def _is_held(status: EndpointStatus, ref: ModelRef, context: ReconcileContext) -> bool:
    return ref in status.packages and ref in context.observed.loaded


def _reason(done: str, command: Command) -> str:
    stated = f" (stated: {command.stated})" if command.stated else ""
    sentence = f"{done} by {command.by}{stated}"
    return f"{sentence}: {command.reason}" if command.reason else sentence


def _note(
    status: EndpointStatus, version: str, reason: str, command: Command, context: ReconcileContext
) -> EndpointStatus:
    """Adds a line of history that changes no phase."""
    step = status.rollout.step if status.rollout else None
    return apply(status, HistoryNote(context.now, version, reason, by=command.by, step=step))


def _note_on_endpoint(
    status: EndpointStatus, done: str, command: Command, context: ReconcileContext
) -> EndpointStatus:
    """A note about the endpoint, kept on the version that serves."""
    version = status.stable.version if status.stable else command.version or ""
    return _note(status, version, _reason(done, command), command, context)

"""What an endpoint remembers of its rollouts, each kept to its bound: lines, rejections, answers.

Called by ``moves.py`` and ``commands.py``. It never decides what happens.
"""

from collections.abc import Iterable

from contracts import rejections
from contracts.endpoint import (
    HISTORY_LIMIT,
    EndpointStatus,
    Phase,
    Rejection,
    Transition,
)
from contracts.rollout import (
    COMMANDS_LIMIT,
    CheckResult,
    CommandOutcome,
    RolloutState,
)


def with_line(status: EndpointStatus, line: Transition) -> EndpointStatus:
    """With one more line of history; the oldest gives way."""
    lines = (*status.history, line)[-HISTORY_LIMIT:]
    return status.model_copy(update={"history": lines})


def with_rejection(
    status: EndpointStatus, state: RolloutState, reason: str, now: float
) -> EndpointStatus:
    """With a version that is not tried again under the same options."""
    rejection = Rejection(
        version=state.candidate.version, options=state.options, reason=reason, at=now
    )
    return rejections.added(status, rejection)


def with_answer(status: EndpointStatus, outcome: CommandOutcome) -> EndpointStatus:
    """With what became of a command."""
    return status.model_copy(update={"commands": (*status.commands, outcome)[-COMMANDS_LIMIT:]})


def last_phase(status: EndpointStatus, version: str) -> Phase:
    """The phase of a version by the last line about it; one without a line serves."""
    found = (line.phase for line in reversed(status.history) if line.version == version)
    return next(found, Phase.SERVING)


def figures(checks: Iterable[CheckResult]) -> dict[str, float]:
    """The figures of checks under ``<check>.<figure>``, for a line of history."""
    return {
        f"{check.name}.{name}": value for check in checks for name, value in check.figures.items()
    }

"""Keeps a status within what a cluster stores of an object, and ends a rollout that can't be kept.

The whole status lies in a record (``contracts/endpoint_record.py``), and etcd takes 1.5 MB of an
object. One that it refuses would leave a canary at its weight, and nobody could roll it back. So
the oldest and most detailed gives way first: figures of old lines of the history, then the last
rollout's evidence and plot (its run in MLflow has both), then the plot of the rollout that goes on.
Its evidence never does, for verdicts follow from it. Pure.
"""

from collections.abc import Callable

from contracts.endpoint import EndpointStatus
from contracts.endpoint_record import text_of
from contracts.rollout import CheckResult, Outcome, RolloutState
from contracts.status_events import RolloutEnding, apply
from rollout.series import gather
from rollout.status_updates import resume

MOST_BYTES = 896 << 10
_RECENT_LINES = 10  # of the history, that keep their figures longer
_FEW_POINTS = 60  # of a plot


def size(status: EndpointStatus) -> int:
    """Bytes of a status as its record holds it."""
    return len(text_of(status).encode())


def fit_status(status: EndpointStatus, most: int = MOST_BYTES) -> EndpointStatus | None:
    """The status in at most this number of bytes; None if its rollout's evidence has no room."""
    for cut in (None, *_CUTS):
        status = cut(status) if cut else status
        if size(status) <= most:
            return status
    return None


def withdraw(status: EndpointStatus, now: float, reason: str) -> EndpointStatus:
    """Ends the rollout, as small as it can be: all callers are with stable again.

    It says nothing of the version, which is not tried again unless a person asks for it.
    """
    state = status.rollout
    if state is None:
        return status
    bare = resume(state, now).model_copy(
        update={"evidence": {}, "series": (), "checks": _without_figures(state.checks)}
    )
    # A promoted version is rolled back; one on its way has had no verdict.
    outcome = Outcome.EXPIRED if state.promoted_at is None else Outcome.REVERTED
    ended = apply(status, RolloutEnding(now, bare, outcome, reason))
    return _with_figures_of(ended, 0)


def _with_figures_of(status: EndpointStatus, lines: int) -> EndpointStatus:
    """Returns the status with the figures of only the newest lines of the history."""
    bare = len(status.history) - lines
    history = tuple(
        line.model_copy(update={"figures": {}}) if place < bare and line.figures else line
        for place, line in enumerate(status.history)
    )
    return status.model_copy(update={"history": history})


def _without_figures(checks: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
    return tuple(check.model_copy(update={"figures": {}}) for check in checks)


def _find_last(status: EndpointStatus, **update: object) -> EndpointStatus:
    """Returns the status with the rollout that ended changed."""
    last = status.last_rollout
    if last is None:
        return status
    return status.model_copy(update={"last_rollout": last.model_copy(update=update)})


def _series_of(state: RolloutState | None) -> tuple[object, ...]:
    return tuple(gather(state.series, _FEW_POINTS)) if state and state.series else ()


def _rollout(status: EndpointStatus, **update: object) -> EndpointStatus:
    """Returns the status with the rollout that goes on changed."""
    if status.rollout is None:
        return status
    return status.model_copy(update={"rollout": status.rollout.model_copy(update=update)})


_CUTS: tuple[Callable[[EndpointStatus], EndpointStatus], ...] = (
    lambda status: _with_figures_of(status, _RECENT_LINES),
    lambda status: _find_last(status, evidence={}),
    lambda status: _find_last(status, series=_series_of(status.last_rollout)),
    lambda status: _with_figures_of(status, 0),
    lambda status: _find_last(status, series=()),
    lambda status: _find_last(
        status,
        checks=_without_figures(status.last_rollout.checks if status.last_rollout else ()),
    ),
    lambda status: _rollout(status, series=_series_of(status.rollout)),
    lambda status: _rollout(status, series=()),
)

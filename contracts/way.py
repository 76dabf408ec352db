"""The way of a version to all callers, as a line of stages for people. Pure.

Drawn by ``headrace rollout status`` and by the page ``/ui``, each of which names the steps in its
own words. It never says more than the stored status holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contracts.endpoint import Phase
from contracts.rollout import Outcome, RolloutSpec, RolloutState, Step, Strategy


class Mark(StrEnum):
    """Where a stage stands."""

    DONE = "done"
    NOW = "now"
    AHEAD = "todo"
    FAILED = "failed"
    LEFT = "left"  # the rollout ended here for another's sake


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage on the way to all callers."""

    name: str
    mark: Mark


BEFORE: Final = ("converting", "verifying", "loading")
# The stage that a version is in before it is compared.
REACHED: Final = {
    Phase.WAITING: 0,
    Phase.CONVERTING: 0,
    Phase.VERIFYING: 1,
    Phase.PUBLISHING: 1,
    Phase.LOADING: 2,
    Phase.LOADED: 3,
}
_ENDED: Final = {
    None: Mark.NOW,
    Outcome.ROLLED_BACK: Mark.FAILED,
    Outcome.REVERTED: Mark.FAILED,
    Outcome.SUPERSEDED: Mark.LEFT,
}


@dataclass(frozen=True, slots=True)
class Words:
    """What stages are called: each step, and the time between promotion and the end."""

    step: Callable[[Step], str]
    promoted: str


def preparation(
    spec: RolloutSpec, words: Words, at: int, mark: Mark, *, is_first: bool
) -> tuple[Stage, ...]:
    """The way of a version that is not compared yet; a first one is compared with nothing."""
    direct = is_first or spec.strategy is Strategy.DIRECT
    names = (*BEFORE, "serving") if direct else _names(spec, words)
    return _marked(names, min(at, len(names) - 1), mark)


def rollout(spec: RolloutSpec, words: Words, state: RolloutState) -> tuple[Stage, ...]:
    """The way of a version that is compared, or was."""
    names = _names(spec, words)
    if state.outcome is Outcome.SETTLED:
        return _marked(names, len(names), Mark.DONE)
    at = len(BEFORE) + min(state.step, len(spec.planned) - 1)
    if state.promoted_at is not None:
        at = len(names) - 2
    return _marked(names, at, _ENDED[state.outcome])


def _names(spec: RolloutSpec, words: Words) -> tuple[str, ...]:
    return (*BEFORE, *map(words.step, spec.planned), words.promoted, "settled")


def _marked(names: tuple[str, ...], at: int, mark: Mark) -> tuple[Stage, ...]:
    """Stages before ``at`` are done, that one is marked, the others are ahead."""
    return tuple(
        Stage(name, Mark.DONE if number < at else mark if number == at else Mark.AHEAD)
        for number, name in enumerate(names)
    )

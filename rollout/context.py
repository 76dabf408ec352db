"""What one pass of the rollout machine is given: the last observation, and a judge. No I/O.

``judge.py`` satisfies the Protocol ``Judge`` with the real checks, tests with small classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from contracts.model import ModelRef
from contracts.rollout import Command, RolloutSpec, RolloutState
from contracts.windows import EndpointWindow
from measures.counting import CountingState, CountingStatus


@dataclass(frozen=True, slots=True)
class Observation:
    """The last observation of an endpoint's surroundings.

    Attributes:
        loaded: packages that every Triton in service holds.
        failures: packages that a Triton refused by their own fault, with its words.
        target: number of the version that the spec wants now; None if that is not known.
        windows: closed ones, oldest first, those before the rollout too; None while statistics
            can't be read, which holds everything that needs evidence.
        counting: whether the traffic is in the windows. If it is not, windows that do not come
            say nothing, and hold everything that needs evidence too.
        commands: what people asked for, answered ones too.
    """

    loaded: frozenset[ModelRef] = frozenset()
    failures: Mapping[ModelRef, str] = field(default_factory=dict)
    target: str | None = None
    windows: tuple[EndpointWindow, ...] | None = None
    counting: CountingStatus = field(default_factory=lambda: CountingStatus(CountingState.COUNTED))
    commands: tuple[Command, ...] = ()

    @property
    def newest_end(self) -> float:
        """Event time up to which windows are closed, unix seconds; 0 without any."""
        return max((window.start + window.seconds for window in self.windows or ()), default=0.0)


class Judge(Protocol):
    """Turns windows into a rollout's evidence.

    A judge is pure: the same arguments give the same state, and it has no memory but the state. It
    sets a state's evidence, checks, series and ``looked_through``; all other fields are the
    machine's. The stage follows only from spec and state: ``state.promoted_at`` is set in the
    bake, else ``rollout.steps.current`` says whether callers or copies go to the candidate.
    """

    def begin(
        self, spec: RolloutSpec, state: RolloutState, history: Sequence[EndpointWindow]
    ) -> RolloutState:
        """Begins fresh evidence, which knows stable's past from these windows, oldest first.

        It begins again with more of them as long as a rollout without a shadow step has too little
        history; nothing has been judged by then.
        """

    def look(
        self, spec: RolloutSpec, state: RolloutState, windows: Sequence[EndpointWindow]
    ) -> RolloutState:
        """Judges the windows that end after ``state.looked_through``, each once.

        Afterwards ``looked_through`` is the end of the last window. A check that the spec has only
        now begins here. Without a newer window and with the same spec the state stays as it is.
        """

    def next_stage(self, spec: RolloutSpec, state: RolloutState) -> RolloutState:
        """Ready for the step that the state has just entered: tests for ``pass`` begin again."""

    def history_windows(self, state: RolloutState) -> int:
        """How many windows with traffic of stable, before any canary, the evidence rests on."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """All that one pass decides on, apart from the endpoint's status. ``now`` in unix seconds."""

    spec: RolloutSpec
    observed: Observation
    now: float
    judge: Judge

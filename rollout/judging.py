"""What the machine asks of whoever judges: the Protocol between ``machine.py`` and the checks.

``judge.py`` satisfies it with the real checks, tests with small classes. A judge is pure: the same
arguments give the same state, and it has no memory but the state. It sets a state's evidence,
checks, series and ``looked_through``; all other fields are the machine's.
"""

from collections.abc import Sequence
from typing import Protocol

from contracts.rollout import RolloutSpec, RolloutState
from contracts.windows import EndpointWindow


class Judge(Protocol):
    """Turns windows into a rollout's evidence.

    The stage follows from spec and state alone: ``state.promoted_at`` is set in the bake, else
    ``rollout.steps.current`` says whether callers or copies go to the candidate.
    """

    def begin(
        self, spec: RolloutSpec, state: RolloutState, history: Sequence[EndpointWindow]
    ) -> RolloutState:
        """With fresh evidence, which knows stable's past from these windows, oldest first.

        Called once at the start, and again with more of them as long as a rollout without a shadow
        step has too little history; nothing has been judged by then.
        """
        ...

    def look(
        self, spec: RolloutSpec, state: RolloutState, windows: Sequence[EndpointWindow]
    ) -> RolloutState:
        """With the windows that end after ``state.looked_through`` judged, each once.

        Afterwards ``looked_through`` is the end of the last window. A check that the spec has only
        now begins here. Without a newer window and with the same spec the state stays as it is.
        """
        ...

    def next_stage(self, spec: RolloutSpec, state: RolloutState) -> RolloutState:
        """Ready for the step that the state has just entered: tests for ``pass`` begin anew."""
        ...

    def history_windows(self, state: RolloutState) -> int:
        """How many windows with traffic of stable, before any canary, the evidence rests on."""
        ...

"""What a pass of the machine is given: the world as last observed, and who judges. Values alone.

Made by ``controller/rollouts.py``, read by ``machine.py``, ``commands.py`` and
``moves.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.model import ModelRef
from contracts.rollout import Command, RolloutSpec
from contracts.windows import EndpointWindow
from measures.counting import Counting, CountingState
from rollout.judging import Judge


@dataclass(frozen=True, slots=True)
class Seen:
    """The last observation of an endpoint's surroundings.

    Attributes:
        loaded: packages that every Triton in service holds.
        failures: packages that a Triton refused by their own fault, with its words.
        target: number of the version that the spec wants now; None where that is not known.
        windows: closed ones, oldest first, those before the rollout too; None while statistics
            can't be read, which holds everything that needs evidence.
        counting: whether the traffic is in the windows. Where it is not, windows that do not come
            say nothing, and hold everything that needs evidence too.
        commands: what people asked for, answered ones too.
    """

    loaded: frozenset[ModelRef] = frozenset()
    failures: Mapping[ModelRef, str] = field(default_factory=dict)
    target: str | None = None
    windows: tuple[EndpointWindow, ...] | None = None
    counting: Counting = field(default_factory=lambda: Counting(CountingState.COUNTED))
    commands: tuple[Command, ...] = ()

    @property
    def newest_end(self) -> float:
        """Event time up to which windows are closed, unix seconds; 0 without any."""
        return max((window.start + window.seconds for window in self.windows or ()), default=0.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """All that one pass decides on, apart from the endpoint's status. ``now`` in unix seconds."""

    spec: RolloutSpec
    seen: Seen
    now: float
    judge: Judge

"""What a pass of the machine is given: the world as last observed, and who judges. Values alone.

Made by ``headrace/controller/rollouts.py``, read by ``machine.py``, ``commands.py`` and
``moves.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.model import ModelRef
from contracts.rollout import Command, RolloutSpec
from contracts.windows import EndpointWindow
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
        commands: what people asked for, answered ones too.
    """

    loaded: frozenset[ModelRef] = frozenset()
    failures: Mapping[ModelRef, str] = field(default_factory=dict)
    target: str | None = None
    windows: tuple[EndpointWindow, ...] | None = None
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

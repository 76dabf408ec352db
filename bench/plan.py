"""What every suite is told: how long, how often, and where to leave its files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import Load, Result, offer


@dataclass(frozen=True)
class Plan:
    """One run of a suite.

    ``under_test`` and ``rest`` are core numbers: what is measured gets the first, load and
    everything else the second. ``cache`` holds downloads.
    """

    folder: Path
    cache: Path
    rounds: int = 5
    seconds: float = 5.0
    warm_up_seconds: float = 2.0
    under_test: int = 0
    rest: int = 1
    seed: int = 7

    def offer(self, *, seconds: float | None = None, **load: Any) -> Result:  # noqa: ANN401 - its own
        """What a load of this plan's length at a port of 127.0.0.1 comes to."""
        known = {"host": "127.0.0.1", "warm_up_seconds": self.warm_up_seconds, **load}
        measured = self.seconds if seconds is None else seconds
        return offer(Load(seconds=measured, **known), [self.rest])

"""What every suite is told: how long, how often, and where to leave its files.

Built once by ``__main__``; tests build small ones.
"""

from dataclasses import dataclass
from pathlib import Path


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

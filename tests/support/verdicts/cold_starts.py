"""Versions that are slow at first only, and versions that are slow for good.

The first are identical to stable once they are warm, as their copies in shadow are: going back is
wrong. The others must still be found.
"""

import numpy as np

from verdicts import whole
from verdicts.findings import Finding, needed, share
from verdicts.traffic import Harm

COLD = (
    Harm("half as long again at first", slower=1.5, in_shadow=False, fades=60.0),
    Harm(
        "twice as long at first, fading in half the time", slower=2.0, in_shadow=False, fades=30.0
    ),
)
SLOW = tuple(
    Harm(f"{slower:g} times as long{whose}", slower=slower, in_shadow=not whose)
    for whose in ("", ", of callers alone")
    for slower in (1.1, 1.2, 1.5)
)


def wrongly_back(rollouts: int, processes: int = 1) -> list[Finding]:
    """How whole rollouts end, so many a row, in the traffic of ``whole.WORLDS``."""
    found = []
    for number, harm in enumerate(COLD):
        ended = whole.walks(rollouts, processes, harm, seed=(35, number))
        found += whole.of_group(harm.name, ended, 0.05)
    for number, harm in enumerate(SLOW):
        ended = whole.walks(rollouts, processes, harm, seed=(36, number % 3))
        met = np.array([one.met if one.causes else np.inf for one in ended])
        found.append(share(harm.name, "back", np.array([bool(one.causes) for one in ended])))
        found.append(needed(harm.name, "requests that callers sent it before it went", met))
    return found

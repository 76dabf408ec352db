"""Rollouts of services with few requests, and of versions that harm one caller alone.

How long a verdict takes, in the steps and by the checks that are the defaults. Requests of the
small services are nobody's, come evenly and are all copied in shadow; no arm is empty for long.
"""

import numpy as np

from contracts.windows import WINDOW_SECONDS
from measures.correlation import Floats
from verdicts import whole
from verdicts.findings import Finding, needed, share
from verdicts.traffic import Harm
from verdicts.worlds import Stream, Traffic, World

SEED = 22
RATES = (0.2, 1.0, 2.0, 5.0)  # requests a second
# Of copies: ``traffic.harmed`` draws harm among callers from those with a name, and has none here.
HARMS = (
    Harm("10 points more errors", fails=0.1),
    Harm("10 points more of a label", flips=1 / 6),  # of the 60 % that have the other one
)

# A caller with 20 judged requests a window, of about 600 of all.
ONE_CALLER = World(
    "a version fails at 30 % of one caller's requests, and at no copy",
    (Stream(1000.0), Stream(100.0, callers=1, broken=0.3)),
)


def small_services(rollouts: int) -> list[Finding]:
    """How many get a verdict within a day, and after how many minutes."""
    found = []
    for number, rate in enumerate(RATES):
        name = f"{rate:g} requests a second"
        world = World(name, (Stream(rate * WINDOW_SECONDS, callers=0),))
        same = _walked(world, rollouts, (SEED, number))
        took = np.array([one.windows for one in same])
        found += [
            share(name, "as good: promoted within a day", np.isfinite(took)),
            needed(name, "as good: minutes to promotion", _minutes(took), unit="minutes"),
            share(name, "as good: failed", np.array([bool(one.causes) for one in same]), 0.05),
        ]
        for kind, harm in enumerate(HARMS, start=1):
            ended = _walked(world, rollouts, (SEED, number, kind), harm)
            until = np.array([one.lasted if one.causes else np.inf for one in ended])
            found += [
                share(name, f"{harm.name}: found within a day", np.isfinite(until)),
                needed(name, f"{harm.name}: minutes", _minutes(until), unit="minutes"),
            ]
    return found


def of_one_caller(rollouts: int) -> list[Finding]:
    """How rollouts of a version end that harms one caller alone, and not in shadow."""
    ended = _walked(ONE_CALLER, rollouts, (SEED, len(RATES)))
    name = ONE_CALLER.name
    return [
        share(name, "back by a check", np.array([bool(one.causes) for one in ended])),
        share(name, "expired", np.array([one.is_back and not one.causes for one in ended])),
        share(name, "settled", np.array([not one.is_back for one in ended])),
    ]


def _walked(
    world: World, rollouts: int, seed: tuple[int, ...], harm: Harm | None = None
) -> list[whole.Ended]:
    rng = np.random.default_rng(list(seed))
    return whole.walked(Traffic.of(world, rollouts, rng), rollouts, rng, harm)


def _minutes(windows: Floats) -> Floats:
    return windows * WINDOW_SECONDS / 60

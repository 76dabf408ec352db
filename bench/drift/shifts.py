"""How many windows real shifts take to be found, by production's monitors.

Each stream calibrates itself on a quiet day; then other texts come, from one window to the next.
Counted is from that window on, the first being 1.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.drift.false_alarms import DAILY, KINDS, STEADY, Quiet, settled
from bench.drift.monitored import level, significant
from bench.drift.population import EDITORIALS, GERMAN, PRODUCTS, TWEETS
from bench.drift.traffic import DAY, Stock, mixed
from bench.findings import Finding, needed
from measures.correlation import Floats

TEXTS: Final = 1000
WITHIN: Final = 120  # windows watched
TENTH: Final = "10 % German"
# Which texts replace which part of the traffic.
SHIFTS: Final[Mapping[str, tuple[str, float]]] = {
    "tweets": (TWEETS, 1.0),
    "product reviews": (PRODUCTS, 1.0),
    "editorials": (EDITORIALS, 1.0),
    TENTH: (GERMAN, 0.1),
    "5 % German": (GERMAN, 0.05),
    "2 % German": (GERMAN, 0.02),
}
_ASKED_WINDOWS = 5
_SET = {"one a day": DAY, "one in 30 days": 30 * DAY}


def study(stock: Stock, streams: int) -> list[Finding]:
    """All shifts, in traffic that was steady and in traffic with a rhythm of the day."""
    return [row for kind in (STEADY, DAILY) for row in _kind(stock, kind, streams)]


def _kind(stock: Stock, kind: Quiet, streams: int) -> list[Finding]:
    rng = np.random.default_rng([13, KINDS.index(kind)])
    quiet = settled(stock, rng, kind, TEXTS, streams)
    scenario = kind.scenario(stock, rng, TEXTS, WITHIN)
    found = []
    for name, (domain, part) in SHIFTS.items():
        shifted = mixed(scenario, stock.shares({domain: 1.0}), part)
        counts = np.stack([stock.counts(rng, shifted) for _ in range(streams)])
        seen = quiet.copy().walk(counts)
        for said, windows in _SET.items():
            limits = quiet.thresholds(windows)
            reached = level(seen, limits)
            for what, told in (
                ("significant", significant(seen, limits)),
                ("warns (PSI 0.1)", reached >= 1),
                ("alarms (PSI 0.2)", reached >= 2),
            ):
                asked = _ASKED_WINDOWS if name == TENTH and what == "significant" else None
                where = f"{kind.name}, {what}, {said}"
                found.append(needed(name, where, first(told), asked, "windows"))
    return found


def first(told: NDArray[np.bool_]) -> Floats:
    """``[streams]``: number of the first of ``[streams, windows]`` that tells, or infinite."""
    return np.where(told.any(axis=1), told.argmax(axis=1) + 1.0, np.inf)

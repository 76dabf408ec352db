"""How often quiet traffic alarms, against how often it is said to.

Each stream has a reference of its own and a day in which production calibrates itself; the next day
is judged, and nothing has changed in it. What is counted is where an alarm begins, for one that
goes on wakes nobody twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.drift.evidently import psi
from bench.drift.monitored import Endpoint, Seen, beginnings, level, significant
from bench.drift.population import MOVIES, PRODUCTS
from bench.drift.traffic import DAY, Scenario, Stock, daily, steady
from bench.findings import Finding, rate
from measures.correlation import Floats

SIZES = (100, 300, 1000, 5000)
REFERENCE = 5000
SWING = 0.1
BARE = "significant, not calibrated"
_EVIDENTLY_REFERENCES, _EVIDENTLY_WINDOWS = 50, 20


@dataclass(frozen=True)
class Quiet:
    """Traffic in which nothing happens.

    Attributes:
        name: for the table.
        rhythm: whether it follows the hour of day.
        reference: mixture that the reference is drawn from.
        smallest: of a window's mean, what production is told is its smallest window.
    """

    name: str
    rhythm: bool
    reference: tuple[float, float]
    smallest: float

    def scenario(
        self, stock: Stock, rng: np.random.Generator, texts: int, windows: int
    ) -> Scenario:
        """The first windows of a day of it."""
        if self.rhythm:
            return daily(stock, rng, texts, windows, SWING)
        return steady(stock.shares({MOVIES: 1.0}), texts, windows)

    def drawn(self, stock: Stock, rng: np.random.Generator, streams: int) -> Floats:
        """``[streams, all bins]``: references."""
        movies, products = self.reference
        shares = stock.shares({MOVIES: movies, PRODUCTS: products})
        return stock.counts(rng, steady(shares, REFERENCE, streams))


# By day more texts come, so that of all texts less than SWING are of products.
_OF_THE_DAY = (1 - 0.75 * SWING, 0.75 * SWING)
STEADY = Quiet("steady", rhythm=False, reference=(1.0, 0.0), smallest=1.0)
DAILY = Quiet("with a rhythm of the day", rhythm=True, reference=_OF_THE_DAY, smallest=0.5)
UNLIKE = Quiet(
    "with a rhythm, reference without it", rhythm=True, reference=(1.0, 0.0), smallest=0.5
)
KINDS = (STEADY, DAILY, UNLIKE)


def steadily(stock: Stock, streams: int) -> list[Finding]:
    """Traffic that is always the same, in windows of all sizes; and PSI at fixed thresholds."""
    rows = [row for texts in SIZES for row in _production(stock, STEADY, texts, streams)]
    return [*rows, *(row for texts in SIZES for row in _fixed(stock, texts))]


def rhythmically(stock: Stock, streams: int) -> list[Finding]:
    """Traffic that follows the hour of day, in windows of all sizes."""
    rows = [row for texts in SIZES for row in _production(stock, DAILY, texts, streams)]
    return [*rows, *_production(stock, UNLIKE, 1000, streams)]


def settled(
    stock: Stock, rng: np.random.Generator, kind: Quiet, texts: int, streams: int
) -> Endpoint:
    """An endpoint that has seen its first day, and has calibrated itself on it."""
    endpoint = Endpoint.begin(kind.drawn(stock, rng, streams), kind.smallest * texts)
    endpoint.calibrated(watched(stock, rng, endpoint, kind, texts, sized=False))
    return endpoint


def watched(
    stock: Stock,
    rng: np.random.Generator,
    endpoint: Endpoint,
    kind: Quiet,
    texts: int,
    *,
    sized: bool,
) -> Seen:
    """A day of quiet windows, shown to every stream of the endpoint, drawn anew for each."""
    streams = len(endpoint.monitors[0].w)
    parts = [
        endpoint.walk(np.stack([stock.counts(rng, part) for _ in range(streams)]), sized=sized)
        for part in _pieces(kind.scenario(stock, rng, texts, DAY))
    ]
    return Seen(
        np.concatenate([part.chi_square for part in parts], axis=1),
        np.concatenate([part.psi for part in parts], axis=1),
    )


def _pieces(scenario: Scenario, windows: int = 240) -> Iterator[Scenario]:
    """So many windows at a time, for all streams' counts of a day are large."""
    for at in range(0, len(scenario), windows):
        yield Scenario(scenario.shares[at : at + windows], scenario.texts[at : at + windows])


def _production(stock: Stock, kind: Quiet, texts: int, streams: int) -> list[Finding]:
    rng = np.random.default_rng([11, KINDS.index(kind), texts])
    endpoint = settled(stock, rng, kind, texts, streams)
    seen = watched(stock, rng, endpoint, kind, texts, sized=True)
    found = []
    for windows, said in ((DAY, "one a day"), (30 * DAY, "one in 30 days")):
        limits = endpoint.thresholds(windows)
        bare = endpoint.uncalibrated(windows)
        for what, alarms in (
            ("significant", significant(seen, limits)),
            ("warns", level(seen, limits) >= 1),
            ("alarms", level(seen, limits) >= 2),
            (BARE, significant(seen, bare)),
        ):
            begun = int(beginnings(alarms).sum())
            row = rate(f"{kind.name}, {what}, set to {said}", texts, begun, alarms.size, windows)
            # Nobody asks anything of what production does not do.
            found.append(replace(row, target=None) if what == BARE else row)
    return found


def _fixed(stock: Stock, texts: int) -> list[Finding]:
    """Evidently's PSI on steady windows: how many alarm at a fixed threshold."""
    rng = np.random.default_rng([12, texts])
    movies = stock.shares({MOVIES: 1.0})
    found = []
    for _ in range(_EVIDENTLY_REFERENCES):
        (reference,), _counts = stock.draw(rng, steady(movies, REFERENCE, 1))
        drawn, _counts = stock.draw(rng, steady(movies, texts, _EVIDENTLY_WINDOWS))
        found += psi(reference, drawn).max(axis=1).tolist()
    worst = np.array(found)
    return [
        rate(f"Evidently's PSI at {limit}", texts, int((worst >= limit).sum()), len(worst), None)
        for limit in (0.1, 0.2)
    ]

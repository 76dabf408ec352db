"""Traffic of weeks, compared with what is usual at this time: quiet days, and a few other texts.

Each stream lives its own weeks: a rhythm of the day whose size differs from day to day, and other
texts at the weekend. Production's arithmetic learns every day once it is over, and calibrates
itself on each day that it compares. False alarms are counted from the third week on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from bench.drift.monitored import Seen, apart, beginnings, level, significant
from bench.drift.population import GERMAN, MOVIES, PRODUCTS, STATISTICS, TWEETS, widths
from bench.drift.shifts import TEXTS, WITHIN, first
from bench.drift.traffic import DAY, Scenario, Stock
from bench.findings import Finding, needed, rate
from measures.correlation import Floats
from measures.monitoring import QUESTIONS, WEIGHTS, Bins, Calibration, spend
from measures.rhythm import SLOT_SECONDS, SLOTS_A_DAY, Rhythm, Week, WeekMonitors, sure
from stats.evaluation.usual import WARNS

MONDAY: Final = 4 * 86_400  # of January 1970, midnight, unix seconds
LEARNT_DAYS, JUDGED_DAYS = 14, 21
SWING, VARIES, WEEKEND_TWEETS = 0.1, 0.15, 0.15
SHARES: Final = (0.1, 0.05, 0.02, 0.01)  # of German texts
HISTORIES: Final = (3, 14)  # days
ASKED_WINDOWS: Final = 15
_ASKED: Final = 0.02
_RATES: Final = {"one a day": DAY, "one in 30 days": 30 * DAY}
_SLOT: Final = SLOT_SECONDS // 60  # windows
_WEEK: Final = Week()


def quiet_day(stock: Stock, rng: np.random.Generator, day: int, noons: Sequence[float]) -> Scenario:
    """A day of one stream, 0 being a Monday.

    Products come by night and traffic by day, as in ``traffic.daily``. At weekends traffic is half,
    and tweets come by day.

    Args:
        stock: what to draw from.
        rng: of the number of texts, a Poisson draw.
        day: number of the day.
        noons: how much more or less of products and tweets there is than in a mean day, at the
            noons of the day before, of this day, and of the next one; between them it moves evenly.
    """
    hour = np.cos(2 * np.pi * np.arange(DAY) / DAY)
    of_day = np.interp(np.arange(DAY), np.array([-0.5, 0.5, 1.5]) * DAY, noons)
    products = SWING * of_day * (1 + hour)
    weekend = day % 7 >= 5
    tweets = WEEKEND_TWEETS * of_day * (1 - hour) / 2 if weekend else np.zeros(DAY)
    mean = TEXTS * (1 - 0.5 * hour) * (0.5 if weekend else 1.0)
    shares = (
        (1 - products - tweets)[:, None] * stock.shares({MOVIES: 1.0})
        + products[:, None] * stock.shares({PRODUCTS: 1.0})
        + tweets[:, None] * stock.shares({TWEETS: 1.0})
    )
    return Scenario(shares, np.maximum(1, rng.poisson(mean)))


@dataclass
class Endpoint:
    """All statistics of one endpoint in some streams, as ``stats.evaluation.usual`` holds one.

    Attributes:
        streams: how many.
        rhythms: one a statistic.
        noons: ``[streams, days]``, how much each day differs; see ``quiet_day``.
        bins: one a statistic, chosen once a day was learnt.
        monitors: one a statistic.
        calibrations: one a statistic, of each kind of day.
    """

    streams: int
    rhythms: list[Rhythm]
    noons: Floats
    bins: list[Bins] = field(default_factory=list)
    monitors: list[WeekMonitors] = field(default_factory=list)
    calibrations: list[list[Calibration]] = field(default_factory=list)

    @classmethod
    def begin(cls, rng: np.random.Generator, streams: int) -> Self:
        """Nothing learnt yet."""
        noons = np.maximum(0.0, rng.normal(1.0, VARIES, (streams, LEARNT_DAYS + JUDGED_DAYS + 2)))
        rhythms = [Rhythm(_WEEK.slots, width, (streams,)) for width in widths()]
        return cls(streams, rhythms, noons)

    def learn(self, counts: Floats, day: int) -> None:
        """Learns a day, ``[streams, windows, all bins]``, once it is over."""
        for rhythm, part in zip(self.rhythms, apart(counts), strict=True):
            for quarter in range(SLOTS_A_DAY):
                seen = part[:, quarter * _SLOT : (quarter + 1) * _SLOT].sum(axis=1)
                rhythm.learn(_WEEK.slot(_time(day, quarter * _SLOT)), seen)
        if not self.bins:
            for rhythm in self.rhythms:
                # One choice for all streams, so that they can be walked side by side.
                bins = Bins.of(rhythm.totals[0].sum(axis=0), TEXTS)
                self.bins.append(bins)
                self.monitors.append(WeekMonitors.begin(bins, _WEEK.slots, (self.streams,)))
                begun = Calibration.begin((self.streams,))
                self.calibrations.append([begun] * _WEEK.kinds)

    def walk(self, counts: Floats, day: int, *, sized: bool = False) -> Seen | None:
        """Looks at the first windows of a day; None where its kind is not known yet."""
        mixes = [_WEEK.mix(_time(day, window) + 30) for window in range(counts.shape[1])]
        if not self.bins or not all(self.rhythms[0].covered(mix) for mix in mixes):
            return None
        shape = (self.streams, counts.shape[1], len(STATISTICS), len(WEIGHTS))
        seen = Seen(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for at, part in enumerate(apart(counts)):
            monitors, rhythm, bins = self.monitors[at], self.rhythms[at], self.bins[at]
            known = rhythm.texts_a_day()
            for window, mix in enumerate(mixes):
                monitors = monitors.after(part[:, window], *rhythm.expected(mix, bins))
                seen.chi_square[:, window, at] = monitors.chi_square(known)
                if sized:
                    seen.psi[:, window, at] = monitors.psi(known)
            self.monitors[at] = monitors
        return seen

    def calibrate(self, seen: Seen, usable: NDArray[np.bool_], day: int) -> None:
        """Learns from windows that were not significant, ``[streams, windows]``."""
        many = usable.sum(axis=1).astype(float)
        kind = _kind(day)
        for at, of_kinds in enumerate(self.calibrations):
            held = of_kinds[kind]
            found = np.where(usable[..., None], seen.chi_square[:, :, at].astype(float), 0.0)
            of_kinds[kind] = Calibration(
                held.windows + many,
                held.seconds + 60.0 * many,
                held.total + found.sum(axis=1),
                held.squares + (found**2).sum(axis=1),
            )

    def thresholds(self, windows_per_alarm: float, day: int) -> Floats:
        """``[streams, statistics, weights]``; infinite where nothing is calibrated."""
        compared = sum(bins.degrees > 0 for bins in self.bins)
        alpha = spend(1.0, QUESTIONS * windows_per_alarm, compared)
        found = []
        for bins, of_kinds in zip(self.bins, self.calibrations, strict=True):
            held = of_kinds[_kind(day)]
            limits = np.full_like(held.total, np.inf)
            if bins.degrees:
                chance = np.full(self.streams, float(alpha))
                told, ready = sure(held, chance, bins.degrees, 60.0 * DAY)
                limits = np.where(ready, told, limits)
            found.append(limits)
        return np.stack(found, axis=1)

    def copy(self) -> "Endpoint":
        """The same state, for a day that is not learnt; monitors are values."""
        return replace(self, monitors=list(self.monitors))


def study(stock: Stock, streams: int) -> list[Finding]:
    """False alarms of quiet weeks, and windows until other texts are found."""
    rng = np.random.default_rng(17)
    endpoint = Endpoint.begin(rng, streams)
    began = dict.fromkeys(_RATES, 0)
    rows: list[Finding] = []
    for day in range(LEARNT_DAYS + JUDGED_DAYS):
        if day in HISTORIES:
            rows += _found(stock, rng, endpoint, day)
        counts = _drawn(stock, rng, day, (endpoint.noons, np.zeros(streams, np.int64)))
        seen = endpoint.walk(counts, day)
        if seen is not None:
            usable = np.ones(seen.chi_square.shape[:2], bool)
            if day >= LEARNT_DAYS:
                for said, windows in _RATES.items():
                    told = significant(seen, endpoint.thresholds(windows, day))
                    began[said] += int(beginnings(told).sum())
                    usable &= ~told
            endpoint.calibrate(seen, usable, day)
        endpoint.learn(counts, day)
    judged = streams * JUDGED_DAYS * DAY
    alarms = [
        rate(f"weeks, against the usual, set to {said}", TEXTS, count, judged, _RATES[said])
        for said, count in began.items()
    ]
    return [*(replace(row, target=1.0) for row in alarms), *rows]


def _found(stock: Stock, rng: np.random.Generator, endpoint: Endpoint, day: int) -> list[Finding]:
    rows = []
    begins = rng.integers(0, DAY - WITHIN, size=endpoint.streams)
    for part in SHARES:
        counts = _drawn(stock, rng, day, (endpoint.noons, begins), part)
        seen = endpoint.copy().walk(counts, day, sized=True)
        if seen is None:
            continue
        behind = begins[:, None] + np.arange(WITHIN)
        for said, windows in _RATES.items():
            limits = endpoint.thresholds(windows, day)
            for what, told in (
                ("significant", significant(seen, limits)),
                ("warns", level(seen, limits, WARNS) >= 1),
            ):
                after = np.take_along_axis(told, behind, axis=1)
                asked = ASKED_WINDOWS if (part, day, what) == (_ASKED, 14, "significant") else None
                where = f"{day} days known, {what}, {said}"
                rows.append(needed(f"{part:.0%} German", where, first(after), asked, "windows"))
    return rows


def _drawn(
    stock: Stock,
    rng: np.random.Generator,
    day: int,
    of_streams: tuple[Floats, NDArray[np.int64]],
    part: float = 0.0,
) -> Floats:
    """``[streams, windows, all bins]`` of a day; German texts from a window of each stream on."""
    found = []
    german = stock.shares({GERMAN: 1.0})
    for noons, begin in zip(*of_streams, strict=True):
        scenario = quiet_day(stock, rng, day, noons[day : day + 3])
        others = np.where(np.arange(DAY) >= begin, part, 0.0)[:, None]
        scenario = Scenario((1 - others) * scenario.shares + others * german, scenario.texts)
        found.append(stock.counts(rng, scenario))
    return np.stack(found)


def _kind(day: int) -> int:
    return _WEEK.slot(_time(day, 0)) // SLOTS_A_DAY


def _time(day: int, window: int) -> float:
    """Unix seconds."""
    return float(MONDAY + 86_400 * day + 60 * window)

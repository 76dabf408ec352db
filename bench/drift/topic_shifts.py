"""Topics that change while lengths stay: weeks of quiet traffic, and other texts of equal lengths.

The weeks are those of ``weeks``. Of each text ``topics.npz`` holds the buckets of at most four
tokens, and ``vectors.npz`` the cells of its vector, as the gateway takes them; no text and no
vector. The others are editorials, drawn such that their numbers of tokens are distributed as those
of movie reviews are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from bench.drift.monitored import beginnings
from bench.drift.population import EDITORIALS, MOVIES, PRODUCTS, TWEETS, read
from bench.drift.shifts import TEXTS, WITHIN, first
from bench.drift.traffic import DAY, Stock
from bench.drift.weeks import JUDGED_DAYS, LEARNT_DAYS, MONDAY, VARIES, quiet_day
from bench.findings import Finding, needed, rate
from contracts.events import TOPIC_BUCKETS
from measures.classifier_test import ClassifierTest, PastDifferences, ScoreNull
from measures.correlation import Floats
from measures.monitoring import QUESTIONS
from measures.rhythm import SLOT_SECONDS, SLOTS_A_DAY, Rhythm, Week
from stats.evaluation.drift_counts import TESTED

DOMAINS: Final = (MOVIES, PRODUCTS, EDITORIALS, TWEETS)
SHARES: Final = (0.2, 0.1, 0.05, 0.02)  # of editorials
ASKED_WINDOWS: Final = 15
_RATES: Final = {"one a day": DAY, "one in 30 days": 30 * DAY}
_SLOT: Final = SLOT_SECONDS // 60  # windows
_WEEK: Final = Week()
_DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True)
class Source:
    """What of texts is counted by bucket.

    Attributes:
        name: of the study.
        file: of the committed measurements.
        share: of the budget of such tests, where texts have this.
        seed: of the study.
    """

    name: str
    file: Path
    share: float
    seed: int


_FOLDER: Final = Path(__file__).parent
TOPICS: Final = Source("topics", _FOLDER / "topics.npz", 1.0, 19)
VECTORS: Final = Source("vectors", _FOLDER / "vectors.npz", 0.5, 23)


class Buckets:
    """What was measured of all domains.

    Attributes:
        buckets: ``[texts, most]`` of each domain; beyond a text's count they mean nothing.
        counted: ``[texts, most]``, which of these are a text's.
        chances: ``[texts]`` of each, with which a text is drawn: alike, but for editorials.
    """

    def __init__(self, source: Source = TOPICS) -> None:
        """Reads the committed measurements."""
        self.buckets: dict[str, NDArray[np.uint8]] = {}
        self.counted: dict[str, NDArray[np.bool_]] = {}
        self.chances: dict[str, Floats] = {}
        with np.load(source.file) as held:
            for domain in DOMAINS:
                buckets, count = held[f"{domain}/buckets"], held[f"{domain}/count"]
                self.buckets[domain] = buckets
                self.counted[domain] = np.arange(buckets.shape[1]) < count[:, None]
                self.chances[domain] = np.full(len(count), 1 / len(count))
        self.chances[EDITORIALS] = _alike(read()[EDITORIALS].tokens, read()[MOVIES].tokens)

    def counts(
        self, rng: np.random.Generator, shares: Mapping[str, Floats], texts: NDArray[np.int64]
    ) -> Floats:
        """``[windows, buckets]`` of texts drawn anew; ``shares`` of each domain a window."""
        mixed = np.stack([shares[domain] for domain in DOMAINS], axis=1)
        drawn = rng.multinomial(texts, mixed)
        found = np.zeros(len(texts) * TOPIC_BUCKETS, np.int64)
        of_window = TOPIC_BUCKETS * np.arange(len(texts))
        for at, domain in enumerate(DOMAINS):
            if drawn[:, at].any():
                of_text = self._drawn(rng, domain, int(drawn[:, at].sum()))
                window = np.repeat(of_window, drawn[:, at])
                places = window[:, None] + self.buckets[domain][of_text]
                if not self.counted[domain].all():
                    places = places[self.counted[domain][of_text]]
                found += np.bincount(places.ravel(), minlength=len(found))
        return found.reshape(len(texts), TOPIC_BUCKETS).astype(np.float64)

    def _drawn(self, rng: np.random.Generator, domain: str, size: int) -> NDArray[np.int64]:
        """Places of so many texts; those of alike chances without a search, from the same draws."""
        if domain == EDITORIALS:
            return rng.choice(len(self.chances[domain]), size=size, p=self.chances[domain])
        return (rng.random(size) * len(self.chances[domain])).astype(np.int64)


def _alike(tokens: NDArray[np.int16], wanted: NDArray[np.int16]) -> Floats:
    """Chances of texts such that their numbers of tokens are distributed as ``wanted``."""
    most = int(max(tokens.max(), wanted.max())) + 1
    have, want = np.bincount(tokens, minlength=most), np.bincount(wanted, minlength=most)
    chances = (want / np.maximum(have, 1))[tokens]
    found: Floats = chances / chances.sum()
    return found


@dataclass
class Endpoint:
    """A test of some streams, as ``stats.evaluation.usual`` holds one.

    Attributes:
        source: of what is counted.
        noons: ``[streams, days]``; see ``weeks.quiet_day``.
        rhythm: what is usual.
        nulls: what scores did in quiet windows, of each kind of day.
        past: how days differed, where the test knows that.
        watching: how many windows to a false alarm -> the evidence.
    """

    source: Source
    noons: Floats
    rhythm: Rhythm
    nulls: list[ScoreNull]
    past: PastDifferences | None
    watching: dict[int, ClassifierTest] = field(default_factory=dict)

    @classmethod
    def begin(cls, rng: np.random.Generator, streams: int, days: int, source: Source) -> Self:
        """Nothing learnt yet."""
        noons = np.maximum(0.0, rng.normal(1.0, VARIES, (streams, days + 2)))
        rhythm = Rhythm(_WEEK.slots, TOPIC_BUCKETS, (streams,))
        what = TESTED[source.name]
        features = len(what.names)
        past = PastDifferences.begin(features, (streams,)) if what.knows_days else None
        begun = ClassifierTest.begin(TOPIC_BUCKETS, (streams,), features=features)
        watching = dict.fromkeys(_RATES.values(), begun)
        nulls = [ScoreNull.begin((streams,))] * _WEEK.kinds
        return cls(source, noons, rhythm, nulls, past, watching)

    def walk(self, counts: Floats, day: int, *, learn: bool) -> dict[int, Floats]:
        """Evidence after each window of a day, ``[streams, windows]``, at each rate."""
        kind = _WEEK.slot(_time(day, 0)) // SLOTS_A_DAY
        found = {each: np.zeros(counts.shape[:2]) for each in self.watching}
        null, what = self.nulls[kind], TESTED[self.source.name]
        for window in range(counts.shape[1]):
            mix = _WEEK.mix(_time(day, window) + 30)
            if not self.rhythm.covered(mix):
                continue
            usual = self.rhythm.shares(mix)
            for each, test in self.watching.items():
                part = self.source.share / (QUESTIONS * each)
                after = test.after(
                    counts[:, window],
                    usual,
                    null,
                    part,
                    _DAY_SECONDS,
                    features=what.features,
                    past=self.past,
                    today=what.today,
                )
                found[each][:, window] = after.found()
                self.watching[each] = after
            strict = found[max(found)][:, window]
            if learn:
                test = next(iter(self.watching.values()))
                quiet = strict < 1
                self.nulls[kind] = self.nulls[kind].after(test.scores, 60.0, learn=quiet)
                if self.past is not None:
                    self.past = self.past.after(test.learnt, 60.0, _DAY_SECONDS, learn=quiet)
        return found

    def learn(self, counts: Floats, day: int) -> None:
        """Learns a day once it is over."""
        for quarter in range(SLOTS_A_DAY):
            seen = counts[:, quarter * _SLOT : (quarter + 1) * _SLOT].sum(axis=1)
            self.rhythm.learn(_WEEK.slot(_time(day, quarter * _SLOT)), seen)


def study(
    stock: Stock,
    streams: int,
    source: Source = TOPICS,
    *,
    learnt: int = LEARNT_DAYS,
    judged: int = JUDGED_DAYS,
) -> list[Finding]:
    """False alarms of quiet weeks, and windows until other topics are found."""
    rng = np.random.default_rng(source.seed)
    buckets = Buckets(source)
    endpoint = Endpoint.begin(rng, streams, learnt + judged, source)
    began = dict.fromkeys(_RATES, 0)
    rows: list[Finding] = []
    for day in range(learnt + judged):
        if day == learnt:
            rows += _found(stock, buckets, rng, endpoint, day)
        counts = _drawn(stock, buckets, rng, endpoint.noons, day)
        seen = endpoint.walk(counts, day, learn=True)
        if day >= learnt:
            for said, windows in _RATES.items():
                began[said] += int(beginnings(seen[windows] >= 1).sum())
        endpoint.learn(counts, day)
    alarms = [
        rate(f"{source.name}, set to {said}", TEXTS, count, streams * judged * DAY, _RATES[said])
        for said, count in began.items()
    ]
    return [*(replace(row, target=1.0) for row in alarms), *rows]


def _found(
    stock: Stock, buckets: Buckets, rng: np.random.Generator, endpoint: Endpoint, day: int
) -> list[Finding]:
    rows = []
    streams = len(endpoint.noons)
    begins = rng.integers(0, DAY - WITHIN, size=streams)
    behind = begins[:, None] + np.arange(WITHIN)
    for part in SHARES:
        counts = _drawn(stock, buckets, rng, endpoint.noons, day, begins, part)
        seen = replace(endpoint, watching=dict(endpoint.watching)).walk(counts, day, learn=False)
        for said, windows in _RATES.items():
            after = np.take_along_axis(seen[windows] >= 1, behind, axis=1)
            asked = ASKED_WINDOWS if (part, said) == (SHARES[0], "one a day") else None
            what = f"{part:.0%} editorials of equal lengths"
            rows.append(
                needed(what, f"{endpoint.source.name}, {said}", first(after), asked, "windows")
            )
    return rows


def _drawn(  # noqa: PLR0917 - whose texts, when, and what is among them
    stock: Stock,
    buckets: Buckets,
    rng: np.random.Generator,
    noons: Floats,
    day: int,
    begins: NDArray[np.int64] | None = None,
    part: float = 0.0,
) -> Floats:
    """``[streams, windows, buckets]`` of a day; editorials from a window of each stream on."""
    found = []
    for stream, of_days in enumerate(noons):
        scenario = quiet_day(stock, rng, day, of_days[day : day + 3])
        shares = {
            domain: scenario.shares[:, stock.domains.index(domain)].copy() for domain in DOMAINS
        }
        if begins is not None:
            others = np.where(np.arange(DAY) >= begins[stream], part, 0.0)
            shares = {domain: (1 - others) * share for domain, share in shares.items()}
            shares[EDITORIALS] += others
        found.append(buckets.counts(rng, shares, scenario.texts))
    return np.stack(found)


def _time(day: int, window: int) -> float:
    """Unix seconds."""
    return float(MONDAY + 86_400 * day + 60 * window)

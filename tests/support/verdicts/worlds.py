"""Traffic as services have it: worlds in which identical versions are told apart wrongly.

Each world is a few streams of requests, whose rates stand still, so that what goes wrong is what
the world is named after. Rows are rollouts. A stream's callers stick to an arm; where nobody is
named, each request falls to an arm by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contracts.windows import CALLER_CAP, CALLER_GROUPS
from measures.correlation import Floats
from verdicts import whole
from verdicts.findings import Finding
from verdicts.shared_engine import WINDOWS, Engine, windows
from verdicts.traffic import (
    EDGE,
    FIRST,
    LENGTH_SHARES,
    TAIL,
    TIMES,
    Arm,
    CallersErrors,
    Counts,
    bucketed,
    failing,
    given_to_callers,
    grouped,
    kept,
    nobodys,
)

SEED = 18
_LATER = round(np.log(1.5) / EDGE)  # buckets, of answers that take half as long again
_STALLED = 0.2  # of a window's requests, that a stall of two seconds meets
_DAY = 8640  # windows
_RAMP = 360  # windows
_PERIOD, _PERIODS = 60, 256  # windows of a neighbour's load, and how many until they come again
_BY_CALLER = ("callers", "attempts")  # fields of an arm that are no counts of a rollout
_BEGINS = (40, 400)  # windows of the rollout, between which something begins


@dataclass(frozen=True)
class Stream:
    """One kind of requests.

    Attributes:
        requests: mean of a window, before callers' caps and what a cache keeps.
        callers: so many send them, the k-th in proportion to ``k ** -1.1``; 0: nobody is named.
        cap: of a caller's requests in a window, that are judged. A caller's requests lie in
            several ranges of several partitions, each of which has a cap of its own.
        positive: share of the second label.
        errors: share that fails.
        slow_callers: share of the callers whose answers take half as long again.
        own_times: standard deviation, over callers, of the logarithm of a factor on a caller's
            times.
        copied: share of what was answered that is copied in shadow.
        texts: of a request.
        alike: correlation of the labels of one request's texts.
        begins_late: it begins between ``_BEGINS`` windows after the rollout.
        before: share of the second label until it begins; None: no requests until then.
        tries: a request that fails was sent so many times, and failed each time.
        kept: windows for which a cache keeps an answer, which is inferred once; 0: no cache. The
            requests are nobody's then.
        different: texts that there are, where a cache keeps them.
        broken: share of its requests that the candidate fails at, besides, and no copy does.
        lasting: share of its failures that are the request's own: a copy of it fails as well.
        tail: the k-th caller sends in proportion to ``k ** -tail``.
        lives: windows for which a caller's name lasts in the mean; another one takes its place
            then, with another place in the split. 0: names last.
        one_label: a name's texts all have one label, the second one's with ``positive``.
        rotates: share of the callers that get other names at once, some time after the rollout
            began, with other places in the split.
        slows: its answers take half as long again from some time after the rollout began.
    """

    requests: float
    callers: int = 200
    cap: int = CALLER_CAP
    positive: float = 0.4
    errors: float = 0.005
    slow_callers: float = 0.0
    own_times: float = 0.0
    copied: float = 1.0
    texts: int = 1
    alike: float = 0.0
    begins_late: bool = False
    before: float | None = None
    tries: int = 1
    kept: float = 0.0
    different: float = 1.0
    broken: float = 0.0
    lasting: float = 0.0
    tail: float = TAIL
    lives: float = 0.0
    one_label: bool = False
    rotates: float = 0.0
    slows: bool = False


@dataclass(frozen=True)
class World:
    """A traffic.

    Attributes:
        name: for people.
        streams: of which it is made.
        stalls: chance that an arm stalls in a window, each by itself.
        load: how much longer answers take with all callers in their arm; with a part of them, that
            part of it. Versions have batches of their own, and larger ones take longer.
        daily: half of the difference between the day's busiest and its quietest window, as a part
            of the mean. With it comes more of the second label, by so much of its share.
        neighbour: how much longer answers of both arms take while another model keeps the engine
            busy: a quarter of the time, ten minutes at once.
        shortest: windows that a step with callers takes at least.
        ramp: how many times as many requests come after the rollout's first hour, less 1: they
            grow evenly until then.
        engine: that versions and a neighbour share: then times are of its queues, the neighbour is
            busy as above, and callers are alike in them. None: times are drawn by themselves.
    """

    name: str
    streams: tuple[Stream, ...]
    stalls: float = 0.0
    load: float = 0.0
    daily: float = 0.0
    neighbour: float = 0.0
    shortest: int = 0
    ramp: float = 0.0
    engine: Engine | None = None


WORLDS = (
    World(
        "E: a fifth comes in bursts, a third as likely to be copied, 30 points more of a label",
        (Stream(800.0, copied=0.6), Stream(200.0, copied=0.2, positive=0.7)),
    ),
    World(
        "B2: nobody named, 16 texts a request, correlation 0.5 within it",
        (Stream(120.0, callers=0, texts=16, alike=0.5),),
    ),
    World(
        "B: nobody named, 8 texts a request, correlation 0.25 within it",
        (Stream(60.0, callers=0, texts=8, alike=0.25),),
    ),
    World(
        "D: a caller begins a job, 80 judged requests a window, 95 % one label",
        (Stream(1000.0), Stream(400.0, callers=1, cap=80, positive=0.95, begins_late=True)),
    ),
    World(
        "C: a tenth of the callers takes 1.5 times as long",
        (Stream(1000.0, slow_callers=0.1),),
    ),
    World(
        "D': a caller begins to repeat poison, 20 requests a window, 30 % fail",
        (Stream(1000.0), Stream(100.0, callers=1, errors=0.3, begins_late=True)),
    ),
    World(
        "A: nobody named, each arm stalls 2 s once in 83 minutes",
        (Stream(2000.0, callers=0),),
        stalls=1 / 500,
    ),
    World(
        "a cache of each version: half of the requests are of 20,000 texts, "
        "30 points more of a label, kept for an hour",
        (
            Stream(500.0, callers=0),
            Stream(500.0, callers=0, positive=0.7, kept=360.0, different=20_000.0),
        ),
    ),
    World(
        "nobody named, 1 % fail, each sent 4 times, failing each time",
        (Stream(1000.0, callers=0, errors=0.01, tries=4),),
    ),
    World(
        "one caller has half of the traffic, 80 judged requests a window, 20 points more "
        "of a label",
        (Stream(1000.0), Stream(1000.0, callers=1, cap=80, positive=0.6)),
    ),
    World(
        "a caller with 80 judged requests a window deploys: 40 points more of a label from then on",
        (
            Stream(1000.0),
            Stream(400.0, callers=1, cap=80, positive=0.8, begins_late=True, before=0.4),
        ),
    ),
    World(
        "nobody named, each arm stalls as in A, and nothing else ever fails",
        (Stream(2000.0, callers=0, errors=0.0),),
        stalls=1 / 500,
    ),
    World(
        "nobody named, answers take half as long again with all callers in their arm",
        (Stream(1000.0, callers=0),),
        load=0.5,
    ),
    World(
        "nobody named, few requests, a rhythm of the day: by half more and less, and of a label",
        (Stream(100.0, callers=0),),
        daily=0.5,
    ),
    World(
        "the same rhythm, and answers that take half as long again with the mean of all requests",
        (Stream(100.0, callers=0),),
        load=0.5,
        daily=0.5,
    ),
    World(
        "nobody named, a fifth is five times as likely to be copied, and fails in 5 %, not 0.2 %, "
        "by chance",
        (
            Stream(800.0, callers=0, copied=0.15, errors=0.002),
            Stream(200.0, callers=0, copied=0.75, errors=0.05),
        ),
    ),
    World(
        "the same, and what fails fails for its own sake",
        (
            Stream(800.0, callers=0, copied=0.15, errors=0.002, lasting=1.0),
            Stream(200.0, callers=0, copied=0.75, errors=0.05, lasting=1.0),
        ),
    ),
    World(
        "callers named, a fifth is of others, five times as likely to be copied, and fails in 5 %, "
        "not 0.2 %, by chance",
        (Stream(800.0, copied=0.15, errors=0.002), Stream(200.0, copied=0.75, errors=0.05)),
    ),
    World(
        "nobody named, all callers cost an arm a fifth, a neighbour moves both by 15 % for minutes",
        (Stream(1000.0, callers=0),),
        load=0.2,
        neighbour=0.15,
    ),
)

NAMES_CHANGE = (
    World(
        "a tenth of the callers takes 1.5 times as long, and all names change, steps of half an "
        "hour",
        (Stream(1000.0, slow_callers=0.1, rotates=1.0),),
        shortest=180,
    ),
    World(
        "the same, and a third of the names changes",
        (Stream(1000.0, slow_callers=0.1, rotates=0.3),),
        shortest=180,
    ),
    World(
        "the same, and only the names of those who are slow change",
        (Stream(900.0), Stream(100.0, callers=20, slow_callers=1.0, rotates=1.0)),
        shortest=180,
    ),
    World(
        "a fifth is of callers who fail in 5 %, not 0.2 %, and all names change",
        (Stream(800.0, errors=0.002, rotates=1.0), Stream(200.0, errors=0.05, rotates=1.0)),
        shortest=180,
    ),
    World(
        "a caller with 80 judged requests a window begins to take 1.5 times as long",
        (Stream(1000.0), Stream(400.0, callers=1, cap=80, slows=True)),
        shortest=180,
    ),
)
_ONE_SESSION = Stream(1000.0, callers=67, tail=0.0, lives=12.0, one_label=True)
SESSIONS = (
    World(
        "names live for two minutes, 15 requests a window of one label, steps of half an hour",
        (_ONE_SESSION,),
        shortest=180,
    ),
    World(
        "the same, for five minutes",
        (replace(_ONE_SESSION, lives=30.0),),
        shortest=180,
    ),
    World(
        "the first, of few requests",
        (replace(_ONE_SESSION, requests=300.0, callers=20),),
        shortest=180,
    ),
    World(
        "the first, among as many requests of names that last",
        (_ONE_SESSION, Stream(1000.0)),
        shortest=180,
    ),
    World(
        "names live for one window, one request each",
        (replace(_ONE_SESSION, callers=1000, lives=1.0),),
        shortest=180,
    ),
)


@dataclass(frozen=True)
class _Callers:
    """Of one stream: ``[rollouts, callers]``, where they stand in the split, and their habits."""

    place: Floats
    group: Counts
    bucket: Counts
    is_slow: NDArray[np.bool_]
    later: Counts
    begins: Counts  # [rollouts], window of the rollout
    is_second: NDArray[np.bool_]  # whether a name with one label has the second one

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        return type(self)(*(getattr(self, part.name)[rows] for part in fields(self)))

    def renamed(self, stream: Stream, is_over: NDArray[np.bool_], rng: np.random.Generator) -> Self:
        """With other names where the old ones are over; how quick a caller is stays."""
        place, group, bucket, is_second = _names(stream, is_over.shape, rng)
        return replace(
            self,
            place=np.where(is_over, place, self.place),
            group=np.where(is_over, group, self.group),
            bucket=np.where(is_over, bucket, self.bucket),
            is_second=np.where(is_over, is_second, self.is_second),
        )


@dataclass(frozen=True)
class Traffic:
    """One world, in many rollouts at once, a row each; as ``traffic.Places`` for the walk.

    Attributes:
        world: what is true of it.
        rollouts: how many.
        at: window of the rollout; 0 and less before its first.
        callers: of each stream.
        busy: ``[rollouts, periods]``, when the neighbour keeps the engine busy.
    """

    world: World
    rollouts: int
    at: int
    callers: tuple[_Callers, ...]
    busy: NDArray[np.bool_]

    @classmethod
    def of(cls, world: World, rollouts: int, rng: np.random.Generator) -> Self:
        """Callers get their places in the split."""
        return cls(
            world,
            rollouts,
            -whole.HISTORY,
            tuple(_callers(stream, rollouts, rng) for stream in world.streams),
            np.random.default_rng(SEED).random((rollouts, _PERIODS)) < 0.25,
        )

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Of some of the rollouts."""
        callers = tuple(each.of_rows(rows) for each in self.callers)
        return replace(self, rollouts=len(rows), callers=callers, busy=self.busy[rows])

    def moved(self, rng: np.random.Generator) -> Self:
        """A window later."""
        at = self.at + 1
        pairs = zip(self.world.streams, self.callers, strict=True)
        return replace(self, at=at, callers=tuple(_later(*pair, at, rng) for pair in pairs))

    def window(self, low: Floats, high: Floats, rng: np.random.Generator) -> tuple[Arm, Arm]:
        """One window of candidate and stable, as ``traffic.window``."""
        rhythm = 1 + self.world.daily * np.sin(2 * np.pi * self.at / _DAY)
        hour = rhythm * (1 + self.world.ramp * min(max(self.at / _RAMP, 0.0), 1.0))
        drawn = [
            _drawn(_at_hour(stream, hour, rhythm), callers, self.at, (low, high), rng)
            for stream, callers in zip(self.world.streams, self.callers, strict=True)
        ]
        candidate = _sum([arms[0] for arms in drawn])
        stable = _sum([arms[1] for arms in drawn])
        share = np.where(np.isinf(high), 0.0, high - low)  # copies have spare capacity
        if self.world.engine is not None:
            candidate, stable = self._queued(self.world.engine, (candidate, stable), share, rng)
        return (
            self._loaded(self._stalled(candidate, rng), share * hour),
            self._loaded(self._stalled(stable, rng), (1 - share) * hour),
        )

    @property
    def _is_busy(self) -> NDArray[np.bool_]:
        """``[rollouts]``, whether the neighbour keeps the engine busy in this window."""
        return self.busy[:, (self.at + whole.HISTORY) // _PERIOD % _PERIODS]

    def _queued(
        self, engine: Engine, arms: tuple[Arm, Arm], share: Floats, rng: np.random.Generator
    ) -> tuple[Arm, Arm]:
        """With the times of a window of the engine, which both arms meet."""
        (own,) = rng.spawn(1)
        met = own.integers(0, WINDOWS, self.rollouts)
        states = zip(share.tolist(), self._is_busy.tolist(), met.tolist(), strict=True)
        of_arms = np.stack(
            [windows(engine, part, is_busy=is_busy)[at] for part, is_busy, at in states]
        )
        one, other = (_timed(arm, of_arms[:, at], own) for at, arm in enumerate(arms))
        return one, other

    def _loaded(self, arm: Arm, load: Floats) -> Arm:
        """With answers that take longer by the load of their arm."""
        longer = np.log1p(self.world.load * load) + np.log1p(self.world.neighbour * self._is_busy)
        later = np.round(longer / EDGE).astype(np.int64)
        return replace(arm, first=arm.first + later[:, None])

    def _stalled(self, arm: Arm, rng: np.random.Generator) -> Arm:
        """With what a stall makes fail, in the rollouts whose arm stalls in this window."""
        share = _STALLED * (rng.random(self.rollouts) < self.world.stalls)
        lost = rng.binomial(arm.labels, share[:, None])
        times = rng.binomial(arm.times, 1 - share[:, None, None])
        (own,) = rng.spawn(1)
        if not self.world.stalls:
            return arm
        return replace(
            arm,
            errors=arm.errors + lost.sum(axis=1),
            labels=arm.labels - lost,
            times=times,
            failures=None if arm.failures is None else failing(arm.failures, lost.sum(axis=1)),
            callers=None if arm.callers is None else kept(arm.callers, times, own),
        )


def _timed(arm: Arm, shares: Floats, rng: np.random.Generator) -> Arm:
    """With times drawn by their shares, ``[rollouts, lengths, buckets]``."""
    of = arm.callers or nobodys()
    cells = np.prod(shares.shape[:-1], dtype=int)
    cumulated = np.cumsum(shares, axis=-1).reshape(cells, -1)
    cumulated[:, -1] = 1.0
    cell = of.row * shares.shape[1] + of.length
    at = np.searchsorted(
        (cumulated + np.arange(cells)[:, None]).ravel(), cell + rng.random(len(cell))
    )
    time = at - cell * shares.shape[-1]
    of_callers = np.zeros(shares.shape, dtype=np.int64)
    np.add.at(of_callers, (of.row, of.length, time), 1)
    rest = arm.times.sum(axis=-1) - of_callers.sum(axis=-1)
    return replace(
        arm,
        times=of_callers + rng.multinomial(rest, shares),
        first=np.zeros_like(arm.first),
        callers=None if arm.callers is None else replace(of, time=time),
    )


def _at_hour(stream: Stream, hour: float, rhythm: float) -> Stream:
    """The stream at an hour in which so much of the mean comes, and so much of the label."""
    if hour == rhythm == 1:
        return stream
    positive = min(stream.positive * rhythm, 1.0)
    return replace(stream, requests=stream.requests * hour, positive=positive)


def _later(stream: Stream, callers: _Callers, at: int, rng: np.random.Generator) -> _Callers:
    """A stream's callers in this window: some take other names."""
    if not stream.lives and not stream.rotates:
        return callers
    (own,) = rng.spawn(1)
    part = np.where(callers.begins == at, stream.rotates, 0.0)[:, None]
    if stream.lives:
        part = np.maximum(part, 1 / stream.lives)
    return callers.renamed(stream, own.random(callers.place.shape) < part, own)


def _names(
    stream: Stream, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[Floats, Counts, Counts, NDArray[np.bool_]]:
    """New names' places in the split, groups and buckets, and which have the second label."""
    (own,) = rng.spawn(1)
    place, group = rng.random(shape), rng.integers(0, CALLER_GROUPS, shape)
    return place, group, bucketed(group, own), own.random(shape) < stream.positive


def _callers(stream: Stream, rollouts: int, rng: np.random.Generator) -> _Callers:
    shape = (rollouts, max(stream.callers, 1))
    begins = rng.integers(*_BEGINS, rollouts)
    (own,) = rng.spawn(1)
    place, group = rng.random(shape), rng.integers(0, CALLER_GROUPS, shape)
    return _Callers(
        place,
        group,
        bucketed(group, own),
        rng.random(shape) < stream.slow_callers,
        np.round(own.normal(0, stream.own_times / EDGE, shape)).astype(np.int64),
        begins,
        own.random(shape) < stream.positive,
    )


def _drawn(
    stream: Stream,
    callers: _Callers,
    at: int,
    split: tuple[Floats, Floats],
    rng: np.random.Generator,
) -> tuple[Arm, Arm]:
    """Candidate's and stable's window of one stream, at a window of the rollout."""
    low, high = split
    has_begun = (callers.begins <= at) | (not stream.begins_late)
    if stream.slows:
        callers = replace(callers, is_slow=callers.is_slow | (callers.begins <= at)[:, None])
    copied = np.isinf(high)
    if stream.callers:
        is_mine = (callers.place >= low[:, None]) & (callers.place < high[:, None])
        part: Floats = np.where(copied[:, None], 0.0, is_mine)
    else:
        part = np.where(copied, 0.0, high - low)[:, None]
    weights = np.arange(1, part.shape[1] + 1.0) ** -stream.tail
    counts = rng.poisson(stream.requests * weights / weights.sum(), part.shape)
    if stream.callers:
        counts = np.minimum(counts, stream.cap)
    if stream.before is None:
        counts = np.where(has_begun[:, None], counts, 0)
    positive = np.where(has_begun, stream.positive, stream.before or 0.0)[:, None]
    if stream.one_label:
        positive = callers.is_second.astype(np.float64)
    mine = rng.binomial(counts, part)
    arms = []
    for every, broken in ((mine, stream.broken), (counts - mine, 0.0)):
        missed = _missed(stream, every, rng)
        errors = stream.errors + broken * (1 - stream.errors)
        arm = _answered(replace(stream, errors=errors), callers, missed, positive, rng)
        arms.append(replace(arm, cached=_kept(every - missed, positive, rng)))
    candidate, stable = arms
    return _chosen(copied, _copies(stream, stable, rng), candidate), stable


def _missed(stream: Stream, counts: Counts, rng: np.random.Generator) -> Counts:
    """What a cache of one arm leaves to be inferred: of each text, one request while it is kept."""
    if not stream.kept:
        return counts
    asked = counts.sum(axis=1, keepdims=True) / stream.different  # of a text, in a window
    return rng.binomial(counts, 1 / (1 + asked * stream.kept))


def _kept(counts: Counts, positive: Floats, rng: np.random.Generator) -> Counts:
    """``[rollouts, labels]`` of so many answers of a cache, one text each."""
    second = rng.binomial(counts, positive).sum(axis=1)
    return np.stack([counts.sum(axis=1) - second, second], axis=1)


def _answered(
    stream: Stream,
    callers: _Callers,
    counts: Counts,
    positive: Floats,
    rng: np.random.Generator,
) -> Arm:
    """An arm that got these requests, ``[rollouts, callers]``."""
    failed = rng.binomial(counts, stream.errors)
    answered = counts - failed
    failed, counts = failed * stream.tries, counts + failed * (stream.tries - 1)
    # Of some requests all texts get one label, of the others each text its own: the correlation
    # of two texts of a request is the share of the former.
    clumped = rng.binomial(answered, stream.alike)
    positive_clumps = rng.binomial(clumped, positive)
    single, like = _texts(stream.texts, answered - clumped, positive, rng)
    second = stream.texts * positive_clumps + single
    first = answered * stream.texts - second
    of_clump = stream.texts * (stream.texts - 1)
    like[0] += of_clump * (clumped - positive_clumps)
    like[1] += of_clump * positive_clumps
    named = np.stack([counts, failed, second], axis=1) * bool(stream.callers)
    quick, slow = answered * ~callers.is_slow, answered * callers.is_slow
    times = [_times(quick.sum(axis=1), 0, rng), _times(slow.sum(axis=1), _LATER, rng)]
    of_callers = nobodys()
    for each, whose in zip(times, (quick, slow), strict=True) if stream.callers else ():
        (own,) = rng.spawn(1)
        if whose.any():
            told = given_to_callers(each, whose, callers.bucket, own, callers.later)
            of_callers = of_callers.and_those(told)
    all_times = times[0] + times[1]
    if stream.own_times:
        all_times = np.zeros_like(all_times)
        np.add.at(all_times, (of_callers.row, of_callers.length, of_callers.time), 1)
    return Arm(
        counts.sum(axis=1),
        failed.sum(axis=1),
        np.stack([first.sum(axis=1), second.sum(axis=1)], axis=1),
        all_times,
        np.broadcast_to(np.array(FIRST), (len(counts), len(FIRST))),
        np.stack([grouped(named[:, at], callers.group) for at in range(3)], axis=1),
        np.zeros((len(counts), 2, 2)),
        np.stack([first.sum(axis=1), second.sum(axis=1)], axis=1) * (stream.texts - 1),
        like.sum(axis=2).T,
        callers=of_callers,
        failures=np.zeros((len(counts), 2, 2)),
        attempts=CallersErrors.of(named[:, 0], failed, callers.bucket),
    )


def _texts(
    texts: int, requests: Counts, p: Floats, rng: np.random.Generator
) -> tuple[Counts, Counts]:
    """Labels of requests whose texts are independent, ``[rollouts, callers]`` requests.

    Returns:
        Texts with the second label, likewise, and ``[labels, rollouts, callers]``: of each text the
        others of its request that have the same label, added up.
    """
    if texts == 1:
        return rng.binomial(requests, p), np.zeros((2, *requests.shape), dtype=np.int64)
    from scipy.stats import binom

    count = np.arange(texts + 1)
    drawn = rng.multinomial(requests, binom.pmf(count, texts, p[..., None]))
    others = texts - count
    like = [(drawn * (each * (each - 1))).sum(axis=-1) for each in (others, count)]
    return (drawn * count).sum(axis=-1), np.stack(like)


def _copies(stream: Stream, stable: Arm, rng: np.random.Generator) -> Arm:
    """Copies of stable's requests: both versions say the same, and copies fail by themselves."""
    labels = rng.binomial(stable.labels, stream.copied)
    by_chance = stream.errors * (1 - stream.lasting)
    lost = rng.binomial(labels, by_chance)
    (own,) = rng.spawn(1)  # of originals that failed
    failed = own.binomial(stable.errors, stream.copied)
    again = own.binomial(failed, stream.lasting + (1 - stream.lasting) * by_chance)
    answered, gained = (part.sum(axis=1) // stream.texts for part in (labels, lost))
    failures = np.stack([answered - gained, gained, failed - again, again], axis=1)
    told = np.zeros((len(labels), labels.shape[1], labels.shape[1]))
    told[:, range(labels.shape[1]), range(labels.shape[1])] = (labels - lost) / stream.texts
    return replace(
        stable,
        requests=answered + failed,
        errors=gained + again,
        labels=labels - lost,
        times=rng.binomial(stable.times, stream.copied),
        groups=np.zeros_like(stable.groups),
        pairs=told,
        neighbours=np.zeros_like(labels),
        like=np.zeros_like(labels),
        cached=np.zeros_like(labels),
        callers=None,
        attempts=None,
        failures=failures.reshape(-1, 2, 2).astype(np.float64),
    )


def _times(counts: Counts, later: int, rng: np.random.Generator) -> Counts:
    """``[rollouts, lengths, buckets]`` of so many answers, so many buckets later than others."""
    if not counts.any():  # then nothing is drawn
        return np.zeros((len(counts), len(TIMES), len(TIMES[0]) + _LATER), dtype=np.int64)
    lengths = rng.multinomial(counts, LENGTH_SHARES)
    return np.stack(
        [rng.multinomial(lengths[:, at], share) for at, share in enumerate(_shares(later))], axis=1
    )


@cache
def _shares(later: int) -> tuple[Floats, ...]:
    """By length, of the times so many buckets later than others."""
    return tuple(np.pad(times, (later, _LATER - later)) for times in TIMES)


def _chosen(copied: NDArray[np.bool_], copies: Arm, own: Arm) -> Arm:
    if not copied.any():
        return own

    def part(name: str) -> Any:  # counts of any shape, or weights
        one, other = getattr(copies, name), getattr(own, name)
        return np.where(copied.reshape(-1, *(1,) * (one.ndim - 1)), one, other)

    of_both = (field.name for field in fields(Arm) if field.name not in _BY_CALLER)
    return replace(own, **{name: part(name) for name in of_both})


def _sum(arms: Sequence[Arm]) -> Arm:
    """All streams of one arm together."""
    total = arms[0]
    for arm in arms[1:]:
        more = {
            field.name: getattr(total, field.name) + getattr(arm, field.name)
            for field in fields(Arm)
            if field.name not in {"first", *_BY_CALLER}
        }
        for name in _BY_CALLER:
            mine, theirs = getattr(total, name), getattr(arm, name)
            if mine is not None and theirs is not None:
                more[name] = mine.and_those(theirs)
        total = replace(total, **more)
    return total


def walks(world: World, rollouts: int, seed: Sequence[int]) -> list[whole.RolloutEnd]:
    """So many rollouts of identical versions in one world."""
    rng = np.random.default_rng(list(seed))
    traffic = Traffic.of(world, rollouts, rng)
    return whole.walked(traffic, rollouts, rng, shortest=world.shortest)


# An engine, with another model: by its queues, and by what they were taken to make before.
SHARED = (
    World(
        "two versions and a neighbour in the queues of two Tritons",
        (Stream(1000.0),),
        engine=Engine(),
    ),
    World(
        "the same, nobody named, and more requests",
        (Stream(1000.0, callers=0),),
        engine=Engine(requests=8000.0, neighbour=3000.0),
    ),
    *(world for world in WORLDS if world.neighbour),
)


def wrongly_back(rollouts: int, those: Sequence[World] = WORLDS, seed: int = SEED) -> list[Finding]:
    """How rollouts of identical versions end, so many in each of these worlds.

    A world's rollouts are the same ones whichever others are simulated.
    """
    found = []
    for world in those:
        number = (WORLDS if world in WORLDS else those).index(world)
        ended = walks(world, rollouts, (seed, number))
        found += whole.of_group(world.name, ended, 0.05)
    return found

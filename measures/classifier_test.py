"""A change of texts: a classifier two-sample test on counts by bucket, as a betting e-process.

Buckets are of tokens, which tell topics, or of the directions of vectors. The classifier reads each
bucket, or sums of them that are its *features*.

A classifier that was trained on the windows so far, to tell them from what is usual, is tried on
the next one. Its score is a weighted sum over buckets, standardised by what such scores did in
quiet traffic. Each window bets on the next score being large; without a change no bet gains on
average, so that a large gain is evidence. Gains are added up as in Shiryaev and Roberts' sum, which
reaches 1 after the stated time at the soonest, on average, if scores have at most a standard
normal's exponential moments. That is an assumption about traffic, and is held by simulation only.

As in ``measures.rhythm``, how today differed from the usual over the last hour or two is expected
as well: it is what begins that is found. That lags if the difference itself moves, by as much
for hours, and bets on hours of a small score grow. So ``PastDifferences`` tells how far the traffic
of earlier days was from what was expected, in the direction in which a classifier looks, and only
what exceeds it is bet on. Leading axes are independent streams. Pure.

Sources: Shin, Ramdas and Rinaldo, E-detectors (2023), for sums of e-processes and their mean time
to a false alarm; Lopez-Paz and Oquab, Revisiting classifier two-sample tests (2017).
"""

from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from measures.correlation import Floats
from measures.histograms import stability_index
from measures.state import SequentialState

MEMORIES = (0.2, 0.05)  # of the classifiers: weight of the last window
_BETS = (0.25, 0.5, 1.0)
_MEMORY, _BET = np.array(MEMORIES), np.array(_BETS)
_SLOWEST = len(MEMORIES) - 1  # of the classifiers
TODAY = 0.007  # weight of a window in how today differs, unless a source has another
PAST = 168  # slow differences that are kept, a twelfth of a day apart: two weeks
_PAST_A_DAY = 12
_SAME = 40  # windows: what was kept since is in the slowest classifier itself
_BETWEEN = 4.0  # standard deviations between hours of earlier days that nothing is bet on
_LARGEST_SCORE = 4.0  # no single window decides: what is above counts as this
_LARGEST = 10.0  # of the sum: a change that has ended is forgotten
_LEAST_FRESH = 100.0  # windows, before scores are standardised
_WIDER = 1.1  # standard deviation of scores, in bets, over what was seen


class ScoreNull(SequentialState, frozen=True):
    """What classifiers' scores did without a change.

    Attributes:
        windows: ``[...]``.
        seconds: ``[...]``.
        total: ``[..., memories]``, sum of scores.
        squares: ``[..., memories]``, sum of their squares.
    """

    windows: Floats
    seconds: Floats
    total: Floats
    squares: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet."""
        wide = np.zeros((*shape, len(MEMORIES)))
        return cls(np.zeros(shape), np.zeros(shape), wide, wide)

    def after(self, scores: Floats, seconds: ArrayLike, *, learn: ArrayLike = True) -> Self:
        """With one more window's ``[..., memories]`` of scores, if ``learn`` says so."""
        more = np.asarray(learn, dtype=np.float64)
        found = more[..., None] * scores
        return type(self)(
            self.windows + more,
            self.seconds + more * np.asarray(seconds, dtype=np.float64),
            self.total + found,
            self.squares + found * scores,
        )

    def ready(self, seconds: float) -> NDArray[np.bool_]:
        """``[...]``: whether this much time was seen."""
        found: NDArray[np.bool_] = (self.seconds >= seconds) & (self.windows >= _LEAST_FRESH)
        return found

    def standardise(self, scores: Floats) -> Floats:
        """``[..., memories]``; a mean below 0 is not believed."""
        mean = self.total / np.maximum(self.windows, 1.0)[..., None]
        return (scores - np.maximum(mean, 0.0)) / (_WIDER * np.sqrt(self.variance()))

    def variance(self) -> Floats:
        """``[..., memories]``, of the scores."""
        many = np.maximum(self.windows, 1.0)[..., None]
        found: Floats = np.maximum(self.squares / many - (self.total / many) ** 2, 1e-12)
        return found


class PastDifferences(SequentialState, frozen=True):
    """How traffic differed from what was expected, for an hour or so, without a change.

    What days do and chance does not: of a classifier's score it tells the standard deviation
    between such hours, in the direction in which that classifier looks.

    Attributes:
        kept: ``[..., PAST, features]``, what the slowest classifier was, the newest one first; 0
            if none was yet.
        ages: ``[..., PAST]``, windows since each was kept, from 1 on; 0 if none was yet.
        waited: ``[...]`` seconds of traffic since the newest one.
    """

    kept: Floats
    ages: Floats
    waited: Floats

    @classmethod
    def begin(cls, features: int, shape: tuple[int, ...] = ()) -> Self:
        """Nothing seen yet."""
        return cls(np.zeros((*shape, PAST, features)), np.zeros((*shape, PAST)), np.zeros(shape))

    def after(
        self, learnt: Floats, seconds: ArrayLike, day_seconds: float, *, learn: ArrayLike = True
    ) -> Self:
        """With one more window, after which classifiers are ``learnt``; kept only at times."""
        ages = self.ages + (self.ages > 0)
        waited = self.waited + np.where(learn, seconds, 0.0)
        due = np.asarray(learn, dtype=np.bool_) & (waited >= day_seconds / _PAST_A_DAY)
        if not due.any():
            return replace(self, ages=ages, waited=waited)
        # Rounded, because it is stored: a thousandth of a standard deviation is none.
        new = np.round(learnt[..., _SLOWEST, :], 3)[..., None, :]
        longer = np.concatenate([new, self.kept[..., :-1, :]], axis=-2)
        older = np.concatenate([np.ones_like(ages[..., :1]), ages[..., :-1]], axis=-1)
        return type(self)(
            np.where(due[..., None, None], longer, self.kept),
            np.where(due[..., None], older, ages),
            np.where(due, 0.0, waited),
        )

    def ready(self) -> NDArray[np.bool_]:
        """``[...]``: whether a day of them is known."""
        found: NDArray[np.bool_] = (self.ages > _SAME).sum(axis=-1) >= _PAST_A_DAY
        return found

    def deviation(self, towards: Floats, variance: Floats) -> Floats:
        """Standard deviation of scores between hours, ``[..., memories]``, 0 if chance explains it.

        Args:
            towards: ``[..., memories, features]``, the classifiers, of length 1.
            variance: ``[..., memories]``, of one window's scores.
        """
        past = (self.ages > _SAME).astype(np.float64)
        scores = towards @ np.swapaxes(self.kept, -1, -2)
        square = (past[..., None, :] * scores**2).sum(axis=-1)
        square = square / np.maximum(past.sum(axis=-1), 1.0)[..., None]
        chance = MEMORIES[_SLOWEST] / (2 - MEMORIES[_SLOWEST]) * variance
        found: Floats = np.sqrt(np.maximum(square - chance, 0.0))
        return found


class ClassifierTest(SequentialState, frozen=True):
    """The classifiers and the evidence of some streams.

    Attributes:
        today: ``[..., buckets]``, weighted shares seen less the usual ones.
        today_w: ``[...]``, sum of the weights.
        learnt: ``[..., memories, features]``, the classifiers: mean standardised difference.
        seen: ``[..., buckets]``, weighted shares of the last windows; ``usual`` those expected.
        usual: ``[..., buckets]``.
        counted: ``[...]``, weighted number of what a window counts.
        evidence: ``[..., memories, bets]``; of all, the mean counts.
        scores: ``[..., memories]``, of the last window.
    """

    today: Floats
    today_w: Floats
    learnt: Floats
    seen: Floats
    usual: Floats
    counted: Floats
    evidence: Floats
    scores: Floats

    @classmethod
    def begin(
        cls, buckets: int, shape: tuple[int, ...] = (), *, features: int | None = None
    ) -> Self:
        """Nothing seen yet; as many features as buckets if it is not said."""
        wide, zero = np.zeros((*shape, buckets)), np.zeros(shape)
        return cls(
            today=wide,
            today_w=zero,
            learnt=np.zeros((*shape, len(MEMORIES), features or buckets)),
            seen=wide,
            usual=wide,
            counted=zero,
            evidence=np.zeros((*shape, len(MEMORIES), len(_BETS))),
            scores=np.zeros((*shape, len(MEMORIES))),
        )

    def after(
        self,
        counts: Floats,
        expected: Floats,
        null: ScoreNull,
        part: float,
        day_seconds: float,
        *,
        features: Floats | None = None,
        past: PastDifferences | None = None,
        today: float = TODAY,
    ) -> Self:
        """With one more window, which counts something in each stream.

        Args:
            counts: ``[..., buckets]``.
            expected: ``[..., buckets]`` shares that are usual at this time.
            null: what scores did before.
            part: of the time to a false alarm that the window takes.
            day_seconds: of traffic that must have been seen before any bet.
            features: ``[buckets, features]``, what is summed up for each; None: the buckets.
            past: how days differed, on which nothing is bet; None if that is not asked.
            today: weight of a window in how today differs.
        """
        counted = np.maximum(counts.sum(axis=-1), 1.0)
        shares = counts / counted[..., None]
        apart = self.today / np.maximum(self.today_w, 1e-300)[..., None]
        base = np.maximum(expected + apart, 0.1 * expected) + 1e-6
        base = base / base.sum(axis=-1, keepdims=True)
        mean = counted[..., None] * base
        seen, wanted = (counts, mean) if features is None else (counts @ features, mean @ features)
        differs = (seen - wanted) / np.sqrt(wanted + 1.0)
        length = np.sqrt((self.learnt**2).sum(axis=-1))
        scores = (self.learnt * differs[..., None, :]).sum(axis=-1) / np.maximum(length, 1e-9)
        beyond, ready = scores, null.ready(day_seconds)
        if past is not None:
            towards = self.learnt / np.maximum(length, 1e-9)[..., None]
            beyond = scores - _BETWEEN * past.deviation(towards, null.variance())
            ready &= past.ready()
        bets = np.minimum(null.standardise(beyond), _LARGEST_SCORE)[..., None]
        gain = np.exp(_BET * bets - _BET**2 / 2)
        ready = ready[..., None, None] & (length > 0)[..., None]
        evidence = np.where(ready, np.minimum((self.evidence + part) * gain, _LARGEST), 0.0)
        kept, fast = 1 - _MEMORY[:, None], _MEMORY[0]
        return replace(
            self,
            today=(1 - today) * self.today + today * (shares - expected),
            today_w=(1 - today) * self.today_w + today,
            learnt=kept * self.learnt + _MEMORY[:, None] * differs[..., None, :],
            seen=(1 - fast) * self.seen + fast * shares,
            usual=(1 - fast) * self.usual + fast * base,
            counted=(1 - fast) * self.counted + fast * counted,
            evidence=evidence,
            scores=scores,
        )

    def of_day(self, other: Self | None) -> Self:
        """With what another one saw of how today differs."""
        if other is None:
            return self
        return replace(self, today=other.today, today_w=other.today_w)

    def evidence_ratio(self) -> Floats:
        """``[...]``: from 1 on, what comes has changed."""
        told: Floats = self.evidence.mean(axis=(-2, -1))
        return told

    def psi(self) -> Floats:
        """``[...]``: PSI of the last windows beyond what equal samples would show, at least 0."""
        known = np.maximum(self.counted * (2 - _MEMORY[0]) / _MEMORY[0], 1.0)
        index = stability_index(self.seen * known[..., None], self.usual * known[..., None])
        found: Floats = np.maximum(0.0, index - 2 * (self.seen.shape[-1] - 1) / known)
        return found

    def most(self, count: int) -> NDArray[np.intp]:
        """``[..., count]`` features that tell most, the first one most of all."""
        slow = np.abs(self.learnt).max(axis=-2)
        return np.argsort(-slow, axis=-1)[..., :count]

"""Whether scores are calibrated, by feedback; and the accuracy that follows, with its doubt.

A score is calibrated if, of all answers with a score of 0.8, four in five are right. Feedback can
reject that, and can never prove it. So what the feedback leaves open is part of the interval: few
labels make a wide one. It assumes that texts with feedback are right as often as all others with
the same score, that this has not changed since, and that texts are independent. Pure.

Sources: Spiegelhalter, Probabilistic prediction in patient management and clinical trials (1986),
for the second test; the mean score as an estimate is confidence-based performance estimation, as in
Guillory et al., Predicting with confidence on unseen distributions (2021).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt

from scipy.special import ndtri

from contracts.windows import MICRO, Sparse
from measures.histograms import add_counts

FEWEST = 100  # texts with feedback, below which nothing is said
_DOUBT = 0.01  # chance of calling calibrated scores uncalibrated, over both tests
_LIMIT = float(-ndtri(_DOUBT / 4))
_WIDE = float(-ndtri(0.025))


class Trust(StrEnum):
    """What feedback says of scores: ``held`` means that it does not contradict them."""

    UNKNOWN = "unknown"
    OFF = "off"
    HELD = "held"


@dataclass(slots=True)
class ScoredFeedback:
    """Texts with feedback, by bucket of score.

    Attributes:
        texts: how many.
        right: how many of them were answered rightly.
        sums: of their scores, in millionths.
    """

    texts: Sparse = field(default_factory=dict)
    right: Sparse = field(default_factory=dict)
    sums: Sparse = field(default_factory=dict)

    def add(self, texts: Sparse, right: Sparse, sums: Sparse) -> None:
        """Adds those of a window."""
        add_counts(self.texts, texts)
        add_counts(self.right, right)
        add_counts(self.sums, sums)

    @property
    def count(self) -> int:
        """All texts."""
        return sum(self.texts.values())

    def trust(self) -> Trust:
        """Whether scores are right on average, and as spread as they should be."""
        if self.count < FEWEST:
            return Trust.UNKNOWN
        excess = spread = tilt = tilted = 0.0
        for texts, score, right in self._buckets():
            variance = texts * score * (1 - score)
            excess += right - texts * score
            spread += variance
            tilt += (right - texts * score) * (1 - 2 * score)
            tilted += variance * (1 - 2 * score) ** 2
        # Scores of nearly 1 have next to no variance, and a single wrong answer must not settle it.
        off = abs(excess) - 1 > _LIMIT * sqrt(spread) or abs(tilt) - 1 > _LIMIT * sqrt(tilted)
        return Trust.OFF if off else Trust.HELD

    def doubt(self) -> float:
        """Variance of how far scores may be from the accuracy, as far as feedback can tell."""
        texts = self.count
        variance = sum(n * score * (1 - score) for n, score, _ in self._buckets())
        return max(variance, 1.0) / texts**2 if texts else 1.0

    def _buckets(self) -> list[tuple[int, float, int]]:
        return [
            (texts, min(1.0, self.sums.get(bucket, 0) / MICRO / texts), self.right.get(bucket, 0))
            for bucket, texts in self.texts.items()
            if texts > 0
        ]


def interval(mean_score: float, texts: int, doubt: float) -> tuple[float, float]:
    """95 % for the accuracy of texts whose scores are calibrated.

    Args:
        mean_score: of the texts.
        texts: how many they are.
        doubt: of the calibration, a variance.
    """
    # The variance of an answer is at most this, whatever the single scores are.
    half = _WIDE * sqrt(mean_score * (1 - mean_score) / max(1, texts) + doubt)
    return max(0.0, mean_score - half), min(1.0, mean_score + half)

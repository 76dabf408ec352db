"""Is a candidate less accurate, from labels of the pairs that disagree: valid however often asked.

If two versions answer the same, the truth tells nothing of a *difference* of their accuracy. So
only pairs with different answers are labelled, ``x`` is 1 if the candidate is right, -1 if
stable is, and 0 if neither is, and the difference is the share of pairs that disagree times the
mean of ``x`` among them. The share is known from many pairs that need no label, within a confidence
sequence; the mean is tested by betting. Together they bound the difference.

Two assumptions: pairs are independent (of a request of several texts one is taken, by lot), and the
pairs that are labelled are drawn uniformly from those that disagree. A person who labels pairs in
the order of ``contracts.pairs.place`` labels a sample without replacement, whatever texts are in
them and in whatever order they came.

Sources: a test martingale by betting on bounded means, Waudby-Smith and Ramdas (JRSS B 86, 2024,
arXiv 2010.09686); the mixture over a share, Robbins (Annals of Mathematical Statistics 41, 1970).
Arrays broadcast: labels and pairs of many simulated rollouts at once. Pure.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from measures.correlation import Floats

# As many bets at once, none of which looks at a label. The largest risks nearly all that it can
# for which the margin is -1, so that one set of bets serves every margin.
BETS = np.array([0.1, 0.2, 0.3, 0.4, 0.49])
_STEPS = 40  # of a bisection: a bound within 1e-12
_TINY = 1e-12


@dataclass(frozen=True)
class Labels:
    """What labels said of pairs that disagree, ``[...]`` each."""

    candidate: Floats  # right, and stable is wrong
    stable: Floats  # the other way round
    neither: Floats  # is right

    @property
    def count(self) -> Floats:
        """All labels."""
        total: Floats = self.candidate + self.stable + self.neither
        return total

    def exchange(self) -> "Labels":
        """With the versions' parts exchanged."""
        return Labels(self.stable, self.candidate, self.neither)


@dataclass(frozen=True)
class Bounds:
    """The difference of accuracy, candidate less stable, ``[...]`` each, from -1 to 1."""

    lower: Floats
    upper: Floats


def log_evidence(labels: Labels, margin: Floats | float) -> Floats:
    """``[...]``: log of the e-value that the mean of ``x`` is above ``-margin``.

    It grows with the margin, at any number of labels. So a margin that grows while one looks, but
    never beyond one at which the null is true, keeps the chance of a false alarm.

    Args:
        labels: so far.
        margin: from -1 to 1.
    """
    m = np.asarray(margin, dtype=float)[..., None]
    counts = (
        np.asarray(part, dtype=float)[..., None]
        for part in (labels.candidate, labels.stable, labels.neither)
    )
    candidate, stable, neither = counts
    log = (
        candidate * np.log1p(BETS * (1 + m))
        + stable * np.log1p(-BETS * (1 - m))
        + neither * np.log1p(BETS * m)
    )
    most = log.max(axis=-1, keepdims=True)
    found: Floats = most[..., 0] + np.log(np.exp(log - most).mean(axis=-1))
    return found


def disagreement(pairs: Floats, disagree: Floats, alpha: float) -> tuple[Floats, Floats]:
    """``[...]`` each: the share of pairs that disagree is between these at all times.

    Args:
        pairs: that were compared, of independent requests.
        disagree: of these.
        alpha: chance that the share ever lies outside.
    """
    n, k = np.asarray(pairs, dtype=float), np.asarray(disagree, dtype=float)
    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)
    found = np.clip(k / np.maximum(n, 1.0), _TINY, 1 - _TINY)
    ends = []
    for end in (_TINY, 1 - _TINY):
        inside, outside = found, np.full(n.shape, end)
        for _ in range(_STEPS):
            middle = (inside + outside) / 2
            log = mixture - k * np.log(middle) - (n - k) * np.log1p(-middle)
            is_inside = log < np.log(1 / alpha)
            inside = np.where(is_inside, middle, inside)
            outside = np.where(is_inside, outside, middle)
        ends.append(outside)
    return ends[0], ends[1]


def is_not_worse(
    labels: Labels, pairs: Floats, disagree: Floats, margin: float, alpha: float = 0.05
) -> np.ndarray:
    """``[...]``: whether it is shown that the candidate is less than ``margin`` less accurate.

    Args:
        labels: of pairs that disagree.
        pairs: all that were compared.
        disagree: of these.
        margin: a difference of accuracy, such as 0.02.
        alpha: chance that this is ever said of one that is worse by the margin or more.
    """
    _, share = disagreement(pairs, disagree, alpha / 5)
    found: np.ndarray = log_evidence(labels, np.minimum(margin / share, 1.0)) >= np.log(
        1 / (0.8 * alpha)
    )
    return found | (share <= margin)


def bounds(labels: Labels, pairs: Floats, disagree: Floats, alpha: float = 0.05) -> Bounds:
    """Where the difference of accuracy lies at all times, but for ``alpha``.

    The arguments are those of ``is_not_worse``.
    """
    least, most = disagreement(pairs, disagree, alpha / 5)
    worse = _least_margin(labels, 0.4 * alpha)
    better = _least_margin(labels.exchange(), 0.4 * alpha)
    return Bounds(
        -worse * np.where(worse > 0, most, least), better * np.where(better > 0, most, least)
    )


def _least_margin(labels: Labels, alpha: float) -> Floats:
    """``[...]``: the mean of ``x`` is above minus this, which may be below 0; at most 1."""
    low, high = np.full(np.shape(labels.count), -1.0), np.ones(np.shape(labels.count))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_enough = log_evidence(labels, middle) >= np.log(1 / alpha)
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return high

"""Tests of a share by pairs: a candidate's answers beside those to the same requests' originals.

Each pair says whether the event is in the candidate's answer (``c``), in stable's (``s``), in both
or in neither. What is tested is the mean of ``y = c - s_line * s`` against the line's ``a``; pairs
without the event in only one answer hardly scatter it. Evidence is the wealth of a bet: the
product of ``1 + bet (y - a)`` is an e-value while no pair is expected beyond the line, for any bet
that was fixed before the pair was seen, however long one looks.

A request of n texts has weight 1 / n in each of its pairs. By Hoelder's inequality the weighted
geometric mean of e-values is one, whatever depends on what within a request. Windows are divided by
the design effect of the requests, as in ``measures.evalue``.

Arrays throughout: the last axis of the counts holds rows. Pure.

Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (JRSS B 86,
2024, arXiv 2010.09686): the capital process, and the bet of ``bet_to_pass`` (aGRAPA).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from measures.correlation import Floats, design_effect
from measures.evalue import Tolerance

# Bets to fail, as shares of the largest one: small ones find small faults among many changes.
# As many as a test of two proportions has alternatives: evidence goes on in them after shadow.
BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95])
MOST = 0.5  # of the largest bet to pass, as the source advises: more loses if answers change
MOST_OF_RARE = 0.75  # the same of events that few pairs have: what is lost by a large bet is rare
_PRIOR_PAIRS = 50.0  # before any pair is seen, half as many changes are believed as a line allows


@dataclass(frozen=True)
class Pairs:
    """Weights of pairs by where the event is: ``[..., rows]`` each."""

    both: Floats
    gained: Floats  # only in the candidate's answer
    lost: Floats  # only in stable's
    neither: Floats

    @classmethod
    def of(cls, table: Floats, rows: int) -> Self:
        """Rows of each class's share, and behind them of its falling.

        Args:
            table: ``[..., classes, classes]``, weights of pairs by stable's and candidate's class.
            rows: as many as there are classes, or twice as many.
        """
        both = np.diagonal(table, axis1=-2, axis2=-1)
        gained, lost = table.sum(axis=-2) - both, table.sum(axis=-1) - both
        neither = table.sum(axis=(-2, -1))[..., None] - both - gained - lost
        grows, falls = (both, gained, lost, neither), (neither, lost, gained, both)
        if rows == table.shape[-1]:
            return cls(*grows)
        return cls(*(np.concatenate(each, axis=-1) for each in zip(grows, falls, strict=True)))

    @classmethod
    def of_event(cls, table: Floats) -> Self:
        """One row, of whether the event is there.

        Args:
            table: ``[..., 2, 2]``, weights of pairs by whether stable and candidate have it.
        """
        neither, gained, lost, both = (table[..., i, j, None] for i in (0, 1) for j in (0, 1))
        return cls(both, gained, lost, neither)

    @property
    def count(self) -> Floats:
        """``[..., rows]``: all pairs."""
        total: Floats = self.both + self.gained + self.lost + self.neither
        return total

    @property
    def arms(self) -> Floats:
        """``[..., 4, rows]``: events and requests of the candidate, and of stable."""
        return np.stack(
            [self.both + self.gained, self.count, self.both + self.lost, self.count], axis=-2
        )

    def add(self, before: Floats | None) -> Floats:
        """``[..., 3, rows]``: all pairs so far, those that gained the event, those that lost it."""
        now = np.stack([self.count, self.gained, self.lost], axis=-2)
        return now if before is None else before + now

    def log_to_fail(self, line: Tolerance, rho: Floats | float) -> Floats:
        """``[..., rows, ALTERNATIVES]``: log of a window's e-value, that the event is not worse."""
        bets = BETS / np.asarray(line.a + line.s)[..., None]
        return self._log_wealth(bets, line, rho)

    def log_to_pass(self, line: Tolerance, bet: Floats, rho: Floats | float) -> Floats:
        """``[..., rows]``: the same that it is worse, with the bets of ``bet_to_pass``."""
        return self._log_wealth(-bet[..., None], line, rho)[..., 0]

    def _log_wealth(self, bets: Floats, line: Tolerance, rho: Floats | float) -> Floats:
        a, s = np.asarray(line.a)[..., None], np.asarray(line.s)[..., None]
        log: Floats = (
            self.both[..., None] * np.log1p(bets * (1 - s - a))
            + self.gained[..., None] * np.log1p(bets * (1 - a))
            + self.lost[..., None] * np.log1p(-bets * (s + a))
            + self.neither[..., None] * np.log1p(-bets * a)
        )
        return log / design_effect(self.count, rho)[..., None]


def bet_to_pass(before: Floats | None, line: Tolerance, most: float = MOST) -> Floats:
    """``[..., rows]``: how much to bet that the candidate is not worse.

    Args:
        before: the pairs of the windows before, as ``Pairs.add`` gives them.
        line: the tolerance, ``[rows]``.
        most: of the largest bet.
    """
    if before is None:
        before = np.zeros((3, len(np.asarray(line.a))))
    count, gained, lost = np.moveaxis(before, -2, 0)
    believed = _PRIOR_PAIRS * np.asarray(line.a) / 4
    total = count + _PRIOR_PAIRS
    s = np.asarray(line.s)
    mean = (gained - s * lost) / total
    square = (gained + s**2 * lost + (1 + s**2) * believed) / total
    distance = np.asarray(line.a) - mean
    variance = np.maximum(square - mean**2, 0.0)
    largest = most / (1 - np.asarray(line.a))
    bet: Floats = np.clip(distance / (variance + distance**2), 0.0, largest)
    return bet

"""Whether an arm is warm: its first windows with callers say nothing against its version.

A version that has just begun to answer callers is slow for a while: caches, allocators and
connections fill. Until it is warm its latency only reports, unless copies had shown before that the
version is slow. Shadow has warmed it then, and callers need not wait for what is known. It never
makes evidence: it only decides, from earlier windows, which windows count.
"""

import math
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from measures.correlation import Floats
from measures.evalue import Tolerance, WindowCounts
from measures.own_past import STRATA
from measures.proportions import ALTERNATIVES, StableHistory, log_evidence
from measures.state import SequentialState
from rollout.checks.rows import LATENCY

COLD_WINDOWS = 18  # with callers' requests, the first ones: three minutes
# Of the evidence to pass, that is not staked on cold windows: a version that is slow in these
# passes by what comes later.
RESERVE = 0.2


class ArmWarmth(SequentialState, frozen=True):
    """How long callers have met the version, and what its copies said before.

    Attributes:
        windows: ``[...]``, in which callers met it.
        log_slow: ``[..., ALTERNATIVES]``, log evidence of shadow that it is slower than tolerated.
    """

    windows: Floats
    log_slow: Floats

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nobody has met it."""
        return cls(np.zeros(shape), np.zeros((*shape, ALTERNATIVES)))

    def is_cold(self, alpha: float) -> NDArray[np.bool_]:
        """``[...]``: whether latency only reports in the next window of callers."""
        is_slow = np.exp(np.minimum(self.log_slow, 700.0)).mean(axis=-1) * alpha >= 1.0
        found: NDArray[np.bool_] = (self.windows < COLD_WINDOWS) & ~is_slow
        return found

    def with_callers(self) -> Self:
        """With a window in which callers met it."""
        return replace(self, windows=np.minimum(self.windows + 1, COLD_WINDOWS))

    def forget_copies(self) -> Self:
        """With what shadow said begun again, for another tolerance."""
        return replace(self, log_slow=np.zeros_like(self.log_slow))

    def with_copies(
        self, window: WindowCounts, past: StableHistory, line: Tolerance, rho: Floats
    ) -> Self:
        """With a window of shadow.

        Args:
            window: latency's counts, ``[..., rows]``. Copies have no callers: strata are added up.
            past: stable's, ``[..., rows]``.
            line: the tolerance, ``[rows]``.
            rho: intra-window correlation of all latencies, ``[...]``.
        """
        of = WindowCounts(*map(_by_length, (window.e_c, window.n_c, window.e_s, window.n_s)))
        events, requests = _by_length(past.events), _by_length(past.requests)
        theta = (events + 0.5) / (requests + 1.0)
        whole = requests.sum(axis=-1, keepdims=True) / np.maximum(requests, 1.0)
        of_lengths = np.minimum(rho[..., None] * whole, 1.0)
        first = slice(0, theta.shape[-1])
        own = Tolerance(*(np.asarray(part)[..., LATENCY][..., first] for part in (line.a, line.s)))
        log_s = log_evidence(of, theta, own, of_lengths)
        return replace(self, log_slow=self.log_slow + log_s.sum(axis=-2))


def stake_part(before: Floats, after: Floats) -> Floats:
    """Log evidence to pass after a cold window: ``RESERVE`` of what it began with is not staked.

    The part that is staked is known before the window, so an e-value stays one.

    Args:
        before: log evidence before the window.
        after: the same if all of it was staked.
    """
    staked = np.maximum(1.0 - RESERVE * np.exp(np.minimum(-before, 700.0)), 0.0)
    kept = np.minimum(math.log(RESERVE), before)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(kept, np.log(staked) + after))


def _by_length(rows: Floats) -> Floats:
    """``[..., rows]`` of all or of latency, to ``[..., lengths]``."""
    of_latency = rows[..., LATENCY]
    strata: Floats = of_latency.reshape(*rows.shape[:-1], STRATA, -1)
    found: Floats = strata.sum(axis=-2)
    return found

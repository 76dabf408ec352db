"""Estimates the engine time of a batch of packed rows, by its tokens and nothing else.

A run costs a fixed time and a time for each token. ``LineModel`` holds both for one Triton: the
loader's warm-up measures them, and every answered batch corrects them. What a gateway sees of an
engine that others use too is longer than the engine's own time, because messages are joined, and it
is what its callers wait for. ``TokenCosts`` combines all Tritons of a package. Pure.

A batch is told to ``Costs`` as a row length and a number of rows: here their product counts.
"""

from collections.abc import Iterable, Sequence
from math import inf

from contracts.loading import CostPoint
from gateway.batching.cost_model import (
    COMMON_SHARE,
    GOOD_ENOUGH,
    LEARNING_RATE,
    OVERHEAD_SECONDS,
    EngineCosts,
    JointCosts,
    limited_step,
)

# Of a batch: the packed model's largest run. ``maxBatchSize`` bounds the rows of padded batches.
MOST_TOKENS = 16_384
MOST_ROWS = 2048
_SIZES = tuple(64 << step for step in range(9))  # 64 to MOST_TOKENS

# The prior: a small model on a GPU of today. The first answers replace its scale.
_PRIOR_FIXED_SECONDS = 0.0005
_PRIOR_SECONDS_A_TOKEN = 0.2e-6
# Of a measured batch, that its tokens and its fixed time each have at least.
_LEAST_SHARE = 0.01


class LineModel(EngineCosts):
    """A fixed time and a time for each token, of batches on one Triton.

    Most of what a batch teaches is taken for the engine's pace, as ``CostModel`` does. The rest
    goes to the fixed time and to that of tokens by their shares in this batch: small ones teach the
    one, large ones the other.
    """

    def __init__(self) -> None:
        super().__init__(max_rows=1)
        self._fixed = _PRIOR_FIXED_SECONDS
        self._a_token = _PRIOR_SECONDS_A_TOKEN
        self._seen = 0

    @property
    def known(self) -> bool:
        """See ``EngineCosts.known``."""
        return self._seen > 0

    def seed(self, points: Iterable[CostPoint]) -> None:
        """See ``EngineCosts.seed``; the line that fits them best."""
        measured = [
            (point.bucket * point.batch, point.milliseconds / 1000)
            for point in points
            if point.milliseconds > 0
        ]
        if measured:
            self._fixed, self._a_token = _line(measured)
            self._seen += len(measured)

    def seconds(self, bucket: int, rows: int) -> float:
        """See ``Costs.seconds``."""
        return self._fixed + self._a_token * bucket * rows

    def observe(self, bucket: int, rows: int, seconds: float) -> None:
        """See ``EngineCosts.observe``."""
        tokens = bucket * rows
        if not (0 < seconds < inf and tokens > 0):
            return
        expected = self.seconds(tokens, 1)
        step = limited_step(seconds / expected)
        common, own = LEARNING_RATE * COMMON_SHARE, LEARNING_RATE * (1 - COMMON_SHARE)
        if self._seen == 0:
            common, own = 1.0, 0.0
        fixed = self._fixed / expected
        self._fixed *= step ** (common + own * fixed)
        self._a_token *= step ** (common + own * (1 - fixed))
        self._seen += 1


class TokenCosts(JointCosts):
    """Costs of a package's packed batches on all Tritons that serve it.

    Args:
        max_rows: of a batch.
    """

    def __init__(self, max_rows: int = MOST_ROWS) -> None:
        super().__init__((), max_rows)
        # Both are read for every row or batch, and computed once they are asked for.
        self._best_tokens = 0
        self._token_seconds = 0.0

    @property
    def best_tokens(self) -> int:
        """Tokens of the smallest batch with about the best throughput."""
        if self._best_tokens == 0:
            rates = [size / (self.seconds(size, 1) + OVERHEAD_SECONDS) for size in _SIZES]
            enough = max(rates) * GOOD_ENOUGH
            sizes = zip(_SIZES, rates, strict=True)
            self._best_tokens = next(size for size, rate in sizes if rate >= enough)
        return self._best_tokens

    def tokens_in(self, seconds: float) -> int:
        """How many tokens take so long, in batches of the best size."""
        best = self.best_tokens
        return round(seconds * best / self.seconds(best, 1))

    def _find_best(self, bucket: int) -> int:
        return max(1, min(self._max_rows, self.best_tokens // bucket))

    def row_seconds(self, bucket: int) -> float:
        """See ``Costs.row_seconds``."""
        if self._token_seconds == 0:
            best = self.best_tokens
            self._token_seconds = self.seconds(best, 1) / best
        return bucket * self._token_seconds

    def _new_model(self) -> EngineCosts:
        return LineModel()

    def _review(self) -> None:
        super()._review()
        self._best_tokens = 0
        self._token_seconds = 0.0


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Fixed seconds and seconds a token, by least squares of relative errors; both positive."""
    weights = [1 / seconds**2 for _, seconds in points]
    mass = sum(weights)
    mean = sum([w * tokens for w, (tokens, _) in zip(weights, points, strict=True)]) / mass
    middle = sum([w * seconds for w, (_, seconds) in zip(weights, points, strict=True)]) / mass
    spread = covariance = 0.0
    for weight, (tokens, seconds) in zip(weights, points, strict=True):
        spread += weight * (tokens - mean) ** 2
        covariance += weight * (tokens - mean) * (seconds - middle)
    if spread <= 0:  # one size: the prior's shares
        prior = _PRIOR_FIXED_SECONDS + _PRIOR_SECONDS_A_TOKEN * mean
        return _PRIOR_FIXED_SECONDS * middle / prior, _PRIOR_SECONDS_A_TOKEN * middle / prior
    fixed = middle - mean * covariance / spread
    fixed = min(max(fixed, _LEAST_SHARE * middle), (1 - _LEAST_SHARE) * middle)
    return fixed, (middle - fixed) / mean

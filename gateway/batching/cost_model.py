"""Estimates the engine time of a batch, by row length and number of rows.

A ``CostModel`` holds the costs of one package on one Triton. It starts from the measurements of the
loader's warm-up, if there are any, and every answered batch corrects it. ``JointCosts`` combines
the cost models of all Tritons that serve the package. The schedule uses the costs to choose the
size of batches, and admission to estimate how long the queue is. Pure: no clock and no I/O.

Until something is measured, a prior is assumed: a fixed cost and a cost for each padded token. What
was not measured is estimated from what was, in proportion to the prior. Most of what a batch
teaches is taken for the engine's pace, which other work on its machine changes: it moves the costs
of all shapes alike. So the sizes that are in use do not look dear beside those that are not.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from contracts.loading import CostPoint

# The prior: a small model on a CPU. The first answers replace its scale, so that only the ratio of
# fixed cost and cost for each padded token matters.
_PRIOR_FIXED_SECONDS = 0.001
_PRIOR_SECONDS_A_TOKEN = 20e-6

LEARNING_RATE = 0.15  # of a known point, on a logarithmic scale
# The share of what is learned at one point that goes for all points: other work makes every shape
# take longer. Without it, sizes that are not used look cheaper, and are tried.
COMMON_SHARE = 0.9
_LARGEST_STEP = 8.0  # by which one observation may change an estimate, as it may be a pause
GOOD_ENOUGH = 0.95  # a smaller batch with this share of the best throughput is preferred
# The cost of a batch besides engine time: this process and the network. It makes larger batches
# better only where the engine time is as short.
OVERHEAD_SECONDS = 0.0003
_REVIEW_EVERY = 16  # observations until the best batch size is computed again


def batch_sizes(largest: int) -> tuple[int, ...]:
    """The sizes at which costs are kept: powers of two and the largest batch."""
    sizes = [1]
    while sizes[-1] * 2 < largest:
        sizes.append(sizes[-1] * 2)
    if largest > 1:
        sizes.append(largest)
    return tuple(sizes)


class Costs(ABC):
    """Costs of batches, and the best batch size by them.

    Args:
        max_rows: the package's largest batch.
        row_buckets: rows that its engine fills batches up to; empty if it fills none up.
    """

    def __init__(self, max_rows: int, row_buckets: Sequence[int] = ()) -> None:
        self._filled_up = len(row_buckets) > 0
        self._sizes = tuple(row_buckets) or batch_sizes(max_rows)
        self._max_rows = max_rows
        # All are read for every row or batch, and computed again after some observations.
        self._best: dict[int, int] = {}
        self._row_seconds: dict[int, float] = {}
        self._saving: dict[int, float] = {}
        self._planned: dict[tuple[int, int], float] = {}

    @abstractmethod
    def seconds(self, bucket: int, rows: int) -> float:
        """Estimated engine time of ``rows`` rows padded to ``bucket`` tokens."""

    def best_rows(self, bucket: int) -> int:
        """The smallest batch with about the best throughput: larger ones gain nothing."""
        known = self._best.get(bucket)
        if known is None:
            known = self._best[bucket] = self._find_best(bucket)
        return known

    def row_seconds(self, bucket: int) -> float:
        """Engine seconds of one row in a batch of the best size."""
        known = self._row_seconds.get(bucket)
        if known is None:
            best = self.best_rows(bucket)
            known = self._row_seconds[bucket] = self.seconds(bucket, best) / best
        return known

    def saving(self, bucket: int) -> float:
        """Share of the time of rows that leave alone that batches of the best size save."""
        known = self._saving.get(bucket)
        if known is None:
            best = self.best_rows(bucket)
            alone = self.seconds(bucket, 1) + OVERHEAD_SECONDS
            full = (self.seconds(bucket, best) + OVERHEAD_SECONDS) / best
            known = self._saving[bucket] = max(0.0, 1 - full / alone)
        return known

    def planned_seconds(self, bucket: int, rows: int) -> float:
        """``seconds`` of a batch and what it costs besides engine time; 0 for no rows.

        Kept until costs are looked at again, since a plan asks for many.
        """
        known = self._planned.get((bucket, rows))
        if known is None:
            known = self.seconds(bucket, rows) + OVERHEAD_SECONDS if rows else 0.0
            self._planned[bucket, rows] = known
        return known

    def _review(self) -> None:
        self._best.clear()
        self._row_seconds.clear()
        self._saving.clear()
        self._planned.clear()

    def _find_best(self, bucket: int) -> int:
        rates = [size / (self.seconds(bucket, size) + OVERHEAD_SECONDS) for size in self._sizes]
        enough = max(rates) * GOOD_ENOUGH
        return next(size for size, rate in zip(self._sizes, rates, strict=True) if rate >= enough)


class EngineCosts(Costs):
    """Costs of batches on one Triton, which measurements and answers teach."""

    @property
    @abstractmethod
    def known(self) -> bool:
        """Whether any batch was measured."""

    @abstractmethod
    def seed(self, points: Iterable[CostPoint]) -> None:
        """Takes a warm-up's measurements."""

    @abstractmethod
    def observe(self, bucket: int, rows: int, seconds: float) -> None:
        """Learns from a batch that had an instance to itself for ``seconds``.

        Impossible values are ignored: no rows, too many rows, no time, or infinite time.
        """


class CostModel(EngineCosts):
    """Seconds of engine time for a batch on one Triton, interpolated between known points.

    Args:
        buckets: row lengths in tokens, ascending.
        max_rows: the package's largest batch.
        row_buckets: rows that its engine fills batches up to; empty if it fills none up.
    """

    def __init__(
        self, buckets: Sequence[int], max_rows: int, row_buckets: Sequence[int] = ()
    ) -> None:
        super().__init__(max_rows, row_buckets)
        self._points: dict[int, list[float | None]] = {
            bucket: [None] * len(self._sizes) for bucket in buckets
        }
        self._pace = 1.0  # by which all points are multiplied
        self._scale = 1.0  # of the prior, for points that were not measured
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether any batch was measured."""
        return self._seen > 0

    def seed(self, points: Iterable[CostPoint]) -> None:
        """Takes a warm-up's measurements; points of unknown buckets or sizes are ignored."""
        scales = []
        for point in points:
            row = self._points.get(point.bucket)
            if row is not None and point.batch in self._sizes:
                measured = point.milliseconds / 1000
                row[self._sizes.index(point.batch)] = measured / self._pace
                scales.append(measured / _prior(point.bucket, point.batch))
        if scales:
            self._scale = median(scales)
            self._seen += len(scales)
        self._review()

    def seconds(self, bucket: int, rows: int) -> float:
        """See ``Costs.seconds``."""
        sizes = self._sizes
        at = bisect_left(sizes, rows)
        if at == len(sizes):
            return self._point(bucket, at - 1) * rows / sizes[-1]
        if self._filled_up or sizes[at] == rows:
            return self._point(bucket, at)
        low, high = self._point(bucket, at - 1), self._point(bucket, at)
        share = (rows - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        return low + (high - low) * share

    def observe(self, bucket: int, rows: int, seconds: float) -> None:
        """See ``EngineCosts.observe``."""
        if not (0 < seconds < math.inf and 1 <= rows <= self._max_rows):
            return
        step = limited_step(seconds / self.seconds(bucket, rows))
        at = bisect_left(self._sizes, rows)
        if self._filled_up:
            rows = self._sizes[at]
        scale = seconds / _prior(bucket, rows)
        touched = (at,) if self._sizes[at] == rows else (at - 1, at)
        before = [self._point(bucket, index) for index in touched]
        points = self._points[bucket]
        if any(points[index] is not None for index in touched):
            self._pace *= step ** (LEARNING_RATE * COMMON_SHARE)
        for index, point in zip(touched, before, strict=True):
            rate = 1.0 if points[index] is None else LEARNING_RATE
            # A batch between two sizes corrects both of them, and could move one beyond all that
            # was measured. The limit is what this batch would have cost at that size.
            limit = scale * _prior(bucket, self._sizes[index])
            moved = point * step**rate
            moved = min(moved, max(point, limit)) if step > 1 else max(moved, min(point, limit))
            points[index] = moved / self._pace
        self._seen += 1
        # The scale is corrected by its own error. With a point's error, a change of speed would be
        # counted once for each point.
        self._scale *= limited_step(scale / self._scale) ** max(LEARNING_RATE, 1 / self._seen)
        if self._seen % _REVIEW_EVERY == 0 or self._seen < _REVIEW_EVERY:
            self._review()

    def _point(self, bucket: int, index: int) -> float:
        points = self._points[bucket]
        known = points[index]
        if known is not None:
            return known * self._pace
        size = self._sizes[index]
        near = [at for at, point in enumerate(points) if point is not None]
        if not near:
            return self._scale * _prior(bucket, size)
        at = min(near, key=lambda other: abs(other - index))
        nearest = self._point(bucket, at)
        return nearest * _prior(bucket, size) / _prior(bucket, self._sizes[at])


class JointCosts(Costs):
    """Costs of a package's batches on all Tritons that serve it.

    Each Triton has its own ``CostModel``. The schedule needs one cost for all of them, because it
    chooses the rows of a batch before it is known which Triton is free next. That is the harmonic
    mean over instances: as many instances of this cost would have the same throughput. A Triton
    without measurements counts like the others.

    Args:
        buckets: row lengths in tokens, ascending.
        max_rows: the package's largest batch.
        row_buckets: rows that its engine fills batches up to; empty if it fills none up.
    """

    def __init__(
        self, buckets: Sequence[int], max_rows: int, row_buckets: Sequence[int] = ()
    ) -> None:
        super().__init__(max_rows, row_buckets)
        self._buckets = buckets
        self._row_buckets = row_buckets
        self._models: dict[str, EngineCosts] = {}
        self._measured: dict[str, tuple[CostPoint, ...]] = {}
        self._instances: dict[str, int] = {}
        self._unmeasured = self._new_model()
        self._counted: list[tuple[EngineCosts, int]] = []
        self._seen = 0
        self._review()

    def seconds(self, bucket: int, rows: int) -> float:
        """See ``Costs.seconds``; the mean over the Tritons that serve the package."""
        counted = self._counted
        if len(counted) == 1:
            return counted[0][0].seconds(bucket, rows)
        rate = sum(instances / model.seconds(bucket, rows) for model, instances in counted)
        return sum(instances for _, instances in counted) / rate

    def seconds_on(self, triton: str, bucket: int, rows: int) -> float:
        """Estimated engine time of a batch on the Triton at an address."""
        model = self._models.get(triton)
        costs = model if model is not None and model.known else self
        return costs.seconds(bucket, rows)

    def seed(self, triton: str, points: tuple[CostPoint, ...]) -> None:
        """Takes a loader's measurements on its Triton. The same measurements are taken once."""
        if self._measured.get(triton) != points:
            self._measured[triton] = points
            self._model(triton).seed(points)
            self._review()

    def observe(
        self,
        triton: str,
        bucket: int,
        rows: int,
        seconds: float,
        *,
        less: float = 0.0,
        more: float = 0.0,
    ) -> None:
        """Learns from a batch on a Triton, whose time is known within bounds.

        What lies within them is taken for right: a batch that may have cost what was expected
        teaches nothing. The first one is taken as it was seen.

        Args:
            triton: its address.
            bucket: row length in tokens.
            rows: of the batch.
            seconds: as they were seen; see ``EngineCosts.observe``.
            less: it may have taken so much less.
            more: or so much more.
        """
        model = self._model(triton)
        first = not model.known
        if less > 0 and not first:
            likely = max(model.seconds(bucket, rows), seconds - less)
            seconds = min(likely, seconds + more)
        model.observe(bucket, rows, seconds)
        self._seen += 1
        if first or self._seen % _REVIEW_EVERY == 0 or self._seen < _REVIEW_EVERY:
            self._review()

    def serve(self, instances: Mapping[str, int]) -> None:
        """Sets the Tritons that serve now, and how many batches each runs at once."""
        if self._instances != instances:
            self._instances = dict(instances)
            self._review()

    def keep(self, tritons: Iterable[str]) -> None:
        """Forgets all other Tritons: one that returns later may be another machine."""
        for triton in self._models.keys() - set(tritons):
            del self._models[triton]
            self._measured.pop(triton, None)
        self._review()

    def _new_model(self) -> EngineCosts:
        """Of a Triton of which nothing is known."""
        return CostModel(self._buckets, self._max_rows, self._row_buckets)

    def _model(self, triton: str) -> EngineCosts:
        model = self._models.get(triton)
        if model is None:
            model = self._models[triton] = self._new_model()
        return model

    def _review(self) -> None:
        super()._review()
        known = {triton: model for triton, model in self._models.items() if model.known}
        serving = [(known[each], count) for each, count in self._instances.items() if each in known]
        # While none of them serves, any measurements are better than the prior.
        others = [(model, 1) for model in known.values()]
        self._counted = serving or others or [(self._unmeasured, 1)]


def _prior(bucket: int, rows: int) -> float:
    return _PRIOR_FIXED_SECONDS + _PRIOR_SECONDS_A_TOKEN * bucket * rows


def limited_step(ratio: float) -> float:
    """By how much one observation may change an estimate, which was wrong by ``ratio``."""
    return min(_LARGEST_STEP, max(1 / _LARGEST_STEP, ratio))

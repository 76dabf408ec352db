"""The same rollouts by other judges: Kayenta's Mann-Whitney test and a plain mSPRT.

The split stands at a half for three hours, without shadow and steps, so that all judges see the
same windows and none is helped by how the split moves. Ours has seen ``whole.HISTORY`` windows of
stable before, as production has; the others learn nothing from them.

- **Kayenta** is its judge ``NetflixACAJudge-v1.0`` with the settings that its makers advise to
  begin with: a lifetime of three hours, an analysis each hour over all data so far (no lookback),
  thresholds of 75 and 95. Its metrics are the share of errors, the mean seconds of an answer and
  the share of the second label, a data point a minute, in groups of their own; a minute without
  requests has no point. Each is compared by the Hodges-Lehmann interval of 98 %; a metric is High
  where the interval's lower end is above a quarter of the estimate, Low likewise. The score is the
  share that is neither.
- **mSPRT** is the mixture sequential probability ratio test with a normal mixture on the
  difference of two means, and variances as they are found so far: of errors and of the second
  label as Bernoulli variables, of seconds as normal ones. It looks after every window, from 100
  requests of each arm on, and splits 5 % over its three metrics. The mixture's deviation is the
  difference that the harms of this study make, which nobody knows before.

Sources: spinnaker/kayenta (``NetflixACAJudge.scala``, ``MannWhitneyClassifier.scala``,
``MannWhitney.scala``, ``WeightedSumScorer.scala``; Apache-2.0), Spinnaker's "Best practices for
configuring canary"; Johari, Koomen, Pekelis and Walsh, "Peeking at A/B tests" (KDD 2017) and
"Always valid inference" (Operations Research 70, 2022, arXiv 1512.04922).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bench.findings import Finding, needed, share
from bench.rollouts import whole, worlds
from bench.rollouts.batched_evidence import BatchedEvidence
from bench.rollouts.traffic import EDGE, Arm, Harm, Places, World, harmed
from contracts.rollout import RolloutSpec
from contracts.statistics import LATENCY_EDGES
from measures.correlation import Floats

SEED = 21
WINDOWS = 1080  # three hours
HALF = 0.5
ERRORS, SECONDS, LABEL = range(3)  # metrics
OURS, KAYENTA, MSPRT = "Headrace", "Kayenta", "mSPRT"
JUDGES = (OURS, KAYENTA, MSPRT)
# Columns of what is harmful.
OF_HARMS = tuple(f"{judge}: {what}" for judge in JUDGES for what in ("found", "requests"))

_MINUTE, _HOUR = 6, 360  # windows
_CONFIDENCE, _TOLERANCE = 0.98, 0.25
_MARGINAL, _PASS = 75.0, 95.0
# Of a metric that is higher in the candidate, and of one that is lower: whether that fails it.
_HIGH_FAILS, _LOW_FAILS = np.array([True, True, True]), np.array([False, False, True])

_ALPHA = 0.05 / 3
_LEAST = 100.0  # requests of an arm
_MIXTURE = np.array([0.02, 0.008, 0.1])  # differences of the metrics

_SECONDS_OF = np.array(LATENCY_EDGES.upper) * np.exp(-EDGE / 2)  # of a bucket

_CALM = "callers alike, independent requests"
CALM = World(1500.0, 0.0, 0.0)
_TRAFFICS = {
    _CALM: CALM,
    "callers alike, windows correlated by 0.02": World(1500.0, 0.0, 0.02),
    "callers differ, independent requests": World(1500.0, 0.3, 0.0),
}
_HARMED = (_CALM, "callers differ, independent requests")
HARMS = (
    Harm("2 % of requests fail", fails=0.02),
    Harm("every answer takes half as long again", slower=1.5),
    Harm("one in four of a class is called the other", flips=0.25),
    Harm("0.5 % of requests fail", fails=0.005),
)


@dataclass(frozen=True)
class Sums:
    """What the others see of one arm, ``[rollouts, windows, metrics]`` each.

    Attributes:
        n: requests, answers, and texts with a label.
        total: errors, seconds, and texts with the second label.
        squares: of the same, added up.
    """

    n: Floats
    total: Floats
    squares: Floats


@dataclass(frozen=True)
class Seen:
    """Rollouts of one kind.

    Attributes:
        candidate: what it was sent, and did.
        stable: likewise.
        failed: window in which a check of ours failed, infinite where none did in three hours.
        passed: window after which all of ours had passed and none failed, likewise.
    """

    candidate: Sums
    stable: Sums
    failed: Floats
    passed: Floats

    def requests(self, until: Floats) -> Floats:
        """The candidate's until the end of these windows, infinite where that never came."""
        every = np.cumsum(self.candidate.n[:, :, ERRORS], axis=1)
        at = np.minimum(until, every.shape[1] - 1).astype(np.int64)
        return np.where(np.isfinite(until), np.take_along_axis(every, at[:, None], 1)[:, 0], np.inf)


def judged(rollouts: int, rows: str = "") -> list[Finding]:
    """Identical versions that each judge fails and passes, and how soon each finds a harm.

    Of what has ``rows`` in its name.
    """
    found = []
    kinds: list[tuple[str, Callable[[np.random.Generator], whole.Traffic]]] = [
        (name, _places(world, rollouts)) for name, world in _TRAFFICS.items()
    ]
    kinds += [(world.name, _of_world(world, rollouts)) for world in worlds.WORLDS]
    for number, (name, begun) in enumerate(kinds):
        if rows not in name:
            continue
        rng = np.random.default_rng([SEED, 0, number])
        seen = walked(begun(rng), rollouts, rng)
        for judge, (failed, passed) in verdicts(seen).items():
            found.append(share(name, f"{judge}: wrongly failed", np.isfinite(failed), 0.05))
            if judge != MSPRT:  # has no word for it
                found.append(share(name, f"{judge}: passed in 3 h", np.isfinite(passed)))
    for number, (name, harm) in enumerate((name, harm) for harm in HARMS for name in _HARMED):
        what = f"{harm.name}; {name}"
        if rows not in what:
            continue
        rng = np.random.default_rng([SEED, 1, number])
        seen = walked(_places(_TRAFFICS[name], rollouts)(rng), rollouts, rng, harm)
        for judge, (failed, _) in verdicts(seen).items():
            found.append(share(what, f"{judge}: found", np.isfinite(failed)))
            found.append(needed(what, f"{judge}: requests", seen.requests(failed)))
    return found


def walked(
    traffic: whole.Traffic,
    rollouts: int,
    rng: np.random.Generator,
    harm: Harm | None = None,
    length: int = WINDOWS,
) -> Seen:
    """So many rollouts, of three hours each by default, and what our checks said of them."""
    evidence = BatchedEvidence.begin(rollouts, RolloutSpec().false_rollback)
    nobody, half = np.zeros(rollouts), np.full(rollouts, HALF)
    for _ in range(whole.HISTORY):
        traffic = traffic.moved(rng)
        evidence = evidence.with_history(traffic.window(nobody, nobody, rng)[1])
    never, no = np.full(rollouts, np.inf), np.zeros(rollouts, dtype=np.bool_)
    failed, passed = never, never
    windows: list[tuple[Floats, Floats]] = []
    for at in range(length):
        traffic = traffic.moved(rng)
        candidate, stable = traffic.window(nobody, half, rng)
        if harm is not None:
            candidate = harmed(candidate, harm, no, rng)
        windows.append((_sums(candidate), _sums(stable)))
        evidence = evidence.after(candidate, stable, half, no)
        fails = evidence.failed.any(axis=1)
        failed = np.where(fails & np.isinf(failed), at, failed)
        passes = evidence.passed().all(axis=1)
        passed = np.where(passes & np.isinf(failed) & np.isinf(passed), at, passed)
    arms = [Sums(*np.moveaxis(np.stack([pair[arm] for pair in windows]), 0, 2)) for arm in range(2)]
    return Seen(arms[0], arms[1], failed, passed)


def verdicts(seen: Seen) -> dict[str, tuple[Floats, Floats]]:
    """By judge ``[rollouts]`` each: window of its verdict to fail and of that to pass."""
    return {
        OURS: (seen.failed, seen.passed),
        KAYENTA: kayenta(seen.candidate, seen.stable),
        MSPRT: (msprt(seen.candidate, seen.stable), np.full(len(seen.failed), np.inf)),
    }


def kayenta(candidate: Sums, stable: Sums) -> tuple[Floats, Floats]:
    """``[rollouts]`` each: the last window of the analysis that failed, and of one that passed."""
    rollouts, windows, metrics = candidate.n.shape
    series = [_by_minute(arm) for arm in (candidate, stable)]
    failed, passed = np.full(rollouts, np.inf), np.full(rollouts, np.inf)
    runs = range(_HOUR, windows + 1, _HOUR)
    for row in range(rollouts):
        for end in runs:
            good = sum(
                not is_metric_failed(
                    series[0][row, : end // _MINUTE, at], series[1][row, : end // _MINUTE, at], at
                )
                for at in range(metrics)
            )
            score = 100.0 * good / metrics
            if score < _MARGINAL or (end == runs[-1] and score <= _PASS):
                failed[row] = end - 1
                break
            passed[row] = end - 1 if end == runs[-1] else np.inf
    return failed, passed


def is_metric_failed(candidate: Floats, stable: Floats, metric: int) -> bool:
    """Whether Kayenta's classifier says High or Low of a metric, where that is a failure.

    Args:
        candidate: ``[points]``, NaN where there is none.
        stable: likewise.
        metric: which.
    """
    one, other = candidate[~np.isnan(candidate)], stable[~np.isnan(stable)]
    if not len(one) or not len(other) or len(np.unique(np.concatenate([one, other]))) == 1:
        return False
    lower, upper, estimate = hodges_lehmann(one, other, _CONFIDENCE)
    bound = _TOLERANCE * abs(estimate)
    ratio = one.mean() / other.mean() if other.mean() else 1.0
    is_high = lower > bound and ratio >= 1.0
    is_low = upper < -bound and ratio <= 1.0
    return bool((is_high and _HIGH_FAILS[metric]) or (is_low and _LOW_FAILS[metric]))


def hodges_lehmann(one: Floats, other: Floats, confidence: float) -> tuple[float, float, float]:
    """How far one sample lies above another: an interval's ends, and the estimate.

    As ``wilcox.test`` of R has it for large samples: corrected for continuity and for ties.
    """
    apart = np.sort((one[:, None] - other).ravel())
    m, n = len(one), len(other)
    ties = sum(
        float((times.astype(float) ** 3 - times).sum())
        for times in (np.unique(part, return_counts=True)[1] for part in (one, other))
    )
    sigma = np.sqrt(m * n / 12 * (m + n + 1 - ties / ((m + n) * (m + n - 1))))
    least = m * n / 2 - 0.5 - sigma * float(ndtri(0.5 + confidence / 2))
    at = int(max(np.floor(least), 0))
    return float(apart[at]), float(apart[-1 - at]), float(np.median(apart))


def msprt(candidate: Sums, stable: Sums, alpha: float = _ALPHA) -> Floats:
    """``[rollouts]``: the window after which a metric is significantly worse, else infinite.

    Args:
        candidate: what it did.
        stable: likewise.
        alpha: chance that a metric ever is where there is no difference.
    """
    n_c, n_s = np.cumsum(candidate.n, axis=1), np.cumsum(stable.n, axis=1)
    means, variances = [], []
    for n, arm in ((n_c, candidate), (n_s, stable)):
        many = np.maximum(n, 1.0)
        mean = np.cumsum(arm.total, axis=1) / many
        means.append(mean)
        variances.append((np.cumsum(arm.squares, axis=1) / many - mean**2) / many)
    apart, v = means[0] - means[1], variances[0] + variances[1]
    is_known = (n_c >= _LEAST) & (n_s >= _LEAST) & (v > 0)
    v = np.where(is_known, v, 1.0)
    log = 0.5 * np.log(v / (v + _MIXTURE**2)) + (_MIXTURE * apart) ** 2 / (
        2 * v * (v + _MIXTURE**2)
    )
    is_worse = np.where(apart > 0, _HIGH_FAILS, _LOW_FAILS)
    told = (is_known & is_worse & (log >= np.log(1 / alpha))).any(axis=2)
    return np.where(told.any(axis=1), told.argmax(axis=1), np.inf)


def _sums(arm: Arm) -> NDArray[np.float64]:
    """``[3, rollouts, metrics]``: the parts of ``Sums`` of one window."""
    labels = arm.labels if arm.cached is None else arm.labels + arm.cached
    seconds = _SECONDS_OF[arm.first[..., None] + np.arange(arm.times.shape[-1])]
    times = [(arm.times * seconds**power).sum(axis=(1, 2)) for power in range(3)]
    return np.stack([
        np.stack([arm.requests, times[0], labels.sum(axis=1)], axis=1),
        np.stack([arm.errors, times[1], labels[:, 1]], axis=1),
        np.stack([arm.errors, times[2], labels[:, 1]], axis=1),
    ]).astype(np.float64)  # fmt: skip


def _by_minute(arm: Sums) -> Floats:
    """``[rollouts, minutes, metrics]``: means, NaN where there is nothing."""
    rollouts, windows, metrics = arm.n.shape
    n, total = (
        part.reshape(rollouts, windows // _MINUTE, _MINUTE, metrics).sum(axis=2)
        for part in (arm.n, arm.total)
    )
    return np.where(n > 0, total / np.maximum(n, 1.0), np.nan)


def _places(world: World, rollouts: int) -> Callable[[np.random.Generator], whole.Traffic]:
    return lambda rng: Places.of([world] * rollouts, rng)


def _of_world(world: worlds.World, rollouts: int) -> Callable[[np.random.Generator], whole.Traffic]:
    return lambda rng: worlds.Traffic.of(world, rollouts, rng)

"""Traffic of many endpoints at once, window by window, made up.

Each row is the endpoint of one rollout. Callers are heavy-tailed (Zipf), stick to an arm, have
rates of their own and are capped as production caps them. Base rates wander and step for both arms;
each arm's windows are overdispersed on top. Versions are identical.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from contracts.statistics import LATENCY_EDGES
from contracts.windows import (
    CALLER_BUCKETS,
    CALLER_CAP,
    CALLER_GROUPS,
    CALLER_STRIDE,
    MICRO,
    EvidenceCounts,
    Sparse,
)
from measures.correlation import Floats

LABELS = ("NEGATIVE", "POSITIVE")
LENGTHS = (16, 64)  # length buckets, tokens
BUCKETS = len(LATENCY_EDGES.upper) + 1
LENGTH_SHARES = (0.7, 0.3)
_MEDIAN_SECONDS = (0.012, 0.025)
_SIGMA = 0.4  # of the logarithm of an answer's time
_SLOW_SLOPE = 0.103 / _SIGMA  # of the share beyond the 95th percentile, a unit of log-time
_CALLERS = 200
TAIL = 1.1  # the k-th caller sends in proportion to ``k ** -tail``
_WEIGHTS = np.arange(1, _CALLERS + 1.0) ** -TAIL
_ERRORS, _POSITIVE = 0.005, 0.4  # base shares
_WANDER = 0.02  # standard deviation, a window, of the base rates' log-odds
_JUMP = 0.01  # chance, a window, that the base rates step by a factor of up to 3

_STATUSES = (200, 502)  # of attempts that did not fail, and that did

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """What is true of an endpoint's traffic.

    Attributes:
        requests: mean of a window, before the cap.
        spread: standard deviation of a caller's own log-odds, of an error and of a label.
        correlation: intra-window correlation of errors, slow answers and labels, in each arm.
    """

    requests: float
    spread: float
    correlation: float


@dataclass(frozen=True)
class Harm:
    """What a candidate does to requests that stable would have answered otherwise.

    Attributes:
        name: for people.
        fails: share of them that fail.
        flips: share of the first label that are given the second.
        slower: factor on its time.
        in_shadow: whether copies show it, or callers alone.
        fades: seconds of callers' requests after which ``slower`` has faded to a part of 1/e;
            infinite: it stays.
    """

    name: str
    fails: float = 0.0
    flips: float = 0.0
    slower: float = 1.0
    in_shadow: bool = True
    fades: float = np.inf


@dataclass(frozen=True)
class CallersTimes:
    """Answers of callers with a name, one an entry, ``[answers]`` each.

    Attributes:
        row: of the rollout.
        bucket: of the caller.
        length: index of ``LENGTHS``.
        time: index of ``Arm.times``'s buckets.
    """

    row: Counts
    bucket: Counts
    length: Counts
    time: Counts

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """Some of them."""
        return type(self)(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def and_those(self, more: Self) -> Self:
        """With others."""
        return type(self)(
            *(
                np.concatenate([getattr(self, part.name), getattr(more, part.name)])
                for part in fields(self)
            )
        )


@dataclass(frozen=True)
class CallersErrors:
    """Requests of callers with a name, one caller an entry, ``[entries]`` each.

    Attributes:
        row: of the rollout.
        bucket: of the caller.
        requests: how many it sent.
        errors: how many of them failed.
    """

    row: Counts
    bucket: Counts
    requests: Counts
    errors: Counts

    @classmethod
    def of(cls, requests: Counts, errors: Counts, bucket: Counts) -> Self:
        """``[rollouts, callers]`` each."""
        is_there = requests > 0
        row = np.nonzero(is_there)[0]
        return cls(row, bucket[is_there], requests[is_there], errors[is_there])

    def and_those(self, more: Self) -> Self:
        """With others."""
        return type(self)(
            *(
                np.concatenate([getattr(self, part.name), getattr(more, part.name)])
                for part in fields(self)
            )
        )

    def failing(self, more: Counts, rng: np.random.Generator) -> Self:
        """Where of each group's answers so many more fail, at random; ``[rollouts, groups]``."""
        whose = np.repeat(np.arange(len(self.row)), self.requests - self.errors)
        cell = self.row[whose] * CALLER_GROUPS + self.bucket[whose] % CALLER_GROUPS
        lost = whose[_firsts(cell, more.ravel(), rng)]
        return replace(self, errors=self.errors + np.bincount(lost, minlength=len(self.row)))


def nobodys() -> CallersTimes:
    """No answers of callers with a name."""
    return CallersTimes(*np.zeros((4, 0), dtype=np.int64))


def given_to_callers(
    times: Counts,
    answers: Counts,
    bucket: Counts,
    rng: np.random.Generator,
    later: Counts | None = None,
) -> CallersTimes:
    """Times of answers given to callers at random.

    Args:
        times: ``[rollouts, lengths, buckets]``.
        answers: ``[rollouts, callers]``, as many in each rollout.
        bucket: likewise, of the callers.
        rng: what draws.
        later: likewise, buckets by which the caller's times are later; None: by none.
    """
    row, length, time = (np.repeat(at, times[times > 0]) for at in np.nonzero(times))
    whose = np.repeat(np.nonzero(answers)[1], answers[answers > 0])
    mixed = np.argsort(row + rng.random(len(row)))  # rows stay in their order
    time = time[mixed]
    if later is not None:
        time = np.clip(time + later[row, whose], 0, times.shape[-1] - 1)
    return CallersTimes(row, bucket[row, whose], length[mixed], time)


def kept(callers: CallersTimes, times: Counts, rng: np.random.Generator) -> CallersTimes:
    """Those that are left, at random, where so many of each time are."""
    cell = np.ravel_multi_index((callers.row, callers.length, callers.time), times.shape)
    return callers.where(_firsts(cell, times.ravel(), rng))


def _firsts(cell: Counts, counts: Counts, rng: np.random.Generator) -> NDArray[np.bool_]:
    """So many of each cell, at random; ``cell`` is that of each entry."""
    order = np.lexsort((rng.random(len(cell)), cell))
    first = np.searchsorted(cell[order], cell[order])  # of the same cell
    is_chosen = np.zeros(len(cell), dtype=np.bool_)
    is_chosen[order] = np.arange(len(cell)) - first < counts[cell[order]]
    return is_chosen


@dataclass(frozen=True)
class Arm:
    """One arm in one window, a row a rollout.

    Attributes:
        requests: ``[rollouts]``.
        errors: ``[rollouts]``.
        labels: ``[rollouts, labels]``.
        times: ``[rollouts, lengths, buckets]``, of ``LATENCY_EDGES`` from ``first`` on.
        first: ``[rollouts, lengths]``.
        groups: ``[rollouts, 3, groups]``, of callers: requests, errors, second label.
        pairs: ``[rollouts, labels, labels]``, of copies: requests by the original's label and the
            copy's. All 0 where gateways tell no labels of originals: then arms are compared.
        neighbours: ``[rollouts, labels]``, other texts of the requests of the texts of each label.
            None where each request has one text.
        like: ``[rollouts, labels]``, those of them that have the same label.
        cached: ``[rollouts, labels]``, further answers, of a cache, to requests of nobody.
        callers: the answers of ``times`` that went to callers with a name; None of copies.
        failures: ``[rollouts, 2, 2]``, of copies: requests by whether the original failed and
            whether the copy did. All 0 where gateways mirror none that failed.
        attempts: requests and errors of callers with a name; None of copies.
    """

    requests: Counts
    errors: Counts
    labels: Counts
    times: Counts
    first: Counts
    groups: Counts
    pairs: Floats | None = None
    neighbours: Counts | None = None
    like: Counts | None = None
    cached: Counts | None = None
    callers: CallersTimes | None = None
    failures: Floats | None = None
    attempts: CallersErrors | None = None

    def evidence(self, row: int) -> EvidenceCounts:
        """One rollout's arm as production counts it."""
        requests, errors, positive = self.groups[row]
        of_callers = self._caller_attempts(row)
        return EvidenceCounts(
            requests=int(self.requests[row]),
            errors=int(self.errors[row]),
            latency={
                length: {
                    int(self.first[row, at]) + bucket: int(count)
                    for bucket, count in enumerate(self.times[row, at])
                    if count
                }
                for at, length in enumerate(LENGTHS)
            },
            caller_latency=self._caller_latency(row),
            caller_requests=of_callers[0],
            caller_errors=of_callers[1],
            labels={label: int(self.labels[row, at]) for at, label in enumerate(LABELS)},
            label_neighbours=_by_label(self.neighbours, row),
            label_like_neighbours=_by_label(self.like, row),
            cached_labels=_by_label(self.cached, row),
            group_requests=_sparse(requests),
            group_errors=_sparse(errors),
            group_labels={
                LABELS[0]: _sparse(requests - errors - positive),
                LABELS[1]: _sparse(positive),
            },
            pair_labels={
                original: {
                    label: round(float(self.pairs[row, at, column]) * MICRO)
                    for column, label in enumerate(LABELS)
                }
                for at, original in enumerate(LABELS)
            }
            if self.pairs is not None and self.pairs[row].any()
            else {},
            pair_statuses=self._statuses(row),
        )

    def _statuses(self, row: int) -> dict[int, Sparse]:
        if self.failures is None or not self.failures[row].any():
            return {}
        return {
            original: {
                copy: int(self.failures[row, at, column]) for column, copy in enumerate(_STATUSES)
            }
            for at, original in enumerate(_STATUSES)
        }

    def _caller_attempts(self, row: int) -> tuple[Sparse, Sparse]:
        if self.attempts is None:
            return {}, {}
        is_mine = self.attempts.row == row
        requests, errors = (
            np.bincount(self.attempts.bucket[is_mine], weights=counts[is_mine])
            for counts in (self.attempts.requests, self.attempts.errors)
        )
        return _sparse(requests), _sparse(errors)

    def _caller_latency(self, row: int) -> dict[int, Sparse]:
        if self.callers is None:
            return {}
        mine = self.callers.where(self.callers.row == row)
        found: dict[int, Sparse] = {}
        for at, length in enumerate(LENGTHS):
            of_length = mine.where(mine.length == at)
            keys = of_length.bucket * CALLER_STRIDE + self.first[row, at] + of_length.time
            values, counts = np.unique(keys, return_counts=True)
            found[length] = dict(zip(values.tolist(), counts.tolist(), strict=True))
        return found


@dataclass(frozen=True)
class Places:
    """Who the callers are, ``[rollouts, callers]``, and where base rates stand, ``[rollouts]``."""

    requests: Floats
    correlation: Floats
    place: Floats
    group: Counts
    bucket: Counts
    own_errors: Floats
    own_label: Floats
    errors: Floats
    label: Floats
    seconds: Floats  # log of a factor

    @classmethod
    def of(cls, worlds: list[World], rng: np.random.Generator) -> Self:
        """Callers get their places in the split, and rates of their own."""
        shape = (len(worlds), _CALLERS)
        spread = np.array([world.spread for world in worlds])[:, None]
        flat = np.zeros(len(worlds))
        (of_buckets,) = rng.spawn(1)
        place, group = rng.random(shape), rng.integers(0, CALLER_GROUPS, shape)
        return cls(
            np.array([world.requests for world in worlds]),
            np.array([world.correlation for world in worlds]),
            place,
            group,
            bucketed(group, of_buckets),
            rng.normal(0, 1, shape) * spread,
            rng.normal(0, 1, shape) * spread,
            flat + _log_odds(np.array(_ERRORS)),
            flat + _log_odds(np.array(_POSITIVE)),
            flat,
        )

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Of some of the rollouts."""
        return type(self)(*(getattr(self, part.name)[rows] for part in fields(self)))

    def moved(self, rng: np.random.Generator) -> Self:
        """The base rates a window later, for both arms alike."""
        size = len(self.errors)
        step = rng.normal(0, _WANDER, (3, size))
        jump = rng.uniform(-np.log(3), np.log(3), (3, size)) * (rng.random(size) < _JUMP)
        step = step + jump * np.array([[1.0], [0.3], [0.2]])
        # Drawn back to where they were, so that no rollout ends in a world of errors alone.
        errors = self.errors + step[0] - 0.01 * (self.errors - _log_odds(np.array(_ERRORS)))
        label = self.label + step[1] - 0.01 * (self.label - _log_odds(np.array(_POSITIVE)))
        seconds = self.seconds + 0.5 * step[2] - 0.01 * self.seconds
        return replace(self, errors=errors, label=label, seconds=seconds)

    def window(self, low: Floats, high: Floats, rng: np.random.Generator) -> tuple[Arm, Arm]:
        """One window of candidate and stable: ``window``."""
        return window(self, low, high, rng)


def harmed(
    arm: Arm,
    harm: Harm,
    copied: NDArray[np.bool_],
    rng: np.random.Generator,
    since: Floats | float = 0.0,
) -> Arm:
    """A candidate's window with its harm; callers met it ``since`` seconds ago.

    Requests have one text each.
    """
    shown = np.where(copied, float(harm.in_shadow), 1.0)
    lost = rng.binomial(arm.labels, harm.fails * shown[:, None])
    first, second = (arm.labels - lost).T
    flipped = rng.binomial(first, harm.flips * shown)
    # Of callers with a name it is drawn by group, of nobody's requests together.
    requests, errors, positive = np.moveaxis(arm.groups, 1, 0)
    answers = np.stack([requests - errors - positive, positive], axis=1)
    of_groups = rng.binomial(answers, harm.fails * shown[:, None, None])
    firsts, seconds = np.moveaxis(answers - of_groups, 1, 0)
    flips = rng.binomial(firsts, harm.flips * shown[:, None])
    nobodys_answers = np.where(copied[:, None], 0, arm.labels - answers.sum(axis=2))
    of_nobody = rng.binomial(nobodys_answers, harm.fails * shown[:, None])
    flipped_of_nobody = rng.binomial((nobodys_answers - of_nobody)[:, 0], harm.flips * shown)
    lost = np.where(copied[:, None], lost, of_groups.sum(axis=2) + of_nobody)
    first, second = (arm.labels - lost).T
    flipped = np.where(copied, flipped, flips.sum(axis=1) + flipped_of_nobody)
    cached = arm.cached
    if cached is not None:
        more = rng.binomial(cached[:, 0], harm.flips * shown)
        cached = cached + np.stack([-more, more], axis=1)
    more_of_groups = of_groups.sum(axis=1)
    groups = np.stack([requests, errors + more_of_groups, seconds + flips], axis=1)
    left = (harm.slower - 1) * np.exp(-np.asarray(since) / harm.fades)
    later = np.round(np.log1p(left) / EDGE * shown).astype(np.int64)
    times = rng.binomial(arm.times, 1 - harm.fails * shown[:, None, None])
    pairs = None
    if arm.pairs is not None:
        pairs = np.where(copied[:, None, None], _diagonal(arm.labels - lost), 0.0)
        pairs[:, 0, 0] -= np.where(copied, flipped, 0)
        pairs[:, 0, 1] += np.where(copied, flipped, 0)
    failures = None if arm.failures is None else failing(arm.failures, lost.sum(axis=1) * copied)
    own, of_attempts = rng.spawn(2)
    attempts = arm.attempts
    if attempts is not None and harm.fails:
        attempts = attempts.failing(np.where(copied[:, None], 0, more_of_groups), of_attempts)
    return replace(
        arm,
        attempts=attempts,
        cached=cached,
        errors=arm.errors + lost.sum(axis=1),
        labels=np.stack([first - flipped, second + flipped], axis=1),
        pairs=pairs,
        failures=failures,
        groups=np.where(copied[:, None, None], arm.groups, groups),
        times=times,
        first=arm.first + later[:, None],
        callers=None if arm.callers is None else kept(arm.callers, times, own),
    )


def failing(failures: Floats, more: Floats) -> Floats:
    """``Arm.failures`` where so many more copies fail, of those that did not."""
    found = failures.copy()
    of_each = found[:, :, 0] / np.maximum(found[:, :, 0].sum(axis=1, keepdims=True), 1.0)
    of_failed = np.minimum(np.round(more * of_each[:, 1]), found[:, 1, 0])
    moved = np.stack([np.minimum(more - of_failed, found[:, 0, 0]), of_failed], axis=1)
    found[:, :, 0] -= moved
    found[:, :, 1] += moved
    return found


def window(places: Places, low: Floats, high: Floats, rng: np.random.Generator) -> tuple[Arm, Arm]:
    """One window of candidate and stable.

    Args:
        places: of the rollouts.
        low: ``[rollouts]``, the candidate's callers stand from here in the split, 0 to 1.
        high: ``[rollouts]``, and below here; ``inf`` where it gets copies of all requests instead.
        rng: what draws.
    """
    counts = np.minimum(
        rng.poisson(places.requests[:, None] * (_WEIGHTS / _WEIGHTS.sum())), CALLER_CAP
    )
    copied = np.isinf(high)
    mine = (places.place >= low[:, None]) & (places.place < high[:, None]) & ~copied[:, None]
    error_rates = [_rate(_overdispersed(places.errors, places, rng)) for _ in range(2)]
    label_rates = [_rate(_overdispersed(places.label, places, rng)) for _ in range(2)]
    failed = rng.binomial(counts, _of_callers(error_rates, mine, places.own_errors))
    positive = rng.binomial(counts - failed, _of_callers(label_rates, mine, places.own_label))
    groups = [
        np.stack(
            [grouped(np.where(arm, part, 0), places.group) for part in (counts, failed, positive)],
            1,
        )
        for arm in (mine, ~mine)
    ]
    answers = [np.where(arm, counts - failed, 0) for arm in (mine, ~mine)]
    candidate, stable = ([*part.sum(axis=-1).T] for part in groups)
    # Copies fail by themselves; where both versions answer, they say the same.
    again = rng.binomial(stable[0], stable[1] / np.maximum(stable[0], 1))
    for part, copy in enumerate((stable[0], again, stable[2])):
        candidate[part] = np.where(copied, copy, candidate[part])
    labelled = np.where(copied, stable[0] - stable[1], candidate[0] - candidate[1])
    copies = _arm(candidate, labelled, groups[0], places, rng)
    pairs = np.where(copied[:, None, None], _diagonal(copies.labels), 0.0)
    stables = _arm(stable, stable[0] - stable[1], groups[1], places, rng)
    drawn = rng.spawn(3)
    attempts = [
        CallersErrors.of(np.where(arm, counts, 0), failed, places.bucket) for arm in (mine, ~mine)
    ]
    # Which of the copies fail has nothing to do with which originals did.
    both = drawn[2].hypergeometric(again, stable[0] - again, stable[1])
    failures = np.stack(
        [stable[0] - stable[1] - again + both, again - both, stable[1] - both, both], axis=1
    ).reshape(-1, 2, 2)
    own = np.where(copied[:, None, None], 0, copies.times)
    return (
        replace(
            copies,
            pairs=pairs,
            callers=given_to_callers(own, answers[0], places.bucket, drawn[0]),
            failures=np.where(copied[:, None, None], failures, 0).astype(np.float64),
            attempts=attempts[0],
        ),
        replace(
            stables,
            callers=given_to_callers(stables.times, answers[1], places.bucket, drawn[1]),
            attempts=attempts[1],
        ),
    )


def _diagonal(labels: Counts) -> Floats:
    """``[rollouts, labels]`` of answers that are the same in both versions, as pairs."""
    table: Floats = labels[:, :, None] * np.eye(labels.shape[1])
    return table


def bucketed(group: Counts, rng: np.random.Generator) -> Counts:
    """Buckets of callers who are in these groups."""
    return group + CALLER_GROUPS * rng.integers(0, CALLER_BUCKETS // CALLER_GROUPS, group.shape)


def grouped(counts: Counts, group: Counts) -> Counts:
    """``[rollouts, callers]`` added up to ``[rollouts, groups]``, by the group of each caller."""
    rollouts = len(counts)
    at = group + CALLER_GROUPS * np.arange(rollouts)[:, None]
    flat = np.bincount(at.ravel(), weights=counts.ravel(), minlength=rollouts * CALLER_GROUPS)
    return flat.astype(np.int64).reshape(rollouts, CALLER_GROUPS)


def _by_label(counts: Counts | None, row: int) -> dict[str, int]:
    return {} if counts is None else dict(zip(LABELS, counts[row].tolist(), strict=True))


def _sparse(counts: Counts) -> Sparse:
    return {group: int(count) for group, count in enumerate(counts) if count}


def _arm(
    parts: list[Counts],
    labelled: Counts,
    groups: Counts,
    places: Places,
    rng: np.random.Generator,
) -> Arm:
    requests, errors, positive = parts
    noise = np.sqrt(places.correlation * 0.05 * 0.95) / _SLOW_SLOPE
    factor = places.seconds + rng.normal(0, 1, len(requests)) * noise
    moved = np.round(factor / EDGE).astype(np.int64)
    lengths = rng.multinomial(requests - errors, LENGTH_SHARES)
    times = np.stack(
        [rng.multinomial(lengths[:, at], TIMES[at]) for at in range(len(LENGTHS))], axis=1
    )
    return Arm(
        requests,
        errors,
        np.stack([labelled - positive, positive], axis=1),
        times,
        moved[:, None] + np.array(FIRST),
        groups,
    )


def _overdispersed(log_odds: Floats, places: Places, rng: np.random.Generator) -> Floats:
    """An arm's log-odds in this window, around their mean, with the intra-window correlation."""
    rho = np.maximum(places.correlation, 1e-6)
    p, sums = _rate(log_odds), 1 / rho - 1
    drawn = np.clip(rng.beta(p * sums, (1 - p) * sums), 1e-9, 1 - 1e-9)
    return np.where(places.correlation > 0, _log_odds(drawn), log_odds)


def _of_callers(rates: list[Floats], mine: NDArray[np.bool_], own: Floats) -> Floats:
    """Each caller's rate: that of the arm, at odds of the caller's own."""
    odds = [(rate / (1 - rate))[:, None] for rate in rates]
    at = np.where(mine, odds[0], odds[1]) * np.exp(own)
    found: Floats = at / (1 + at)
    return found


def _log_odds(p: Floats) -> Floats:
    odds: Floats = np.log(p / (1 - p))
    return odds


def _rate(log_odds: Floats) -> Floats:
    rate: Floats = 1 / (1 + np.exp(-log_odds))
    return rate


EDGE = float(np.log(LATENCY_EDGES.upper[1] / LATENCY_EDGES.upper[0]))
_WIDTH = 90  # buckets that answers of one length lie in


def _times(median: float) -> tuple[int, Floats]:
    """First bucket, and shares from there, log-normal around a median."""
    at = np.log(np.array(LATENCY_EDGES.upper) / median)
    first = int(np.argmin(np.abs(at))) - _WIDTH // 2
    weights = np.exp(-0.5 * (at[first : first + _WIDTH] / _SIGMA) ** 2)
    shares: Floats = weights / weights.sum()
    return first, shares


FIRST, TIMES = zip(*(_times(median) for median in _MEDIAN_SECONDS), strict=True)

"""Strata of callers by their own past: how often each had an event under stable, before the canary.

An event is a slow answer, or a failed one. Callers stick to an arm. If some are slow whatever
version answers them (far away, on a slow line, with long batches), or fail more often, the arms'
shares of events differ for as long as a step lasts, by who is in them. So a caller is compared with
those callers of the other arm that had about as many before: a stratum holds the callers whose
ratio of events to those that were to be expected, at all callers' share in the same windows and
lengths, was about the same. This is post-stratification by the outcome's own past.

A caller's stratum follows from stable's windows before the canary only, in both arms. So the
e-value of a window is one still: strata are known before the window, as lengths are.

Within a stratum callers still differ somewhat. By how much is learnt as well, from each window by
the strata that were known before it, and is a tolerance (``OwnPast.deviation``).

Callers are counted in buckets, by a hash. Callers who share a bucket share a stratum.

Sources: Holt and Smith, Post stratification (Journal of the Royal Statistical Society A 142, 1979);
Miratrix, Sekhon and Yu, Adjusting treatment effect estimates by post-stratification in randomized
experiments (JRSS B 75, 2013); Deng, Xu, Kohavi and Walker, Improving the sensitivity of online
controlled experiments by utilizing pre-experiment data (WSDM 2013). The variance is that of
``rollout.checks.callers``, within strata.

Leading axes are independent. Pure.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contracts.windows import CALLER_BUCKETS
from measures.correlation import Floats

Indices = NDArray[np.intp]

UNKNOWN = 0  # the stratum of nobody's requests, and of callers without a past
STRATA = 10  # with it
# Each stratum holds ratios within a factor of sqrt(2); the first and the last one, all beyond.
_STEP = np.log(2.0) / 2
_USUAL = 4  # of callers that had events as often as all
# Events that each caller is taken to have had at all callers' share, besides its own. Else chance
# would make strata of callers with few answers.
PRIOR = 2.0
_OF_BUCKETS = ("events", "expected", "above")  # are kept in single precision


@dataclass(frozen=True)
class CallersAnswers:
    """Answers of callers with a name in one window of an arm, ``[entries]`` each.

    Attributes:
        at: indices of what is ``[..., CALLER_BUCKETS]``: leading axes, and whose answers they are.
        length: index of their length; 0 of what is not told by length.
        events: how many of them were slow, or failed.
        requests: how many there were.
    """

    at: tuple[Indices, ...]
    length: Indices
    events: Floats
    requests: Floats

    def sum_to(self, shape: tuple[int, ...]) -> Self:
        """With one entry for each bucket and length; ``shape`` is that of all of these."""
        keys = np.ravel_multi_index((*self.at, self.length), shape)
        found, entry = np.unique(keys, return_inverse=True)
        *at, length = np.unravel_index(found, shape)
        events, requests = np.zeros((2, len(found)))
        np.add.at(events, entry, self.events)
        np.add.at(requests, entry, self.requests)
        return type(self)(tuple(at), length, events, requests)

    def by_stratum(
        self, strata: Indices, events: Floats, requests: Floats
    ) -> tuple[Floats, Floats]:
        """All answers of an arm by stratum.

        Args:
            strata: ``[..., CALLER_BUCKETS]``.
            events: ``[..., lengths]``, those of anybody.
            requests: the same of all answers.

        Returns:
            Both as ``[..., STRATA, lengths]``; nobody's are in the unknown stratum.
        """
        lead, stratum, found = self.at[:-1], strata[self.at], []
        for every, of_callers in ((events, self.events), (requests, self.requests)):
            counts = np.zeros((*every.shape[:-1], STRATA, every.shape[-1]))
            counts[..., UNKNOWN, :] = every
            np.add.at(counts, (*lead, stratum, self.length), of_callers)
            np.subtract.at(counts, (*lead, np.full_like(stratum, UNKNOWN), self.length), of_callers)
            found.append(counts)
        return found[0], found[1]


class OwnPast:
    """Sums over stable's windows.

    Attributes:
        events: ``[..., CALLER_BUCKETS]``, of each bucket of callers.
        expected: how many were to be expected, by bucket, at all callers' share in the same windows
            and lengths.
        above: by bucket, events above the share of the bucket's stratum in them.
        by_chance: ``[...]``, the sum of squares of ``above`` that is to be expected of strata of
            callers all alike.
        requests: ``[...]``, all answers, nobody's included.
    """

    PARTS = ("events", "expected", "above", "by_chance", "requests")

    def __init__(
        self, events: Floats, expected: Floats, above: Floats, by_chance: Floats, requests: Floats
    ) -> None:
        self.events = events
        self.expected = expected
        self.above = above
        self.by_chance = by_chance
        self.requests = requests

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nothing known yet."""
        wide, zero = np.zeros((*shape, CALLER_BUCKETS)), np.zeros(shape)
        return cls(wide, wide, wide, zero, zero)

    def after(self, callers: CallersAnswers, events: Floats, requests: Floats) -> Self:
        """With a window of stable.

        Args:
            callers: the answers of those with a name.
            events: ``[..., lengths]``, those of anybody.
            requests: the same of all answers.
        """
        of = callers.sum_to((*self.events.shape, events.shape[-1]))
        lead = of.at[:-1]
        of_strata = of.by_stratum(self.strata, events, requests)
        here = (*lead, self.strata[of.at], of.length)
        n = np.maximum(of_strata[1][here], 1.0)
        p = of_strata[0][here] / n
        whole = (*lead, of.length)
        expected = of.requests * events[whole] / np.maximum(requests[whole], 1.0)
        cell = (
            np.ravel_multi_index(lead, self.by_chance.shape) if lead else np.zeros_like(of.length)
        )
        more = p * (1 - p) * of.requests * (1 - of.requests / n)
        chance = np.bincount(cell, more, self.by_chance.size).reshape(self.by_chance.shape)
        return type(self)(
            _add(self.events, of.at, of.events),
            _add(self.expected, of.at, expected),
            _add(self.above, of.at, of.events - p * of.requests),
            self.by_chance + chance,
            self.requests + requests.sum(axis=-1),
        )

    @cached_property
    def strata(self) -> Indices:
        """``[..., CALLER_BUCKETS]``, from 0 to ``STRATA - 1``, growing with each one's events."""
        ratio = (self.events + PRIOR) / (self.expected + PRIOR)
        found = np.clip(np.round(np.log(ratio) / _STEP) + _USUAL, UNKNOWN + 1, STRATA - 1)
        return np.where(self.expected > 0, found, UNKNOWN).astype(np.intp)

    def deviation(self, share: Floats | float) -> Floats:
        """``[...]``: standard deviation of what callers, within strata, set arms' shares apart by.

        ``share``, ``[...]``, is that of the callers in one of the arms; 0 or 1 if both arms
        answer the same callers: then nothing is apart.
        """
        both = np.asarray(share * (1.0 - share))
        beyond = np.maximum(0.0, (self.above**2).sum(axis=-1) - self.by_chance)
        found: Floats = np.sqrt(beyond / np.where(both > 0, both, np.inf))
        return found / np.maximum(self.requests, 1.0)

    def deviation_of_all(self, share: Floats | float) -> Floats:
        """``[...]``: as ``deviation``, of all callers together, who are in no strata."""
        squares = ((self.events - self.expected) ** 2).sum(axis=-1)
        beyond = np.maximum(0.0, squares - self.expected.sum(axis=-1))
        both = np.asarray(share * (1.0 - share))
        found: Floats = np.sqrt(beyond / np.where(both > 0, both, np.inf))
        return found / np.maximum(self.requests, 1.0)

    def newcomers(self, arms: Sequence[CallersAnswers], requests: Floats) -> Floats:
        """``[...]``: how many times as far apart as all callers those without a past set arms.

        They are taken for any of the callers, so that the fewer they are, the further. 0 if nobody
        with a name lacks a past.

        Args:
            arms: of a window, the answers of callers with a name, by arm.
            requests: ``[..., STRATA]``, of both arms in that window, nobody's included.
        """
        named, new = np.zeros((2, *self.strata.shape))
        for arm in arms:
            np.add.at(named, arm.at, arm.requests)
            np.add.at(new, arm.at, arm.requests * (self.strata[arm.at] == UNKNOWN))
        part = np.sqrt(new.sum(axis=-1) / np.maximum(named.sum(axis=-1), 1.0))
        found: Floats = part * requests.sum(axis=-1) / np.maximum(requests[..., UNKNOWN], 1.0)
        return found

    def to_json(self) -> dict[str, Any]:
        """Buckets that had any, and ``_OF_BUCKETS`` of them in single precision, packed."""
        told = np.flatnonzero(self.expected + self.events)
        counts = np.stack([getattr(self, name)[told] for name in _OF_BUCKETS])
        return {
            "buckets": _pack(told.astype("<u2")),
            "counts": _pack(counts.astype("<f4")),
            "by_chance": float(self.by_chance),
            "requests": float(self.requests),
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that ``to_json`` told, of one rollout."""
        parts = np.zeros((len(_OF_BUCKETS), CALLER_BUCKETS))
        counts = np.frombuffer(_unpack(data["counts"]), "<f4")
        parts[:, np.frombuffer(_unpack(data["buckets"]), "<u2")] = counts.reshape(len(parts), -1)
        by_chance, requests = (np.float64(data[name]) for name in ("by_chance", "requests"))
        return cls(parts[0], parts[1], parts[2], np.asarray(by_chance), np.asarray(requests))


def _add(total: Floats, at: tuple[Indices, ...], more: Floats) -> Floats:
    after = total.copy()
    np.add.at(after, at, more)
    return after.astype(np.float32).astype(np.float64)


def _pack(numbers: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()


def _unpack(told: str) -> bytes:
    return zlib.decompress(base64.b64decode(told))

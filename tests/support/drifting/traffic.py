"""Simulated traffic: windows of real texts, quiet, in a rhythm of the day, or mixed with others.

A window is a draw, with replacement, from the stock of each domain in it; its texts are the same
for every statistic, so what is correlated in real texts is correlated here. Nothing is made up but
the shares of the domains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from drifting.population import MOVIES, PRODUCTS, Texts, one_hot, read
from measures.correlation import Floats

DAY = 1440  # windows: a minute each
_AT_ONCE = 256  # windows a matrix product


@dataclass(frozen=True)
class Scenario:
    """What arrives in each window.

    Attributes:
        shares: float64 ``[windows, domains]``, in the order of the stock's domains.
        texts: int64 ``[windows]``.
    """

    shares: Floats
    texts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)


class Stock:
    """The measured texts of all domains.

    Attributes:
        domains: their names.
        values: float64 ``[texts, statistics]`` of each.
        bins: float32 ``[texts, all bins]`` of each, one-hot by statistic.
    """

    def __init__(self, texts: Mapping[str, Texts]) -> None:
        self.domains = tuple(texts)
        self.values = [each.values() for each in texts.values()]
        self.bins = [one_hot(values) for values in self.values]

    @classmethod
    def committed(cls) -> Self:
        """Of the measurements in this folder."""
        return cls(read())

    def shares(self, mixture: Mapping[str, float]) -> Floats:
        """``[domains]`` of a mixture; what it leaves out is 0."""
        return np.array([mixture.get(domain, 0.0) for domain in self.domains])

    def counts(self, rng: np.random.Generator, scenario: Scenario) -> Floats:
        """``[windows, all bins]`` of texts drawn anew."""
        found = np.zeros((len(scenario), self.bins[0].shape[1]))
        drawn = rng.multinomial(scenario.texts, scenario.shares)
        for domain, bins in enumerate(self.bins):
            for at in range(0, len(scenario), _AT_ONCE):
                texts = drawn[at : at + _AT_ONCE, domain]
                if texts.any():
                    found[at : at + _AT_ONCE] += _times(rng, texts, len(bins)) @ bins
        return found

    def draw(
        self, rng: np.random.Generator, scenario: Scenario
    ) -> tuple[list[NDArray[np.float32]], Floats]:
        """The texts one by one, for those who do not count in bins, and their counts.

        Returns:
            ``[texts, statistics]`` of each window in an order without meaning, and ``[windows, all
            bins]`` of the same texts.
        """
        windows = []
        counts = np.zeros((len(scenario), self.bins[0].shape[1]))
        for at, parts in enumerate(rng.multinomial(scenario.texts, scenario.shares)):
            found = []
            for values, bins, texts in zip(self.values, self.bins, parts, strict=True):
                rows = rng.integers(len(values), size=int(texts))
                found.append(values[rows].astype(np.float32))
                counts[at] += bins[rows].sum(axis=0)
            window = np.concatenate(found)
            windows.append(window[rng.permutation(len(window))])
        return windows, counts


def _times(rng: np.random.Generator, texts: NDArray[np.int64], stock: int) -> NDArray[np.float32]:
    """``[windows, stock]``: how often each text of the stock is drawn into each window."""
    window = np.repeat(np.arange(len(texts)), texts)
    drawn = rng.integers(stock, size=len(window))
    times = np.bincount(window * stock + drawn, minlength=len(texts) * stock)
    return times.reshape(len(texts), stock).astype(np.float32)


def steady(shares: Floats, texts: int, windows: int) -> Scenario:
    """The same in every window."""
    return Scenario(np.tile(shares, (windows, 1)), np.full(windows, texts))


def daily(
    stock: Stock, rng: np.random.Generator, texts: int, windows: int, swing: float = 0.1
) -> Scenario:
    """Movie reviews with a rhythm of the day: products come by night, and traffic by day.

    Args:
        stock: what to draw from.
        rng: of the number of texts, a Poisson draw.
        texts: mean of a window; from half of it by night to one and a half by day.
        windows: how many, a minute each, from midnight.
        swing: the share of product reviews goes from 0 at noon to twice this at midnight.
    """
    hour = np.cos(2 * np.pi * np.arange(windows) / DAY)
    movies, products = stock.shares({MOVIES: 1.0}), stock.shares({PRODUCTS: 1.0})
    night = swing * (1 + hour)[:, None]
    volume = np.maximum(1, rng.poisson(texts * (1 - 0.5 * hour)))
    return Scenario((1 - night) * movies + night * products, volume)


def mixed(scenario: Scenario, others: Floats, part: float) -> Scenario:
    """The same traffic, a part of whose texts is replaced by others."""
    return Scenario((1 - part) * scenario.shares + part * others, scenario.texts)


def joined(parts: Sequence[Scenario]) -> Scenario:
    """One after the other."""
    return Scenario(
        np.concatenate([part.shares for part in parts]),
        np.concatenate([part.texts for part in parts]),
    )

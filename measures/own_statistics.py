"""Users' own statistics into counts, by the declarations that travel with the observations.

An observation that its declaration does not allow is counted as unfit, one that nobody declared as
undeclared: neither is guessed at, neither is lost.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from contracts.events import StatisticSpec
from contracts.windows import MICRO, OwnCounts

# Of no use to people above it, and what keeps a sum finite whatever is in a message.
LARGEST: Final = 1e12

_Declaration = tuple[str, str, tuple[float, ...], tuple[str, ...]]


class OwnFold:
    """Counts of one aggregate. Two declarations of one name are counted apart.

    Attributes:
        undeclared: name -> observations without a declaration.
    """

    __slots__ = ("_counts", "undeclared")

    def __init__(self) -> None:
        self.undeclared: dict[str, int] = {}
        self._counts: dict[_Declaration, OwnCounts] = {}

    def observe(
        self, observations: Mapping[str, Sequence[float | str]], declared: Sequence[StatisticSpec]
    ) -> None:
        """Counts what one attempt observed, by the declarations of its message."""
        for name, values in observations.items():
            spec = next((spec for spec in declared if spec.name == name), None)
            if spec is None:
                self.undeclared[name] = self.undeclared.get(name, 0) + len(values)
                continue
            counts = self._find_counts(spec)
            for value in values:
                _observe(counts, value)

    def counts(self) -> list[OwnCounts]:
        """The counts so far, which go on growing."""
        return list(self._counts.values())

    def _find_counts(self, spec: StatisticSpec) -> OwnCounts:
        declaration = declaration_of(spec)
        counts = self._counts.get(declaration)
        if counts is None:
            counts = self._counts[declaration] = OwnCounts(spec)
        return counts


def declaration_of(spec: StatisticSpec) -> _Declaration:
    """The declaration as a key: what must be equal for two counts to add."""
    return (spec.name, spec.kind, tuple(spec.edges), tuple(spec.values))


def micro(value: float) -> int:
    """Millionths of a unit; of at most ``LARGEST`` units in either direction."""
    return round(min(max(value, -LARGEST), LARGEST) * MICRO)


def _observe(counts: OwnCounts, value: float | str) -> None:
    spec = counts.spec
    if isinstance(value, str):
        if spec.kind == "category" and value in spec.values:
            counts.counts[value] = counts.counts.get(value, 0) + 1
            return
    elif abs(value) <= LARGEST:
        if spec.kind == "counter" and value >= 0:
            counts.sum_micro += micro(value)
            return
        if spec.kind == "histogram":
            bucket = str(bisect_left(spec.edges, value))
            counts.counts[bucket] = counts.counts.get(bucket, 0) + 1
            counts.sum_micro += micro(value)
            return
    counts.unfit += 1

"""Whether a way's answers are those of the graph alone, a row a run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_APART = 0.02  # of a score; int8 and padding change the last digits
LEAST_EQUAL = 0.98
_FIRST = 10  # documents


@dataclass(frozen=True)
class Judged:
    """How like two sets of answers are.

    Attributes:
        apart: the largest difference of scores, of entities that are equal.
        equal: the share of queries with the same ten documents first, or of texts with the same
            entities.
    """

    apart: float
    equal: float

    @property
    def right(self) -> bool:
        """Whether they are the same model's."""
        return self.apart <= MOST_APART and self.equal >= LEAST_EQUAL


def scores(known: Sequence[Sequence[float]], found: Sequence[Sequence[float]]) -> Judged:
    """Compares the scores of each query's documents."""
    ours, theirs = np.array(known), np.array(found)
    if ours.shape != theirs.shape:
        raise ValueError(f"{theirs.shape} scores, not {ours.shape}")
    same = [_first(one, other) for one, other in zip(ours.tolist(), theirs.tolist(), strict=True)]
    return Judged(float(np.abs(ours - theirs).max()), float(np.mean(same)))


def _first(one: list[float], other: list[float]) -> float:
    """The share of the first ten documents that both have; those of equal scores may change."""
    least = sorted(one, reverse=True)[:_FIRST][-1]
    best = sorted(range(len(other)), key=lambda at: -other[at])[:_FIRST]
    return float(np.mean([one[at] >= least - MOST_APART for at in best]))


def entities(
    known: Sequence[Sequence[dict[str, Any]]], found: Sequence[Sequence[dict[str, Any]]]
) -> Judged:
    """Compares the entities of each text by type and place."""
    if len(known) != len(found):
        raise ValueError(f"{len(found)} answers for {len(known)} texts")
    apart, equal = [0.0], []
    for ours, theirs in zip(known, found, strict=True):
        same = [_place(each) for each in ours] == [_place(each) for each in theirs]
        equal.append(same)
        if same:
            apart += [
                abs(one["score"] - other["score"]) for one, other in zip(ours, theirs, strict=True)
            ]
    return Judged(max(apart), float(np.mean(equal)))


def _place(entity: dict[str, Any]) -> tuple[str, int, int]:
    return entity["entity_group"], entity["start"], entity["end"]

"""Which earlier texts are nearest to a text: by the vector that its caller got, and by a shadow's.

As in a search whose index is of the first version: if both vectors of a text find the same there,
callers of the one may search what the other embedded. Earlier texts are kept as vectors only, each
once, so that a text that is asked again and again is no neighbour. One thread uses it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measures.retrieval import EQUALLY_NEAR, count_shared
from preprocess.vectors import unit

Vectors = NDArray[np.float32]

FEWEST = 50  # earlier texts, below which neighbours say too little
_MOST = 256
_MOST_NUMBERS = 1 << 22  # 16 MiB
_MOST_TEXTS = 32  # of a request
_MOST_PAIRS = 4  # of versions; with more, the oldest one's rollout has ended


@dataclass(slots=True)
class _EarlierTexts:
    """``vectors`` of length 1, float32 ``[most, width]``, of which the first ``count`` are told."""

    vectors: Vectors
    count: int = 0
    following: int = 0

    def add(self, vectors: Vectors) -> None:
        """Takes those that are not there, in the places of the oldest."""
        for vector in vectors:
            if np.any(self.vectors[: self.count] @ vector > 1 - EQUALLY_NEAR):
                continue
            self.vectors[self.following] = vector
            self.following = (self.following + 1) % len(self.vectors)
            self.count = min(self.count + 1, len(self.vectors))


class NearestTexts:
    """The earlier texts of the rollouts of one process."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[str, str], _EarlierTexts] = {}

    def count_shared(self, packages: tuple[str, str], ours: Vectors, theirs: Vectors) -> list[int]:
        """How many of the ten nearest earlier texts both vectors find, of a request's first texts.

        The texts are earlier ones from then on.

        Args:
            packages: that the caller's and the shadow's vectors are of.
            ours: the callers', float32 ``[texts, width]``.
            theirs: the shadow's.

        Returns:
            0 to 10 each. None at all of vectors of different widths, of such as are too wide, and
            before ``FEWEST`` different texts.
        """
        width = ours.shape[1]
        if theirs.shape != ours.shape or width * FEWEST > _MOST_NUMBERS:
            return []
        earlier = self._earlier.get(packages)
        if earlier is None:
            while len(self._earlier) >= _MOST_PAIRS:
                del self._earlier[next(iter(self._earlier))]
            most = min(_MOST, _MOST_NUMBERS // width)
            earlier = _EarlierTexts(np.zeros((most, width), np.float32))
            self._earlier[packages] = earlier
        ours, theirs = unit(ours[:_MOST_TEXTS]), unit(theirs[:_MOST_TEXTS])
        found: list[int] = []
        if earlier.count >= FEWEST:
            both = [each @ earlier.vectors[: earlier.count].T for each in (ours, theirs)]
            own = both[0] > 1 - EQUALLY_NEAR  # no text is near to itself
            found = count_shared(*(np.where(own, -np.inf, each) for each in both)).tolist()
        earlier.add(ours)
        return found

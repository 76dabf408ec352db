"""Which arm a caller gets: ordered half-open intervals of one 64-bit hash.

The choice depends on the salt and the caller's key alone, so that every gateway makes the same one.
A weight that grows moves one boundary and only adds callers. Nothing is drawn at random, and no API
key is seen here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

_SPACE = 1 << 64


def position(salt: str, key: str) -> int:
    """Where a caller stands in ``[0, 2**64)``, uniform over callers and independent over salts.

    Args:
        salt: names the rollout, so that it isn't always the same callers who get the new version.
        key: whom to keep on one arm; any text, lone surrogates included.
    """
    text = f"{salt}\x00{key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def below(salt: str, key: str, percent: float) -> bool:
    """Whether a key stands in the first ``percent`` of the space."""
    return position(salt, key) < round(percent / 100 * _SPACE)


@dataclass(frozen=True, slots=True)
class Split:
    """Half-open intervals that cover the whole space; interval ``i`` ends before ``ends[i]``."""

    salt: str
    ends: tuple[int, ...]

    @classmethod
    def of_weights(cls, salt: str, weights: Sequence[float]) -> "Split":
        """The split whose interval ``i`` holds ``weights[i]`` percent of callers.

        The last interval takes what the others leave. Put a canary before stable and stable before
        a control: then whoever grows takes callers from its neighbour alone.

        Raises:
            ValueError: a negative weight, or a sum that is not 100.
        """
        if not weights or min(weights) < 0 or abs(sum(weights) - 100) > 1e-6:
            raise ValueError(f"weights must be percentages that sum to 100, not {list(weights)}")
        ends: list[int] = []
        total = 0.0
        for weight in weights[:-1]:
            total += weight
            ends.append(min(_SPACE, round(total / 100 * _SPACE)))
        return cls(salt, (*ends, _SPACE))

    def choose(self, key: str) -> int:
        """Index of the interval in which the caller stands."""
        return bisect_right(self.ends, position(self.salt, key))

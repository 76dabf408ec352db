"""Which of several evaluate processes looks after an endpoint, and what it leaves to the others.

An endpoint belongs to one shard, by rendezvous hashing of its name (Thaler and Ravishankar, Using
name-based mappings to increase hit rates, IEEE/ACM Transactions on Networking 6, 1998): with one
shard more, only endpoints of the new one move. A shard's number is its process' own for as long as
it lives and after it was killed, so that nothing is elected and nothing is handed over. Every
process reads all window records and keeps what is of its own endpoints. Pure.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from contracts.windows import WindowRecord

MOST_SHARDS = 64


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``of`` processes; by itself it has all endpoints."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of <= MOST_SHARDS:
            raise ValueError(
                f"shard {self.number} of {self.of}: shards are numbered from 0, {MOST_SHARDS} at "
                "most"
            )

    @classmethod
    def read(cls, number: str, of: int) -> "Shard":
        """From a number, or a name that ends with one, such as that of a StatefulSet's pod.

        Raises:
            ValueError: there is no such shard.
        """
        found = re.search(r"(?:^|-)([0-9]{1,3})$", number)
        if found is None:
            raise ValueError(f"{number!r} is no number of a shard, and ends with none")
        return cls(int(found[1]), of)

    @property
    def is_first(self) -> bool:
        """Whether it tells what is of no single endpoint."""
        return self.number == 0

    def owns(self, endpoint: str) -> bool:
        """Whether the endpoint is this shard's."""
        return self.of == 1 or owner(endpoint, self.of) == self.number

    def part(self, records: Iterable[WindowRecord]) -> list[WindowRecord]:
        """The records with what is of this shard's endpoints, and all numbers that are of none."""
        if self.of == 1:
            return list(records)
        return [
            msgspec.structs.replace(
                record,
                aggregates=[each for each in record.aggregates if self.owns(each.endpoint)],
                refusals={
                    name: counts for name, counts in record.refusals.items() if self.owns(name)
                },
            )
            for record in records
        ]


@lru_cache(maxsize=16_384)
def owner(endpoint: str, shards: int) -> int:
    """The number of the shard that an endpoint belongs to.

    >>> [owner("sentiment", shards) for shards in (1, 2, 3, 4)]
    [0, 0, 0, 0]
    """
    return max(range(shards), key=lambda number: _weight(endpoint, number))


def _weight(endpoint: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{shard}/{endpoint}".encode(), digest_size=8).digest()

"""A range's record into pieces by endpoint, one for each partition of the windows' topic, and back.

A range has a piece for every partition, however little is in it: so each partition by itself shows
how far every partition of the events was folded. Numbers that are of no endpoint lie in the first
piece: there is one at any number of partitions. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import msgspec

from contracts.windows import WindowRecord

COMMON = 0  # the piece with what is of no endpoint

_OF_NONE: Mapping[str, Any] = {
    "events": 0, "skipped": 0, "copies": 0, "mistimed": 0, "senders": {}, "feedback_repeated": 0
}  # fmt: skip
_Range = tuple[str, int, int]  # topic id, partition, start


def partition_of(endpoint: str, partitions: int) -> int:
    """Where an endpoint's windows lie.

    >>> [partition_of("sentiment", count) for count in (1, 2, 4)]
    [0, 1, 3]
    """
    return crc32(endpoint.encode()) % partitions


def divide(record: WindowRecord, pieces: int) -> list[WindowRecord]:
    """The pieces of a whole record, in order."""
    found = [
        msgspec.structs.replace(
            record,
            piece=piece,
            pieces=pieces,
            aggregates=[],
            refusals={},
            **({} if piece == COMMON else _OF_NONE),
        )
        for piece in range(pieces)
    ]
    for aggregate in record.aggregates:
        found[partition_of(aggregate.endpoint, pieces)].aggregates.append(aggregate)
    for name, counts in record.refusals.items():
        found[partition_of(name, pieces)].refusals[name] = counts
    return found


def join(pieces: Iterable[WindowRecord]) -> WindowRecord:
    """The record that was divided, its aggregates in any order."""
    first, *others = sorted(pieces, key=lambda piece: piece.piece)
    return msgspec.structs.replace(
        first,
        piece=0,
        pieces=1,
        aggregates=[one for piece in (first, *others) for one in piece.aggregates],
        refusals={k: of for piece in (first, *others) for k, of in piece.refusals.items()},
    )


class PieceJoiner:
    """Whole records out of pieces of all partitions, in any order of the partitions."""

    def __init__(self) -> None:
        self._held: dict[_Range, dict[tuple[int, int], dict[int, WindowRecord]]] = {}

    def take(self, piece: WindowRecord) -> WindowRecord | None:
        """The record up to this end, once all its pieces are there; None if some are not (yet)."""
        found = (piece.topic_id, piece.partition, piece.start)
        of_range = self._held.setdefault(found, {})
        held = of_range.setdefault((piece.end, piece.pieces), {})
        held[piece.piece] = piece
        if len(held) < piece.pieces:
            return None
        # What is older may never be whole: its readers leave out what is not the newest.
        for old in [of for of in of_range if of[0] <= piece.end]:
            del of_range[old]
        if not of_range:
            del self._held[found]
        return join(held.values())

    def __len__(self) -> int:
        """Records of which pieces are missing."""
        return sum(map(len, self._held.values()))

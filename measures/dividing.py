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

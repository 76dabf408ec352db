"""Window records added up: the newest record of each range, and sums of aggregates.

Adding is exact in any order, since all counts are integers. Pure: it knows no clock and no Kafka,
and never changes a record that it was given.
"""

import copy
from collections.abc import Iterable

import msgspec

from contracts.windows import OwnCounts, WindowAggregate, WindowRecord
from measures.dividing import join
from measures.histograms import add_counts
from measures.own_statistics import declaration_of

_Range = tuple[str, int, int]  # topic id, partition, start

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WindowAggregate)
_IDENTITY = {"endpoint", "version", "package", "arm", "start"}


def merge(aggregates: Iterable[WindowAggregate]) -> WindowAggregate:
    """The sum of aggregates of one endpoint, version, package, arm and window; at least one.

    Raises:
        ValueError: aggregates of different keys, or none.
    """
    total: WindowAggregate | None = None
    for aggregate in aggregates:
        if total is None:
            # A deep copy, in a twentieth of ``copy.deepcopy``'s time.
            total = _decoder.decode(_encoder.encode(aggregate))
        elif any(getattr(total, name) != getattr(aggregate, name) for name in _IDENTITY):
            raise ValueError("aggregates of different keys do not add")
        else:
            add(total, aggregate)
    if total is None:
        raise ValueError("no aggregates to add")
    return total


def add(total: msgspec.Struct, more: msgspec.Struct) -> None:
    """Adds the counts of ``more`` to ``total`` in place, whatever their keys are."""
    for name in total.__struct_fields__:
        if name in _IDENTITY:
            continue
        mine, theirs = getattr(total, name), getattr(more, name)
        if isinstance(mine, int):
            setattr(total, name, mine + theirs)
        elif isinstance(mine, dict):
            add_counts(mine, theirs)
        elif isinstance(mine, list):
            add_own(mine, theirs)
        else:
            add(mine, theirs)


def add_own(
    total: list[OwnCounts], more: Iterable[OwnCounts], most: int | None = None
) -> list[OwnCounts]:
    """Adds counts of users' statistics in place; returns those for which there was no room.

    Args:
        total: one of each declaration.
        more: is not changed.
        most: declarations that ``total`` may hold; None: any number.
    """
    held = {declaration_of(own.spec): own for own in total}
    left = []
    for own in more:
        mine = held.get(declaration_of(own.spec))
        if mine is not None:
            add_counts(mine.counts, own.counts)
            mine.sum_micro += own.sum_micro
            mine.unfit += own.unfit
        elif most is None or len(total) < most:
            total.append(copy.deepcopy(own))
        else:
            left.append(own)
    return left


class MergedWindows:
    """The newest record of every range, out of its pieces, which come in any order."""

    def __init__(self) -> None:
        self._newest: dict[_Range, WindowRecord] = {}
        # End and number of pieces -> those that came.
        self._waiting: dict[_Range, dict[tuple[int, int], dict[int, WindowRecord]]] = {}

    def put(self, piece: WindowRecord) -> None:
        """Takes a piece, which must not change any more; harmless to repeat."""
        key = (piece.topic_id, piece.partition, piece.start)
        if key in self._newest and self._newest[key].end >= piece.end:
            return
        waiting = self._waiting.setdefault(key, {})
        pieces = waiting.setdefault((piece.end, piece.pieces), {})
        pieces[piece.piece] = piece
        if len(pieces) == piece.pieces:
            self._newest[key] = join(pieces.values())
            # What is older may never be whole.
            self._waiting[key] = {of: held for of, held in waiting.items() if of[0] > piece.end}

    def records(self) -> tuple[WindowRecord, ...]:
        """The whole record of the largest end of every range, sorted by range."""
        return tuple(self._newest[key] for key in sorted(self._newest))

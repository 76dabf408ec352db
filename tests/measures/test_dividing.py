"""Pieces of records: an endpoint lies in one of them, and all are the whole."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_batches import batches_of, record_of

from contracts.windows import WindowRecord
from measures.dividing import COMMON, divide, join, partition_of


def whole(seed: int, end: int = 4) -> WindowRecord:
    record = record_of(batches_of(seed, end), start=64, through=1e6)
    record.skipped, record.copies, record.mistimed = 3, 2, 1
    return record


def sorted_record(record: WindowRecord) -> WindowRecord:
    aggregates = sorted(
        record.aggregates,
        key=lambda one: (one.endpoint, one.version, one.package, one.start, one.arm),
    )
    return msgspec.structs.replace(record, aggregates=aggregates)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 9))
def test_all_pieces_are_the_record_and_each_shows_its_range(seed: int, pieces: int) -> None:
    record = whole(seed)
    found = divide(record, pieces)
    assert [(one.piece, one.pieces) for one in found] == [(n, pieces) for n in range(pieces)]
    assert {(one.start, one.end, one.through) for one in found} == {(64, record.end, 1e6)}
    for one in found:
        assert {partition_of(each.endpoint, pieces) for each in one.aggregates} <= {one.piece}
        assert {partition_of(name, pieces) for name in one.refusals} <= {one.piece}
    assert {one.piece for one in found if one.skipped or one.senders or one.events} == {COMMON}
    assert sorted_record(join(reversed(found))) == sorted_record(record)

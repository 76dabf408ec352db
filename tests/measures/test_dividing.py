"""Pieces of records: an endpoint's lies where Kafka puts its name, and all are the whole."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from prediction_batches import batches_of, record_of

from contracts.windows import WindowRecord
from measures.dividing import COMMON, PieceJoiner, divide, join, part_of, partition_of


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


@given(name=st.text(max_size=63), partitions=st.integers(1, 1000))
def test_an_endpoint_lies_where_kafka_puts_its_name(name: str, partitions: int) -> None:
    assert partition_of(name, partitions) == (murmur2(name.encode()) & 0x7FFFFFFF) % partitions


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


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_records_are_whole_once_all_their_pieces_of_one_division_came(data: st.DataObject) -> None:
    record = whole(1)
    four, six = divide(record, 4), divide(record, 6)
    lost = data.draw(st.integers(0, 3))
    joiner = PieceJoiner()
    for piece in data.draw(st.permutations(four[:lost] + four[lost + 1 :])):
        assert joiner.take(piece) is None
    *first, last = data.draw(st.permutations(six))
    assert [joiner.take(piece) for piece in first] == [None] * 5
    found = joiner.take(last)
    assert found is not None
    assert sorted_record(found) == sorted_record(record)


@pytest.mark.parametrize("endpoint", ["sentiment", "nobody"])
def test_a_part_has_one_endpoint_and_nothing_of_others(endpoint: str) -> None:
    record = whole(2)
    part = part_of(record, endpoint)
    assert part.aggregates == [one for one in record.aggregates if one.endpoint == endpoint]
    assert part.refusals == {k: of for k, of in record.refusals.items() if k == endpoint}
    assert (part.events, part.skipped, part.copies, part.senders) == (0, 0, 0, {})
    assert (part.start, part.end, part.through) == (record.start, record.end, record.through)

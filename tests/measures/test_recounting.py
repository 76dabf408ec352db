"""A recount agrees with what was folded, and finds every number that is wrong."""

import random

import msgspec
import pytest
from prediction_batches import batch_of

from contracts.events import encode
from contracts.windows import EvidenceCounts, WindowRecord, decode
from contracts.windows import encode as encode_record
from measures.ranges import PartitionFold
from measures.recounting import CountDifference, RawMessage, differences, numbers, recount_record


def folded(messages: list[RawMessage]) -> list[WindowRecord]:
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    records = [record for m in messages for record in fold.take(m.offset, m.time, m.value)]
    growing = fold.growing()
    assert growing is not None
    return [decode(encode_record(record)) for record in [*records, growing]]


@pytest.fixture(scope="module")
def log() -> list[RawMessage]:
    rng = random.Random(1)
    messages = [encode(batch_of(rng, sequence=number, events=3)) for number in range(150)]
    messages[100] = messages[60]  # a copy across ranges
    return [RawMessage(number, 1e6, message) for number, message in enumerate(messages)]


def test_every_record_agrees_with_its_recount(log: list[RawMessage]) -> None:
    records = folded(log)
    assert [(record.start, record.end) for record in records] == [(0, 64), (64, 128), (128, 150)]
    for record in records:
        assert differences(record, recount_record(record, log)) == ()
        assert numbers(record) > 500


def test_a_record_of_a_range_that_grew_since_agrees_too(log: list[RawMessage]) -> None:
    record = folded(log[:140])[-1]
    assert (record.start, record.end) == (128, 140)
    assert differences(record, recount_record(record, log)) == ()


def test_wrong_missing_and_invented_numbers_are_found(log: list[RawMessage]) -> None:
    record = folded(log)[1]
    aggregate = record.aggregates[0]
    of = aggregate
    path = f"{of.endpoint} {of.version} {of.package[:12]} {of.arm.value} {of.start}"
    texts = aggregate.texts
    aggregate.texts += 2
    aggregate.evidence.requests -= 1
    aggregate.statuses[418] = 7
    record.refusals["ghost"] = {"503 x": 1}
    found = differences(record, recount_record(record, log))
    assert CountDifference(f"{path} texts", texts + 2, texts) in found
    assert CountDifference(f"{path} statuses 418", 7, 0) in found
    assert CountDifference("refusals ghost 503 x", 1, 0) in found
    assert f"{path} evidence requests" in {what.where for what in found}
    assert len(found) == 4


def test_a_message_that_was_not_folded_is_found(log: list[RawMessage]) -> None:
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    for message in log[:50]:
        if message.offset != 20:
            fold.take(message.offset, message.time, message.value)
    record = fold.growing()
    assert record is not None
    found = {what.where: what for what in differences(record, recount_record(record, log))}
    assert found["events"] == CountDifference("events", 49 * 3, 50 * 3)


def test_a_record_of_no_messages_at_all_differs_in_everything(log: list[RawMessage]) -> None:
    record = folded(log)[0]
    found = differences(record, recount_record(record, []))
    assert all(what.counted == 0 for what in found)
    assert len(found) > 500


NESTED = [
    field.name
    for field in msgspec.structs.fields(EvidenceCounts)
    if not isinstance(field.default, int)
]


@pytest.mark.parametrize("name", NESTED)
def test_every_count_of_the_evidence_is_counted_again(log: list[RawMessage], name: str) -> None:
    for record in folded(log):
        for aggregate in record.aggregates:
            if getattr(aggregate.evidence, name):
                setattr(aggregate.evidence, name, {})
                found = differences(record, recount_record(record, log))
                assert found
                assert all(f" evidence {name}" in what.where for what in found)
                return
    raise AssertionError(f"no record has {name}")

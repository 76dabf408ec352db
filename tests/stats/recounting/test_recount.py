"""The recount over logs in memory; over a real Kafka it is in ``test_fold_main``."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from memory_kafka import MemoryKafka, MemoryLog, MemorySink
from prediction_batches import batch_of

from contracts.events import EventBatch, EventLosses
from contracts.windows import encode
from measures.recounting import RawMessage
from stats.folding.fold import FoldCounts, Folder, FoldPace
from stats.reading.record_log import read_windows
from stats.recounting.recount import RecountScope, recount

pytestmark = pytest.mark.slow

ALL = RecountScope(0.0, 2e6)


@dataclass
class MemoryRaw:
    """The raw events of a Kafka in memory."""

    kafka: MemoryKafka

    @property
    def topic_id(self) -> str:
        return self.kafka.topic_id

    def beginnings(self) -> Mapping[int, int]:
        return {number: self.kafka.beginning.get(number, 0) for number in self.kafka.log}

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        return {
            number: (
                sum(time < begin for time, _ in messages),
                sum(time < end for time, _ in messages),
            )
            for number, messages in self.kafka.log.items()
        }

    def messages(self, partition: int, first: int, end: int) -> Iterator[RawMessage]:
        beginning = self.kafka.beginning.get(partition, 0)
        for offset, (time, value) in enumerate(self.kafka.log[partition]):
            if max(first, beginning) <= offset < end:
                yield RawMessage(offset, time, value)


@pytest.fixture
def kafka() -> MemoryKafka:
    """400 messages in two partitions, folded; events are of 1,000,000 to 1,000,240 seconds."""
    made = MemoryKafka()
    rng = random.Random(0)
    for number in range(400):
        batch = batch_of(rng, sequence=number, events=2, time=1e6 + number / 2)
        made.produce(number % 2, batch)
    log = MemoryLog(made, given={0, 1}, most=100)
    folder = Folder(log, MemorySink(made), FoldPace(10, 0.0), FoldCounts())
    for _ in range(6):
        folder.step()
    return made


def test_all_that_was_folded_agrees(kafka: MemoryKafka) -> None:
    found = recount(kafka.merged(), MemoryRaw(kafka), ALL)
    assert found.agrees
    assert (found.ranges, found.events) == (8, 800)
    assert found.numbers > 5000
    assert (found.gone, found.other_topic, found.unfolded) == (0, 0, 0)


def test_only_ranges_with_windows_in_the_time_are_counted(kafka: MemoryKafka) -> None:
    found = recount(kafka.merged(), MemoryRaw(kafka), RecountScope(1e6 + 150, 1e6 + 160))
    assert 0 < found.ranges < 8
    assert found.agrees


def test_a_record_that_lost_its_windows_is_found_by_its_messages(kafka: MemoryKafka) -> None:
    windows = kafka.merged()
    windows.records()[2].aggregates.clear()
    found = recount(windows, MemoryRaw(kafka), ALL)
    assert {(partition, start) for partition, start, _ in found.differences} == {(0, 128)}


def test_one_endpoint_alone_is_compared_where_it_is_asked_for(kafka: MemoryKafka) -> None:
    windows = kafka.merged()
    aggregate = next(
        aggregate for aggregate in windows.records()[0].aggregates if aggregate.endpoint == "topics"
    )
    aggregate.texts += 1
    assert recount(windows, MemoryRaw(kafka), RecountScope(0.0, 2e6, "sentiment")).agrees
    found = recount(windows, MemoryRaw(kafka), RecountScope(0.0, 2e6, "topics"))
    assert len(found.differences) == 1


def test_a_wrong_number_is_found_where_it_is(kafka: MemoryKafka) -> None:
    windows = kafka.merged()
    record = windows.records()[1]
    record.aggregates[0].answered += 5
    found = recount(windows, MemoryRaw(kafka), ALL)
    ((partition, start, what),) = found.differences
    assert (partition, start) == (record.partition, record.start)
    assert what.where.endswith(" answered")
    assert what.written - what.counted == 5
    assert not found.agrees


def test_what_kafka_deleted_can_not_be_counted_and_is_told(kafka: MemoryKafka) -> None:
    kafka.beginning = {0: 1}  # of no use alone: copies are told by the messages before a range
    found = recount(kafka.merged(), MemoryRaw(kafka), ALL)
    assert (found.gone, found.ranges) == (4, 4)
    assert found.agrees


def test_missing_numbers_and_what_a_gateway_lost_are_read_from_the_raw_events() -> None:
    made = MemoryKafka()
    for number in range(200):
        if number not in (3, 77, 78):
            lost = [EventLosses("topics", 200, "buffer_full", number // 10)]
            batch = EventBatch("g", number, dropped=lost, last=number == 199)
            made.produce(number % 2, batch)
    made.produce(1, EventBatch("h", 5))
    log = MemoryLog(made, given={0, 1}, most=100)
    folder = Folder(log, MemorySink(made), FoldPace(10, 0.0), FoldCounts())
    for _ in range(6):
        folder.step()
    found = recount(made.merged(), MemoryRaw(made), ALL)
    assert found.agrees
    one, other = found.gateways
    assert (one.first, one.last, one.missing, one.ended) == (0, 199, (3, 77, 78), True)
    assert one.dropped == {"topics": {"buffer_full": 19}}
    assert (other.first, other.last, other.missing, other.ended) == (5, 5, (), False)
    made.produce(0, EventBatch("h", 6))
    assert recount(made.merged(), MemoryRaw(made), ALL).gateways == ()  # it is in no window


def test_ranges_of_a_deleted_topic_are_told_apart(kafka: MemoryKafka) -> None:
    kafka.topic_id = "u"
    found = recount(kafka.merged(), MemoryRaw(kafka), ALL)
    assert (found.other_topic, found.ranges) == (8, 0)
    assert found.unfolded == 400


def test_messages_that_nobody_folded_yet_are_told(kafka: MemoryKafka) -> None:
    kafka.log[1] += kafka.log[1][-3:]
    found = recount(kafka.merged(), MemoryRaw(kafka), ALL)
    assert found.unfolded == 3
    assert found.agrees


@dataclass
class OneByOne:
    """A log of records that gives one a poll."""

    messages: list[bytes]

    def poll(self, seconds: float) -> list[bytes]:
        return [self.messages.pop(0)] if self.messages else []

    def list_unread(self) -> set[int]:
        return {0} if self.messages else set()

    def close(self) -> None:
        pass


def test_written_records_are_read_to_their_end(kafka: MemoryKafka) -> None:
    messages = [encode(record) for record in kafka.written]
    assert read_windows(OneByOne(messages)).records() == kafka.merged().records()

"""Window records on a real Kafka: written by the sink, read by the reader."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NoReturn, TypeVar

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka_proxy import FAULTS, KafkaProxy
from merged_windows import all_windows
from own_servers import KafkaProcess
from prediction_batches import batch_of, record_of
from waiting import until

from contracts.windows import EndpointWindow, WindowRecord, decode
from measures.dividing import partition_of
from service.kafka import KafkaAddress, KafkaAwayError, Topic, TopicMissingError, Topics
from stats.errors import LogReplacedError, RecordTooLargeError, StalledError
from stats.folding.record_sink import KafkaRecordSink
from stats.reading.published import KafkaEventLogEnds
from stats.reading.reader import ReaderPace, WindowsReader
from stats.reading.record_log import KafkaRecordLog, largest, read_windows

pytestmark = pytest.mark.real

T = TypeVar("T")

PACE = ReaderPace(lateness_seconds=0.0, answer_seconds=3.0, check_seconds=0.2)


@pytest.fixture
def topic() -> Topic:
    return Topic(f"windows-{uuid.uuid4().hex}", partitions=3, max_message_bytes=2_000_000)


@pytest.fixture
def address(kafka: KafkaProcess) -> KafkaAddress:
    # Patient: a broker on a busy machine may take seconds for an answer.
    return KafkaAddress((kafka.bootstrap,), connect_seconds=30.0, request_seconds=30.0)


@pytest.fixture
def sink(address: KafkaAddress, topic: Topic) -> Iterator[KafkaRecordSink]:
    made = KafkaRecordSink(address, topic)
    yield made
    made.close()


def record(start: int, *, partition: int = 0) -> WindowRecord:
    """Counts of a minute ago, as if folded now."""
    now = time.time()
    batch = batch_of(random.Random(start), events=20, time=now - 100)
    return record_of([batch], partition=partition, start=start, through=now)


def read_all(log: KafkaRecordLog) -> list[bytes]:
    messages: list[bytes] = []
    while True:
        messages += log.poll(0.2)
        if not log.list_unread():
            return messages


def in_time(ask: Callable[[], T]) -> T | None:
    """An answer; None where a busy machine let none come in time."""
    try:
        return ask()
    except KafkaAwayError:
        return None


def whole_log(address: KafkaAddress, topic: Topic, records: int) -> KafkaRecordLog | None:
    """A log of the last minute, once so many records were read of it; None as ``in_time``."""
    log = in_time(lambda: KafkaRecordLog(address, time.time() - 60, topic.name))
    wanted = records * topic.partitions  # a piece in each
    if log is not None and len(in_time(lambda: read_all(log)) or ()) != wanted:
        log.close()
        return None
    return log


def test_records_are_read_from_a_time_onwards(
    address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    sink.write([record(64 * n, partition=n) for n in range(5)])
    log = KafkaRecordLog(address, time.time() - 60, topic.name)
    assert len(read_all(log)) == 5 * topic.partitions
    sink.write([record(640)])
    assert len(read_all(log)) == topic.partitions
    log.close()
    later = KafkaRecordLog(address, time.time() + 60, topic.name)
    assert read_all(later) == []
    sink.write([record(704)])
    until("it comes to be", 90, lambda: len(later.poll(0.2)) > 0)
    later.close()


def test_the_partitions_that_are_asked_for_are_read_and_no_others(
    address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    sink.write([record(64 * n) for n in range(4)])
    log = KafkaRecordLog(address, None, topic.name)
    assert read_all(log) == []
    log.rewind({1}, 0.0)
    assert {decode(each).piece for each in read_all(log)} == {1}
    sink.write([record(640)])
    log.rewind({2}, 0.0, keep={1, 2})
    found = Counter(decode(each).piece for each in read_all(log))
    assert found == {1: 1, 2: 5}
    log.rewind(set(), 0.0, keep={2})
    sink.write([record(704)])
    assert {decode(each).piece for each in read_all(log)} == {2}
    log.close()


def test_after_partitions_were_added_each_range_is_whole_again_and_counted_once(
    kafka: KafkaProcess, address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    written = [record(0), record(64)]
    sink.write(written)
    reader = WindowsReader(
        lambda: KafkaRecordLog(address, None, topic.name), KafkaEventLogEnds(address), pace=PACE
    )

    def known() -> int:
        return attempts(reader.windows("sentiment", 0.0) or ())

    reader.start()
    until("it is read", 90, lambda: known() == attempts(written))
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_partitions({topic.name: 7})
    admin.close()
    with closing(Topics(address)) as topics:
        until("they are there", 90, lambda: len(topics.describe(topic.name)[1]) == 7)
    assert partition_of("sentiment", 3) != partition_of("sentiment", 7)
    written.append(record(128))
    again = KafkaRecordSink(address, topic)
    again.write(written[1:])  # as a worker does that begins again at its last commit
    again.close()
    until("all is read", 90, lambda: known() == attempts(written))
    reader.close()
    log = KafkaRecordLog(address, 0.0, topic.name)
    merged = read_windows(log)
    log.close()
    assert attempts(all_windows(merged, "sentiment")) == attempts(written)
    assert [one.start for one in merged.records()] == [0, 64, 128]


def test_the_topic_is_kept_by_the_brokers_time_and_never_compacted(
    kafka: KafkaProcess, topic: Topic, sink: KafkaRecordSink
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
    said = str(admin.describe_configs([resource]))
    admin.close()
    assert str(int(topic.retention_hours * 3_600_000)) in said
    assert "LogAppendTime" in said
    assert "compact" not in said.split("cleanup.policy")[1][:80]


def test_a_record_larger_than_a_message_may_be_is_told_apart(
    sink: KafkaRecordSink, topic: Topic
) -> None:
    large = record(0)
    large.refusals = {"e": {str(number): number for number in range(200_000)}}
    with pytest.raises(RecordTooLargeError):
        sink.write([large])
    sink.write([record(0)])


def test_no_topic_is_told_apart_from_no_kafka(address: KafkaAddress) -> None:
    with pytest.raises(TopicMissingError):
        KafkaRecordLog(address, 0.0, "nobody-made-this")
    with pytest.raises(KafkaAwayError):
        KafkaRecordLog(KafkaAddress(("127.0.0.1:1",)), 0.0, "any")


def ask_on(log: KafkaRecordLog) -> NoReturn:
    """Asks again and again, and never polls."""
    while True:
        log.list_unread()


def test_records_that_wait_and_are_never_read_end_the_connection(
    address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    log = KafkaRecordLog(address, 0.0, topic.name, stall_seconds=0.5)
    assert not log.list_unread()
    sink.write([record(64 * n, partition=n) for n in range(3)])
    with pytest.raises(StalledError, match="wait, and none was read"):
        ask_on(log)
    log.close()


def test_a_topic_made_again_is_noticed(
    kafka: KafkaProcess, address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    log = KafkaRecordLog(address, 0.0, topic.name)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_topics([topic.name])
    until("it comes to be", 90, lambda: topic.name not in admin.list_topics())
    admin.close()
    KafkaRecordSink(address, topic).close()
    with pytest.raises(LogReplacedError):
        log.list_unread()
    log.close()


def attempts(counted: Iterable[WindowRecord | EndpointWindow]) -> int:
    """Of the endpoint ``sentiment``."""
    return sum(
        sum(aggregate.statuses.values())
        for each in counted
        for aggregate in each.aggregates
        if aggregate.endpoint == "sentiment"
    )


def test_the_reader_knows_the_windows_and_knows_when_it_can_not_know(
    kafka: KafkaProcess, address: KafkaAddress, topic: Topic, sink: KafkaRecordSink
) -> None:
    written = [record(0), record(64)]
    sink.write(written)
    before = attempts(written)
    # It tries again for ever, and must notice soon that Kafka is away.
    hasty = KafkaAddress((kafka.bootstrap,), request_seconds=2.0)
    reader = WindowsReader(
        lambda: KafkaRecordLog(hasty, None, topic.name),
        KafkaEventLogEnds(hasty),
        pace=PACE,
    )

    def known() -> int:
        return attempts(reader.windows("sentiment", 0.0) or ())

    reader.start()
    until("it comes to be", 90, lambda: known() == before)
    kafka.kill9()
    until("it comes to be", 90, lambda: reader.windows("sentiment", 0.0) is None)
    kafka.start()
    until("it comes to be", 90, lambda: known() == before)
    again = KafkaRecordSink(address, topic)
    again.write([record(128)])
    again.close()
    until("it comes to be", 90, lambda: known() > before)
    reader.close()


@pytest.fixture
def proxy(kafka: KafkaProcess) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka.bootstrap) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_answers_in_the_place_of_kafka_is_kafka_that_is_away(
    address: KafkaAddress, topic: Topic, sink: KafkaRecordSink, proxy: KafkaProxy, fault: str
) -> None:
    """Neither a missing topic nor an empty one, nor the end of a log, nor a record that is sent."""
    sink.write([record(0), record(64)])
    hasty = KafkaAddress((proxy.bootstrap,), request_seconds=1.0)
    log = until("all is read", 90, lambda: whole_log(hasty, topic, 2))
    topics = until("Kafka answers in time", 90, lambda: in_time(lambda: Topics(hasty)))
    writer = until(
        "Kafka answers in time", 90, lambda: in_time(lambda: KafkaRecordSink(hasty, topic))
    )
    proxy.spoil(fault)
    sink.write([record(128)])
    asked: list[Callable[[], object]] = [
        lambda: writer.write([record(192)]),
        lambda: topics.describe(topic.name),
        lambda: topics.spans(topic.name, [0, 1, 2]),
        log.list_unread,
        lambda: Topics(hasty),
        lambda: KafkaRecordLog(hasty, 0.0, topic.name),
    ]
    for ask in asked:
        with pytest.raises(KafkaAwayError):
            ask()
    proxy.spoil("")
    for each in (log, topics, writer):
        each.close()
    patient = KafkaAddress((proxy.bootstrap,), connect_seconds=30.0, request_seconds=30.0)
    again = KafkaRecordSink(patient, topic)
    again.write([record(192)])
    again.close()
    later = KafkaRecordLog(patient, time.time() - 60, topic.name)
    found = {found.start for found in largest(read_all(later))}
    later.close()
    assert found == {0, 64, 128, 192}


def test_the_reader_waits_for_kafka_through_every_fault_and_loses_nothing(
    address: KafkaAddress, topic: Topic, sink: KafkaRecordSink, proxy: KafkaProxy
) -> None:
    written = [record(0)]
    sink.write(written)
    hasty = KafkaAddress((proxy.bootstrap,), request_seconds=2.0)
    reader = WindowsReader(
        lambda: KafkaRecordLog(hasty, None, topic.name), KafkaEventLogEnds(hasty), pace=PACE
    )

    def known() -> int | None:
        windows = reader.windows("sentiment", 0.0)
        return None if windows is None else attempts(windows)

    reader.start()
    try:
        for number, fault in enumerate(FAULTS, start=1):
            until("all is known", 90, lambda: known() == attempts(written))
            proxy.spoil(fault)
            written.append(record(64 * number))
            sink.write(written[-1:])
            until(f"{fault} is noticed", 90, lambda: known() is None)
            proxy.spoil("")
        until("all is known", 90, lambda: known() == attempts(written))
    finally:
        reader.close()

"""Reads what lies in a topic of a real Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from waiting import until


@contextmanager
def partitions_of(
    bootstrap: str, topic: str
) -> Iterator[tuple[KafkaConsumer, dict[TopicPartition, int]]]:
    """A consumer of all partitions of a topic, and where each of them ends now."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        request_timeout_ms=60_000,
    )
    try:
        numbers = consumer.partitions_for_topic(topic) or ()
        partitions = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(partitions)
        yield consumer, consumer.end_offsets(partitions)
    finally:
        consumer.close()


def everything(bootstrap: str, topic: str) -> list[Any]:
    """Kafka's records of all messages that a topic holds now."""
    found: list[Any] = []
    with partitions_of(bootstrap, topic) as (consumer, ends):
        consumer.seek_to_beginning(*ends)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=300).values():
                found += records
    return found


def read_topic(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """All messages of each partition up to its present end, of a topic that there is."""

    def numbers() -> list[int]:
        with partitions_of(bootstrap, topic) as (_, ends):
            return [part.partition for part in ends]

    # A broker that has just been started, or a topic made, is not told everywhere at once.
    known = until("the broker knows the topic", 60, numbers)
    found: dict[int, list[bytes]] = {number: [] for number in known}
    for record in everything(bootstrap, topic):
        found[record.partition].append(record.value)
    return found

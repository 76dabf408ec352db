"""Reads topics from their start, and what that of prediction events comes to."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from waiting import until

from contracts.events import TOPIC, EventBatch, decode


@dataclass
class Totals:
    """What the events say, each message counted once by (gateway, sequence)."""

    by_status: "Counter[int]" = field(default_factory=Counter)
    answered: "Counter[int]" = field(default_factory=Counter)
    refused: "Counter[int]" = field(default_factory=Counter)
    dropped: "Counter[int]" = field(default_factory=Counter)
    sequences: dict[str, set[int]] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)

    def gaps(self, gateway: str) -> set[int]:
        """Sequence numbers that never came."""
        seen = self.sequences[gateway]
        return set(range(max(seen) + 1)) - seen

    def without(self, earlier: "Totals") -> "Counter[int]":
        """Requests by status since ``earlier``: in events, refusals or counted drops."""
        mine = self.by_status + self.refused + self.dropped
        mine.subtract(earlier.by_status + earlier.refused + earlier.dropped)
        return Counter({status: count for status, count in mine.items() if count})


def read_all(bootstrap: str) -> Totals:
    """What every message from the first to the present end of the log comes to."""
    return total(read_batches(bootstrap))


def read_batches(bootstrap: str) -> list[EventBatch]:
    """Every message from the first to the present end of the log, of a Kafka that may yet start."""
    until("Kafka takes connections", 120, lambda: _listens(bootstrap))
    return [decode(record.value) for record in everything(bootstrap, TOPIC)]


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


def _listens(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def total(batches: list[EventBatch]) -> Totals:
    """The totals of messages in any order, repeats among them."""
    totals = Totals()
    newest: dict[str, EventBatch] = {}
    for batch in batches:
        seen = totals.sequences.setdefault(batch.gateway, set())
        if batch.sequence in seen:
            continue
        seen.add(batch.sequence)
        if batch.last:
            totals.last.add(batch.gateway)
        for event in batch.events:
            if event.answered:
                totals.by_status[event.status] += 1
        for refusal in batch.refusals:
            totals.refused[refusal.status] += refusal.count
        if batch.gateway not in newest or newest[batch.gateway].sequence < batch.sequence:
            newest[batch.gateway] = batch
    for batch in newest.values():
        for drop in batch.dropped:
            totals.dropped[drop.status] += drop.answered
    return totals

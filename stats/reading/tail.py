"""Partitions of a topic from given offsets up to their present end, without a group."""

import time
from collections.abc import Mapping
from typing import Self

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from service.kafka import KafkaAddress, KafkaAwayError, close, consumer, kafka_errors

_POLL_MS = 200


class TopicTail:
    """For one thread. Offsets that Kafka has deleted are passed over.

    ``is_whole``: the last reading came to the end that there was.
    """

    def __init__(self, address: KafkaAddress, topic: str, first: Mapping[int, int]) -> None:
        """Connects; raises ``KafkaAwayError``."""
        self._timeout_ms = address.request_ms
        self._parts = [TopicPartition(topic, number) for number in first]
        self.is_whole = False
        self._consumer = consumer(
            address,
            auto_offset_reset="earliest",
            fetch_max_bytes=64 << 20,
            max_partition_fetch_bytes=16 << 20,
            max_poll_records=1000,
        )
        self._consumer.assign(self._parts)
        for part in self._parts:
            self._consumer.seek(part, first[part.partition])

    def read(self, seconds: float) -> list[ConsumerRecord]:
        """What there is up to the present end, or as much as comes in ``seconds``."""
        found: list[ConsumerRecord] = []
        until = time.monotonic() + seconds
        with kafka_errors():
            ends = self._consumer.end_offsets(self._parts, timeout_ms=self._timeout_ms)
            self.is_whole = False
            while not self.is_whole and time.monotonic() < until:
                positions = {
                    part: self._consumer.position(part, timeout_ms=self._timeout_ms)
                    for part in self._parts
                }
                self.is_whole = all((positions[p] or 0) >= ends[p] for p in self._parts)
                if not self.is_whole:
                    polled = self._consumer.poll(timeout_ms=_POLL_MS)
                    found += [record for records in polled.values() for record in records]
        return found

    def read_all(self, seconds: float) -> list[ConsumerRecord]:
        """All of that; raises ``KafkaAwayError`` if it does not come in ``seconds``."""
        found = self.read(seconds)
        if not self.is_whole:
            raise KafkaAwayError(f"not all could be read in {seconds:.0f} s")
        return found

    def close(self) -> None:
        """Ends the connection."""
        close(self._consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

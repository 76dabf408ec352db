"""Gateways, a fold worker and the controller's reader on a real Kafka, for a ``RolloutWorld``.

The reader reaches Kafka through a proxy, and they as it is.
"""

from collections.abc import Callable, Sequence

import msgspec
from kafka_proxy import KafkaProxy

from contracts.windows import RANGE_MESSAGES, EndpointWindow, WindowAggregate, WindowRecord
from measures.counting import CountingStatus
from service.kafka import KafkaAddress, Topic, Topics, close, producer
from stats.folding.record_sink import KafkaRecordSink
from stats.reading.published import KafkaEventLogEnds
from stats.reading.reader import WindowsReader
from stats.reading.record_log import KafkaRecordLog

_PATIENT_SECONDS = 30.0


class KafkaTraffic:
    """``rollout_world.Traffic`` on a real Kafka. Close it at the end."""

    def __init__(
        self, clock: Callable[[], float], proxy: KafkaProxy, bootstrap: str, name: str
    ) -> None:
        """Makes the two topics, whose names begin with ``name``."""
        patient = KafkaAddress(
            (bootstrap,), connect_seconds=_PATIENT_SECONDS, request_seconds=_PATIENT_SECONDS
        )
        self._clock = clock
        self._proxy = proxy
        self._events, records = Topic(f"{name}-events", partitions=1), Topic(f"{name}-windows")
        self._sink = KafkaRecordSink(patient, records)
        topics = Topics(patient)
        topics.ensure(self._events)
        self._topic_id, _ = topics.describe(self._events.name)
        topics.close()
        self._producer = producer(
            patient, max_request_bytes=1_000_000, delivery_seconds=_PATIENT_SECONDS
        )
        self._start = -1  # of the range that grows
        self._aggregates: list[WindowAggregate] = []  # in it
        # As the controller builds it, but for a Kafka that is soon taken for one that is away.
        hasty = KafkaAddress((proxy.bootstrap,), request_seconds=2.0)
        self._reader = WindowsReader(
            lambda: KafkaRecordLog(hasty, None, records.name),
            KafkaEventLogEnds(hasty, self._events.name),
            clock=clock,
        )
        self.windows = self._reader.windows
        self.closed_through = self._reader.closed_through
        self._reader.start()

    def counting(self) -> CountingStatus:
        """See ``controller.rollouts.Statistics``."""
        return self._reader.counting()

    def publish(self, endpoint: str, windows: Sequence[EndpointWindow]) -> None:
        """One message of a gateway, and the record of its range with these windows in it."""
        sent = self._producer.send(self._events.name, value=b"events", partition=0)
        offset = sent.get(_PATIENT_SECONDS).offset
        if (start := offset - offset % RANGE_MESSAGES) != self._start:
            self._start, self._aggregates = start, []
        self._aggregates += [
            msgspec.structs.replace(counted, endpoint=endpoint)
            for window in windows
            for counted in window.aggregates
        ]
        now = self._clock()
        record = WindowRecord(
            self._topic_id, 0, start, offset + 1, now, 1, now, aggregates=self._aggregates
        )
        self._sink.write([record])

    def spoil(self, fault: str) -> None:
        """Of the reader's answers."""
        self._proxy.spoil(fault)

    def close(self) -> None:
        """Ends reader and writers."""
        self._reader.close()
        self._sink.close()
        close(self._producer)

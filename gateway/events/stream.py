"""Builds the event stream of a process: buffer, outbox, publisher and Kafka.

Without an address of Kafka there is no event stream, and requests are only counted in the metrics.
"""

import asyncio
from collections.abc import Iterable
from typing import Literal, cast

from contracts.events import Feedback, PredictionEvent
from gateway.events.buffer import EventBuffer, Recorder
from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.events.outbox import Declared, Outbox
from gateway.events.publisher import Publisher
from gateway.settings import Settings
from gateway.telemetry.metrics import ObservedMetric, Reading
from service.kafka import KafkaAddress, Topic

_WAKE_EVENTS = 250  # half a message: more events arrive while the thread wakes up


class EventStream:
    """Events of one gateway process on their way to Kafka."""

    def __init__(self, settings: Settings, instance: str, declared: Declared) -> None:
        self._buffer = EventBuffer(
            capacity_records=settings.event_records, wake_events=_WAKE_EVENTS
        )
        self._outbox = Outbox(self._buffer, gateway=instance, declared=declared)
        kafka = KafkaSettings(
            KafkaAddress.of(settings.kafka_bootstrap, login=settings.kafka_login),
            topic=Topic(
                name=settings.predictions_topic,
                partitions=settings.topic_partitions,
                replication=settings.topic_replication,
                retention_hours=settings.topic_retention_hours,
            ),
            compression=cast("Literal['lz4', 'zstd']", settings.kafka_compression),
        )
        self._publisher = Publisher(self._buffer, self._outbox, KafkaSink(kafka))

    @property
    def recorder(self) -> Recorder:
        """Records events for the stream."""
        return self._buffer

    def start(self) -> None:
        """Starts the publisher's thread; Kafka need not be reachable yet."""
        self._publisher.start()

    async def close(self, timeout_seconds: float) -> None:
        """Sends what waits, for so long at most; the rest is counted as dropped."""
        await asyncio.to_thread(self._publisher.close, timeout_seconds)

    def readings(self) -> Iterable[Reading]:
        """For ``/metrics``."""
        totals, published, counts = (
            self._buffer.totals(),
            self._outbox.published,
            self._publisher.counts,
        )
        yield Reading(ObservedMetric.EVENTS, (), totals.events)
        yield Reading(ObservedMetric.EVENTS_WAITING, (), totals.records)
        yield Reading(ObservedMetric.EVENTS_PUBLISHED, (), published.events)
        yield Reading(ObservedMetric.FEEDBACK, (), totals.feedback)
        yield Reading(ObservedMetric.FEEDBACK_PUBLISHED, (), published.feedback)
        yield Reading(ObservedMetric.EVENT_MESSAGES, (), published.messages)
        yield Reading(ObservedMetric.EVENT_FAILURES, (), counts.unavailable + counts.refused)
        yield Reading(ObservedMetric.EVENTS_CONNECTED, (), float(counts.connected))
        dropped = self._buffer.dropped()
        yield Reading(ObservedMetric.EVENTS_LOST, (), sum(lost.count for lost in dropped))
        for lost in dropped:
            labels = (lost.endpoint, str(lost.status), lost.reason)
            yield Reading(ObservedMetric.EVENTS_DROPPED, labels, lost.count)


class NoEvents:
    """No stream: events are ignored."""

    @property
    def recorder(self) -> Recorder:
        """Ignores all events."""
        return self

    def attempt(self, event: PredictionEvent) -> None:
        """See ``Recorder``."""

    def refusal(self, endpoint: str, status: int, reason: str) -> None:
        """See ``Recorder``."""

    def feedback(self, feedback: Feedback) -> None:
        """See ``Recorder``."""

    def start(self) -> None:
        """Nothing to start."""

    async def close(self, timeout_seconds: float) -> None:
        """Nothing to flush."""

    def readings(self) -> Iterable[Reading]:
        """Nothing to tell."""
        return ()


def open_events(settings: Settings, instance: str, declared: Declared) -> EventStream | NoEvents:
    """The stream that the settings ask for.

    Raises:
        KafkaLoginError: the folder of credentials can't be used.
    """
    return EventStream(settings, instance, declared) if settings.kafka_bootstrap else NoEvents()

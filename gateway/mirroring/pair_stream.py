"""Sends kept pairs to their topic, from a thread of its own; started only where texts may be kept.

A message is sent again, unchanged, until it is acknowledged: readers drop the copy by its gateway
and sequence. One that Kafka will never take is given up, and its missing sequence tells readers.
While Kafka is away, texts wait in memory, as many as are kept.
"""

import asyncio
import logging
import threading
import time
from concurrent.futures import TimeoutError as LateError

from contracts.pairs import encode
from gateway.events.kafka_sink import KafkaSettings, KafkaSink
from gateway.events.publisher import EventSink, MessageRefusedError, SinkUnavailableError
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.settings import Settings
from service.kafka import KafkaAddress, Topic

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 5.0
_ACKNOWLEDGE_SECONDS = 20.0


class PairStream:
    """The pairs of one process on their way to Kafka."""

    def __init__(self, gateway: str, sink: EventSink, pairs: KeptPairs | None = None) -> None:
        self.pairs = KeptPairs(gateway) if pairs is None else pairs
        self._sink = sink
        self._pending: bytes | None = None
        self._number = 0  # of the pending message
        self._is_away = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread; Kafka need not be reachable yet."""
        self._thread = threading.Thread(target=self._run, name="pairs", daemon=True)
        self._thread.start()

    async def close(self, timeout_seconds: float) -> None:
        """Sends what waits, for so long at most."""
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout_seconds)
        await asyncio.to_thread(self._sink.close, timeout_seconds)

    def flush(self, timeout_seconds: float = _ACKNOWLEDGE_SECONDS) -> bool:
        """Sends all that is new; false where Kafka is away, and the rest waits."""
        until = time.monotonic() + timeout_seconds
        while (payload := self._next()) is not None:
            try:
                delivery = self._sink.submit(self._number, payload)
                delivery.result(max(until - time.monotonic(), 0.1))
            except (SinkUnavailableError, LateError) as error:
                if not self._is_away:
                    log.warning("pairs to label wait for Kafka", extra={"reason": str(error)})
                self._is_away = True
                return False
            except MessageRefusedError as error:
                log.error("pairs to label were lost", extra={"reason": str(error)})
            self._pending, self._is_away = None, False
            self._number += 1
        return True

    def _next(self) -> bytes | None:
        if self._pending is None:
            message = self.pairs.take()
            self._pending = None if message is None else encode(message)
        return self._pending

    def _run(self) -> None:
        while not self._stop.wait(_FLUSH_SECONDS):
            self.flush()
        self.flush()


def open_pairs(settings: Settings, gateway: str) -> PairStream | None:
    """The stream of pairs; None if no texts may be kept, or there is no Kafka.

    Raises:
        KafkaLoginError: the folder of credentials can't be used.
    """
    hours = settings.pair_texts_hours
    if not hours or not settings.kafka_bootstrap:
        return None
    topic = pairs_topic(settings.pairs_topic, hours, settings.topic_replication)
    address = KafkaAddress.of(settings.kafka_bootstrap, login=settings.kafka_login)
    return PairStream(gateway, KafkaSink(KafkaSettings(address, topic=topic)))


def pairs_topic(name: str, hours: float, replication: int) -> Topic:
    """A topic on which nothing stays for longer than this many hours, but for minutes.

    A segment is deleted as a whole, when its last message is old enough. So a segment takes
    messages for a quarter of the time, and is kept for the rest.
    """
    return Topic(
        name=name,
        partitions=1,
        replication=replication,
        retention_hours=0.75 * hours,
        segment_hours=0.25 * hours,
    )

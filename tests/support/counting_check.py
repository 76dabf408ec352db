"""Whether everything that gateways published is counted: in windows, and by the exporter.

Asks Kafka for the ends of its topics, rather than any worker for what it thinks it has done.
"""

import time
from collections.abc import Mapping

import httpx

from contracts.events import TOPIC as PREDICTIONS
from contracts.windows import TOPIC as WINDOWS
from measures.merging import MergedWindows
from service.kafka import KafkaAddress, StreamError
from stats.reading.record_log import KafkaRecordLog, largest
from stats.recounting.raw_log import KafkaRawLog

POLL_SECONDS = 0.2
OVERLAP_SECONDS = 120.0  # of what one look read and the next one reads again
FUTURE_SECONDS = 86_400.0


class CountingCheck:
    """Remembers what windows cover, so that each look reads only what came since the last.

    Args:
        kafka: ``host:port``.
        exporter: URL of the evaluate role.
    """

    def __init__(self, kafka: str, exporter: str) -> None:
        self._kafka = kafka
        self._exporter = exporter
        self._counted: dict[tuple[str, int], int] = {}  # (topic id, partition) -> offset
        self._since = 0.0

    def until_counted(self, seconds: float) -> float:
        """Waits until all that is published now is in windows, and the exporter has read these.

        Returns:
            Seconds from Kafka's first answer until then.

        Raises:
            AssertionError: it was not so in time; says what is missing.
        """
        deadline = time.monotonic() + seconds
        topic_id, published = self._published(deadline)
        answered = time.monotonic()
        self._until_in_windows(topic_id, published, deadline)
        self._until_exported(deadline)
        return time.monotonic() - answered

    def _published(self, deadline: float) -> tuple[str, Mapping[int, int]]:
        while True:
            try:
                return ends(self._kafka, PREDICTIONS)
            except StreamError as error:
                _pause(deadline, f"Kafka does not tell what was published: {error}")

    def _until_in_windows(
        self, topic_id: str, published: Mapping[int, int], deadline: float
    ) -> None:
        began = time.time()
        while lacks := missing(published, topic_id, self._counted):
            said = f"messages by partition that are in no window: {lacks} of {dict(published)}"
            try:
                self._read(topic_id, published, deadline)
            except StreamError as error:
                said = f"{said}; {error}"
            if missing(published, topic_id, self._counted):
                _pause(deadline, said)
        self._since = began - OVERLAP_SECONDS

    def _read(self, topic_id: str, published: Mapping[int, int], deadline: float) -> None:
        """Reads windows until they cover what was published, or the deadline is over."""
        log, windows = KafkaRecordLog(KafkaAddress((self._kafka,)), self._since), MergedWindows()
        try:
            while missing(published, topic_id, self._counted) and time.monotonic() < deadline:
                for piece in largest(log.poll(POLL_SECONDS)):
                    windows.put(piece)
                for record in windows.records():
                    key = (record.topic_id, record.partition)
                    self._counted[key] = max(self._counted.get(key, 0), record.end)
        finally:
            log.close()

    def _until_exported(self, deadline: float) -> None:
        wanted: Mapping[int, int] | None = None
        while True:
            try:
                if wanted is None:
                    _, wanted = ends(self._kafka, WINDOWS)
                url = f"{self._exporter}/counters.json"
                told = httpx.get(url, timeout=60).raise_for_status().json()
                read = {int(partition): end for partition, end in told["read"].items()}
                if all(read.get(partition, 0) >= end for partition, end in wanted.items()):
                    return
                said = f"the exporter has read {read}, and there is {dict(wanted)}"
            except (StreamError, httpx.HTTPError, ValueError) as error:
                said = f"the exporter can't be asked: {error!r}"
            _pause(deadline, said)


def ends(kafka: str, topic: str) -> tuple[str, Mapping[int, int]]:
    """A topic's id, and how many messages each of its partitions ever had.

    Raises:
        StreamError: Kafka is away, or there is no such topic.
    """
    log = KafkaRawLog(KafkaAddress((kafka,)), topic)
    try:
        future = time.time() + FUTURE_SECONDS
        return log.topic_id, {part: end for part, (end, _) in log.spans(future, future).items()}
    finally:
        log.close()


def missing(
    published: Mapping[int, int], topic_id: str, counted: Mapping[tuple[str, int], int]
) -> dict[int, int]:
    """Partition -> messages that are in no window, of those partitions that have any."""
    lacks = {
        partition: end - counted.get((topic_id, partition), 0)
        for partition, end in published.items()
    }
    return {partition: lack for partition, lack in lacks.items() if lack > 0}


def _pause(deadline: float, said: str) -> None:
    """Waits before another look; fails after the deadline with what is missing."""
    if time.monotonic() > deadline:
        raise AssertionError(f"not everything is counted: {said}")
    time.sleep(POLL_SECONDS)

"""The topic of window records with its offsets: what the evaluate role reads.

For one thread. The counters' beginning is a set of offsets, so that
whoever reads the topic can add up the same windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stats.kafka_clients import speaking
from stats.record_log import KafkaRecordLog, RecordLog

LAST_RECORDS = 1000  # of a partition, however old they are


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a topic was read.

    Attributes:
        topic_id: of the windows' topic; another id is another log.
        positions: partition -> offset of the next record.
        lag: records in Kafka that were not read, as of the last time it was asked.
    """

    topic_id: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    lag: int = 0


class WindowLog(RecordLog, Protocol):
    """``RecordLog``, and how far it got."""

    def progress(self) -> Progress:
        """Up to the last poll; asks nobody. Raises ``StatsError``."""


class KafkaWindowLog(KafkaRecordLog):
    """The real one: records from a time onwards, and the last ones of each partition at least.

    A range that was begun days ago may grow on: only who knows its last record knows what is new.
    """

    def progress(self) -> Progress:
        """See ``WindowLog``."""
        positions = self._positions()
        lag = sum(max(0, self._ends.get(part, at) - at) for part, at in positions.items())
        return Progress(
            self._described[0], {part.partition: at for part, at in positions.items()}, lag
        )

    def _go_to(self, since: float) -> None:
        super()._go_to(since)
        with speaking():
            begins = self._consumer.beginning_offsets(self._parts, timeout_ms=self._patience)
            ends = self._consumer.end_offsets(self._parts, timeout_ms=self._patience)
            for part in self._parts:
                at = self._consumer.position(part, timeout_ms=self._patience)
                last = max(begins[part], ends[part] - LAST_RECORDS)
                self._consumer.seek(part, min(at, last))

"""Both ends of the fold role in memory, with the ways in which a real Kafka fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contracts.events import EventBatch, encode
from contracts.windows import WindowRecord
from contracts.windows import decode as decode_record
from contracts.windows import encode as encode_record
from measures.merging import MergedWindows
from measures.ranges import PartitionFold
from measures.sequences import Checkpoint
from service.kafka import KafkaAwayError
from stats.errors import LogReplacedError, RecordTooLargeError
from stats.folding.prediction_log import Assignment, LogMessage, Membership, Offsets
from stats.reading.published import Ends

NOWHERE = 10**9


@dataclass
class MemoryKafka:
    """The two topics, and what the group committed."""

    partitions: int = 2
    topic_id: str = "t"
    log: dict[int, list[tuple[float, bytes]]] = field(default_factory=dict)
    beginning: dict[int, int] = field(default_factory=dict)
    committed: dict[int, tuple[str, int]] = field(default_factory=dict)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    written: list[WindowRecord] = field(default_factory=list)
    largest: int = NOWHERE

    def produce(self, partition: int, batch: EventBatch) -> None:
        log = self.log.setdefault(partition, [])
        log.append((1e6 + len(log), encode(batch)))

    def merged(self) -> MergedWindows:
        windows = MergedWindows()
        for record in self.written:
            windows.put(record)
        return windows

    def recounted(self, window_seconds: int) -> MergedWindows:
        """What the whole log says."""
        windows = MergedWindows()
        for partition, messages in self.log.items():
            fold = PartitionFold(self.topic_id, partition, first=0, window_seconds=window_seconds)
            for offset, (time, message) in enumerate(messages):
                for record in fold.take(offset, time, message):
                    windows.put(record)
            growing = fold.growing()
            if growing is not None:
                windows.put(growing)
        return windows


@dataclass
class MemoryLog:
    """One member of the group.

    ``given`` is what the group gives it next, ``fault`` what is wrong with its place in the group.
    One that is ``stalled`` is given no message, whatever comes.
    """

    kafka: MemoryKafka
    given: set[int] | None = None
    most: int = 5
    failing: bool = False
    stalled: bool = False
    fault: str = ""
    closed: bool = False
    _topic_id: str = ""
    _positions: dict[int, int] = field(default_factory=dict)

    def poll(self, seconds: float) -> Sequence[LogMessage] | Assignment:
        if self.failing:
            raise KafkaAwayError("away")
        if self.given is not None:
            mine, self.given = sorted(self.given), None
            self._topic_id = self.kafka.topic_id
            self._positions = dict.fromkeys(mine, NOWHERE)
            return Assignment(self._topic_id, {number: self._offsets(number) for number in mine})
        polled: list[LogMessage] = []
        if self.stalled:
            return polled
        for partition, position in self._positions.items():
            messages = self.kafka.log.get(partition, [])[position : position + self.most]
            self._positions[partition] += len(messages)
            polled += [
                LogMessage(partition, position + number, time, value)
                for number, (time, value) in enumerate(messages)
            ]
        return polled

    def seek(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset

    def commit(self, offsets: Mapping[int, int], checkpoints: Mapping[int, Checkpoint]) -> None:
        if self.failing:
            raise KafkaAwayError("away")
        for partition, offset in offsets.items():
            if partition in self._positions:
                self.kafka.committed[partition] = (self._topic_id, offset)
                self.kafka.checkpoints[partition] = checkpoints[partition]

    def verify(self) -> None:
        if self.kafka.topic_id != self._topic_id:
            raise LogReplacedError("made anew")

    def membership(self) -> Membership:
        spans = {
            number: (self.kafka.beginning.get(number, 0), len(self.kafka.log.get(number, [])))
            for number in self._positions
        }
        return Membership(not self.fault, self.fault, spans)

    def close(self) -> None:
        self.closed = True

    def _offsets(self, partition: int) -> Offsets:
        topic_id, offset = self.kafka.committed.get(partition, ("", 0))
        committed = offset if topic_id == self.kafka.topic_id else None
        return Offsets(
            committed,
            self.kafka.beginning.get(partition, 0),
            self.kafka.checkpoints.get(partition),
        )


@dataclass
class MemorySink:
    """Writes to the memory, or fails after it did, or before."""

    kafka: MemoryKafka
    fails: str = ""
    closed: bool = False

    def write(self, records: Sequence[WindowRecord]) -> None:
        if self.fails == "before":
            raise KafkaAwayError("away")
        for record in records:
            message = encode_record(record)
            if len(message) > self.kafka.largest:
                raise RecordTooLargeError("too large")
            self.kafka.written.append(decode_record(message))
        if self.fails == "after":
            raise KafkaAwayError("no answer")

    def close(self) -> None:
        self.closed = True


@dataclass
class FakePublished:
    """The ends of the event log as a test sets them; or fails with ``error``."""

    told: Ends = field(default_factory=Ends)
    error: Exception | None = None
    closed: bool = False

    def ends(self) -> Ends:
        if self.error is not None:
            raise self.error
        return self.told

    def close(self) -> None:
        self.closed = True

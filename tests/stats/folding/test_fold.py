"""The fold role over a Kafka in memory: whatever fails, the windows are those of a recount."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_kafka import MemoryKafka, MemoryLog, MemorySink
from merged_windows import all_endpoints, all_windows
from prediction_batches import batch_of

from contracts.events import EventBatch
from contracts.windows import RANGE_MESSAGES
from service.kafka import KafkaAwayError, StreamError, TopicMissingError
from stats.errors import LogReplacedError, StalledError
from stats.folding.fold import FoldCounts, Folder, FoldPace, first_range, run
from stats.folding.prediction_log import Assignment, LogMessage, Offsets

PACE = FoldPace(window_seconds=10, write_seconds=0.0, look_seconds=0.0)


@dataclass
class Worker:
    """One process of the role."""

    kafka: MemoryKafka
    counts: FoldCounts = field(default_factory=lambda: FoldCounts(well=0.0))

    def __post_init__(self) -> None:
        self.log = MemoryLog(self.kafka)
        self.sink = MemorySink(self.kafka)
        self.now, self.pauses = 0.0, 0
        self.folder = Folder(
            self.log, self.sink, PACE, self.counts, clock=lambda: self.now, wait=self._pause
        )

    def _pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1

    def until_all(self) -> None:
        for _ in range(200):
            self.folder.step()


def worker_of(kafka: MemoryKafka, *partitions: int) -> Worker:
    worker = Worker(kafka)
    worker.log.given = set(partitions)
    return worker


def fill(kafka: MemoryKafka, messages: int, *, seed: int = 0, events: int = 2) -> None:
    rng = random.Random(seed)
    for sequence in range(messages):
        batch = batch_of(rng, gateway=f"g{seed}", sequence=sequence, events=events)
        kafka.produce(sequence % kafka.partitions, batch)


def agree(kafka: MemoryKafka) -> None:
    merged, recounted = kafka.merged(), kafka.recounted(10)
    assert merged.records() == recounted.records()
    assert {name: all_windows(merged, name) for name in all_endpoints(merged)} == {
        name: all_windows(recounted, name) for name in all_endpoints(recounted)
    }


def test_all_messages_end_up_in_windows() -> None:
    kafka = MemoryKafka()
    fill(kafka, 300)
    worker = worker_of(kafka, 0, 1)
    worker.until_all()
    agree(kafka)
    assert kafka.committed == {0: ("t", 150), 1: ("t", 150)}
    assert worker.counts.lag == {0: 0, 1: 0}


actions = st.lists(
    st.sampled_from(
        ["produce", "step", "step", "swap", "crash", "lose answer", "refuse", "cut off"]
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(doing=actions, seed=st.integers(0, 1000))
def test_whatever_fails_the_windows_are_those_of_a_recount(doing: list[str], seed: int) -> None:
    rng = random.Random(seed)
    kafka = MemoryKafka()
    workers = [worker_of(kafka, 0), worker_of(kafka, 1)]
    for number, action in enumerate(doing):
        at = rng.randrange(2)
        if action == "produce":
            fill(kafka, rng.randint(1, 90), seed=number, events=1)
        elif action == "swap":
            # The old owner does not know yet, and goes on.
            workers[1 - at].log.given = {0, 1}
        elif action == "crash":
            workers[at] = worker_of(kafka, *rng.choice([(0,), (1,), (0, 1)]))
        else:
            workers[at].sink.fails = {"lose answer": "after", "refuse": "before"}.get(action, "")
            workers[at].log.failing = action == "cut off"
            try:
                workers[at].folder.step()
            except StreamError:
                workers[at] = worker_of(kafka, at)
    worker_of(kafka, 0, 1).until_all()
    agree(kafka)


def test_nothing_is_committed_before_it_is_written() -> None:
    kafka = MemoryKafka(partitions=1)
    fill(kafka, 10)
    worker = worker_of(kafka, 0)
    worker.folder.step()
    for fails in ("before", "after"):
        worker.sink.fails = fails
        with pytest.raises(KafkaAwayError):
            worker.folder.step()
        assert kafka.committed == {}


def test_a_topic_made_again_is_noticed_before_anything_is_written() -> None:
    kafka = MemoryKafka(partitions=1)
    fill(kafka, 10)
    worker = worker_of(kafka, 0)
    worker.folder.step()
    kafka.topic_id = "u"
    with pytest.raises(LogReplacedError):
        worker.folder.step()
    assert kafka.written == []
    worker_of(kafka, 0).until_all()
    assert {record.topic_id for record in kafka.written} == {"u"}
    assert kafka.committed == {0: ("u", 10)}


def test_a_commit_of_another_topic_id_means_nothing() -> None:
    kafka = MemoryKafka(partitions=1, committed={0: ("old", 128)})
    fill(kafka, 10)
    worker_of(kafka, 0).until_all()
    agree(kafka)


def test_a_record_that_is_too_large_is_written_without_its_counts_and_told() -> None:
    kafka = MemoryKafka(partitions=2, largest=4000)
    rng = random.Random(0)
    for number in range(RANGE_MESSAGES + 1):
        kafka.produce(0, batch_of(rng, sequence=number))
    kafka.produce(1, EventBatch("g", 999))
    worker = worker_of(kafka, 0, 1)
    worker.log.most = 1000
    worker.until_all()
    assert worker.counts.oversized > 0
    first = kafka.merged().records()[0]
    assert (first.end, first.aggregates) == (RANGE_MESSAGES, [])
    assert kafka.committed == {0: ("t", RANGE_MESSAGES + 1), 1: ("t", 1)}


@pytest.mark.parametrize(
    ("committed", "beginning", "first"),
    [
        (None, 0, 0),
        (None, 70, 64),
        (70, 0, 64),
        (64, 64, 64),
        (64, 70, 64),  # nothing of that range was written yet
        (70, 66, 128),  # what was written of it can't be written again
        (70, 130, 128),
        (64, 200, 192),
    ],
)
def test_a_new_owner_begins_where_nothing_is_lost(
    committed: int | None, beginning: int, first: int
) -> None:
    assert first_range(Offsets(committed, beginning)) == first


def test_messages_deleted_before_they_were_folded_are_counted() -> None:
    kafka = MemoryKafka(partitions=1, committed={0: ("t", 70)}, beginning={0: 130})
    fill(kafka, 140)
    worker = worker_of(kafka, 0)
    worker.until_all()
    assert worker.counts.missing == 60
    assert [(record.start, record.end) for record in kafka.merged().records()] == [(128, 140)]


def test_messages_that_are_no_batches_are_counted() -> None:
    kafka = MemoryKafka(partitions=1)
    kafka.log[0] = [(0.0, b"?")] * RANGE_MESSAGES
    worker = worker_of(kafka, 0)
    worker.until_all()
    assert worker.counts.skipped == RANGE_MESSAGES


def test_the_role_goes_on_after_failures_and_writes_all_when_told_to_stop() -> None:
    kafka = MemoryKafka(partitions=1)
    fill(kafka, 30)
    stop, counts = threading.Event(), FoldCounts()
    made: list[tuple[MemoryLog, MemorySink]] = []

    def connect() -> tuple[MemoryLog, MemorySink]:
        if not made:
            made.append((MemoryLog(kafka, failing=True), MemorySink(kafka)))
        elif len(made) == 1:
            made.append((_Stopping(kafka, given={0}, most=30, stop=stop), MemorySink(kafka)))
        return made[-1]

    run(connect, FoldPace(window_seconds=10, write_seconds=3600.0), counts, stop)
    agree(kafka)
    assert kafka.committed == {0: ("t", 30)}
    assert counts.failures == 1
    assert not counts.connected
    assert all(log.closed and sink.closed for log, sink in made)


def test_a_kafka_without_the_topic_yet_is_there() -> None:
    stop, counts = threading.Event(), FoldCounts()
    seen = []

    def connect() -> tuple[MemoryLog, MemorySink]:
        seen.append(counts.connected)
        if len(seen) == 1:
            raise TopicMissingError("no gateway has made it")
        stop.set()
        raise KafkaAwayError("away")

    run(connect, FoldPace(window_seconds=10), counts, stop)
    assert seen == [False, True]
    assert not counts.connected


def test_messages_that_come_and_are_not_read_end_the_connection() -> None:
    kafka = MemoryKafka()
    worker = worker_of(kafka, 0, 1)
    worker.until_all()
    worker.log.stalled = True
    worker.now = 1000.0
    worker.until_all()  # without traffic nothing stands still
    fill(kafka, 3)
    worker.folder.step()
    worker.now += PACE.stall_seconds - 1
    worker.folder.step()
    worker.now += 1
    with pytest.raises(StalledError, match="wait, and none was read"):
        worker.folder.step()


def test_a_group_that_does_not_hold_the_worker_ends_the_connection_without_traffic_too() -> None:
    worker = worker_of(MemoryKafka(), 0, 1)
    worker.until_all()
    connected = [worker.counts.connected]
    worker.log.fault = "the group does not hold this worker"
    worker.folder.step()
    assert [*connected, worker.counts.connected] == [True, False]
    worker.now += PACE.stall_seconds
    with pytest.raises(StalledError, match="does not hold this worker"):
        worker.folder.step()


def test_an_idle_log_whose_old_messages_were_deleted_does_not_stand_still() -> None:
    kafka = MemoryKafka(partitions=1, committed={0: ("t", 70)})
    fill(kafka, 140)
    kafka.beginning[0] = 140
    worker = worker_of(kafka, 0)
    worker.until_all()
    worker.now += 1000.0
    worker.until_all()
    assert worker.counts.lag == {0: 0}


def test_where_the_worker_is_in_each_of_its_partitions_is_known() -> None:
    kafka = MemoryKafka(partitions=3)
    worker = worker_of(kafka, 0, 2)
    worker.until_all()
    worker.log.stalled = True
    fill(kafka, 9)
    worker.folder.step()
    assert (worker.counts.ends, worker.counts.positions) == ({0: 3, 2: 3}, {0: 0, 2: 0})
    assert worker.counts.lag == {0: 3, 2: 3}
    assert worker.counts.last_read == 0
    stood = worker.counts.well
    worker.now += 10
    worker.folder.step()
    assert worker.counts.well == stood
    worker.log.stalled = False
    worker.until_all()
    assert worker.counts.positions == worker.counts.ends == {0: 3, 2: 3}
    assert worker.counts.last_read > 0
    assert worker.counts.well >= stood + 10


def test_a_client_that_gives_nothing_without_waiting_for_it_does_not_spin() -> None:
    worker = worker_of(MemoryKafka(), 0, 1)
    worker.until_all()
    assert worker.pauses == worker.counts.empty_polls > 100


def test_a_connection_that_stands_still_is_followed_by_one_that_reads() -> None:
    kafka = MemoryKafka(partitions=1)
    fill(kafka, 30)
    stop, counts = threading.Event(), FoldCounts()
    stalled = MemoryLog(kafka, given={0}, stalled=True)
    logs = [stalled, _Stopping(kafka, given={0}, most=30, stop=stop)]

    def connect() -> tuple[MemoryLog, MemorySink]:
        return logs.pop(0), MemorySink(kafka)

    at_once = FoldPace(window_seconds=10, look_seconds=0.0, stall_seconds=0.0)
    run(connect, at_once, counts, stop)
    agree(kafka)
    assert kafka.committed == {0: ("t", 30)}
    assert (counts.stalls, counts.failures, stalled.closed) == (1, 1, True)


@dataclass
class _Stopping(MemoryLog):
    """Tells the role to stop as soon as all was polled."""

    stop: threading.Event = field(default_factory=threading.Event)

    def poll(self, seconds: float) -> Sequence[LogMessage] | Assignment:
        polled = super().poll(seconds)
        if not isinstance(polled, Assignment):
            self.stop.set()
        return polled

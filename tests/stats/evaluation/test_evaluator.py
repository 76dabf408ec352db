"""The evaluate role beside a Kafka that comes, goes, and tells things twice."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_kafka import FakePublished
from registry_fakes import endpoint, ref

from contracts import metrics
from contracts.endpoint import Arm, EndpointStatus, Route
from contracts.windows import WindowAggregate, WindowRecord, encode
from measures.counting import CountingState
from service.kafka import KafkaAwayError, StreamError, TopicMissingError
from stats.errors import StalledError
from stats.evaluation.calibration_store import CalibrationFile
from stats.evaluation.drift import DriftSettings
from stats.evaluation.evaluation import Evaluation, WindowTiming
from stats.evaluation.evaluator import EvaluatePace, Evaluator
from stats.evaluation.references import StoredPackage
from stats.reading.published import Ends
from stats.reading.record_log import ReadProgress

NOW = 1_000_100.0
ON = endpoint(EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=ref("1", "a"), weight=100),)))
DAY = 86_400.0


def record(count: int, *, start: int = 0, end: int = 1) -> bytes:
    aggregate = WindowAggregate(
        "e", "1", "a" * 64, Arm.STABLE, 1_000_000, statuses={200: count}, texts=count
    )
    return encode(
        WindowRecord("t", 0, start, start + end, 0.0, 0, through=NOW, aggregates=[aggregate])
    )


class Nothing:
    def of(self, package: str) -> StoredPackage | None:
        return StoredPackage(None)


@dataclass
class FakeLog:
    """A topic that the test fills; what a poll gave has been taken once the next poll begins."""

    messages: list[bytes] = field(default_factory=list)
    error: Exception | None = None
    topic_id: str = "windows"
    at: int = 0
    stalled: bool = False
    polls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False

    def poll(self, seconds: float) -> Sequence[bytes]:
        self.polls.release()
        if self.error is not None:
            raise self.error
        given, self.messages = self.messages, []
        if not given:
            threading.Event().wait(0.001)
        self.at += len(given)
        return given

    def list_unread(self) -> set[int]:
        if self.stalled:
            raise StalledError("records wait, and none was read")
        return set()

    def progress(self) -> ReadProgress:
        return ReadProgress(self.topic_id, {0: self.at}, lag=0)

    def close(self) -> None:
        self.closed = True

    def give(self, *messages: bytes) -> None:
        """Waits until they were taken."""
        self.messages = [*messages]
        self.turns()

    def turns(self, count: int = 3) -> None:
        while self.polls.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.polls.acquire(timeout=60)


@dataclass
class World:
    """Kafka as it is at each connection, in order; the last one stays."""

    logs: list[FakeLog | StreamError]
    now: float = NOW
    since: list[float] = field(default_factory=list)
    connected: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    broken: threading.Event = field(default_factory=threading.Event)
    published: FakePublished = field(default_factory=FakePublished)

    def connect(self, since: float) -> FakeLog:
        self.since.append(since)
        found = self.logs[0] if len(self.logs) == 1 else self.logs.pop(0)
        self.connected.release()
        if isinstance(found, StreamError):
            raise found
        return found

    def evaluator(self) -> Evaluator:
        return Evaluator(
            Evaluation(Nothing(), DriftSettings(), WindowTiming()),
            self.connect,
            self.published,
            lambda: [ON],
            CalibrationFile(None),
            false_alarm_seconds=DAY,
            pace=EvaluatePace(look_seconds=0, check_seconds=0, answer_seconds=15),
            clock=lambda: self.now,
        )


Start = Callable[[World], Evaluator]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Evaluator] = []

    def begin(world: World) -> Evaluator:
        started.append(world.evaluator())
        started[-1].start(on_fault=world.broken.set)
        return started[-1]

    yield begin
    for one in started:
        one.close()


def attempts(evaluator: Evaluator) -> float:
    (family,) = (f for f in evaluator.families() if f.name == metrics.ATTEMPTS.family)
    return sum(sample.value for sample in family.samples)


def health(evaluator: Evaluator, metric: metrics.Metric) -> float:
    (family,) = (f for f in evaluator.families() if f.name == metric.family)
    return family.samples[0].value


def test_what_was_there_before_is_shown_and_not_counted(start: Start) -> None:
    log = FakeLog([record(5), record(7, start=64)])
    evaluator = start(World([log]))
    log.turns()
    assert evaluator.ready()
    assert attempts(evaluator) == 0
    assert evaluator.counters()["began"] == {0: 2}
    log.give(record(9, end=2), record(1, start=128))
    assert attempts(evaluator) == 5  # 9 - 5 of a range that grew, and 1
    told: dict[str, Any] = evaluator.counters()
    assert (told["read"], told["topic_id"]) == ({0: 4}, "windows")
    assert told["arms"][0]["statuses"]["200"] == 5


def test_where_nothing_was_ever_folded_everything_is_counted(start: Start) -> None:
    log = FakeLog()
    world = World([TopicMissingError("not yet"), log])
    evaluator = start(world)
    for _ in range(2):
        assert world.connected.acquire(timeout=60)
    log.give(record(5))
    assert attempts(evaluator) == 5
    assert evaluator.counters()["began"] == {}


def test_kafka_away_and_back_again_counts_nothing_twice(start: Start) -> None:
    first, second = FakeLog(), FakeLog()
    world = World([first, KafkaAwayError("away"), second])
    evaluator = start(world)
    first.turns()
    first.give(record(5))
    first.error = KafkaAwayError("away")
    for _ in range(3):
        assert world.connected.acquire(timeout=60)
    assert first.closed
    second.give(record(5), record(6, end=2))
    assert attempts(evaluator) == 6
    assert health(evaluator, metrics.EVALUATE_FAILURES) == 2
    # All of the past at the start, then only what came since it was last known.
    assert world.since == [NOW - DAY, NOW - 120, NOW - 120]


def test_a_connection_that_stands_still_is_followed_by_one_that_reads(start: Start) -> None:
    first, second = FakeLog(), FakeLog()
    evaluator = start(World([first, second]))
    first.turns()
    first.give(record(5))
    first.stalled = True
    second.give(record(5), record(6, end=2))
    assert attempts(evaluator) == 6
    assert health(evaluator, metrics.EVALUATE_FAILURES) == 1
    assert first.closed


def test_a_topic_made_again_is_read_on_and_said_to_be_another_log(start: Start) -> None:
    first, second = FakeLog(), FakeLog(topic_id="another")
    evaluator = start(World([first, second]))
    first.turns()
    first.give(record(5))
    first.error = KafkaAwayError("made again")
    second.give(record(3, start=64))
    assert attempts(evaluator) == 8
    assert evaluator.counters()["began"] is None


def test_what_is_no_record_is_counted_and_survived(start: Start) -> None:
    log = FakeLog()
    evaluator = start(World([log]))
    log.turns()
    unknown = record(5).replace(b'"schema_version":2', b'"schema_version":9')
    log.give(b"\x00poison", unknown, record(2))
    assert health(evaluator, metrics.EVALUATE_SKIPPED) == 2
    assert attempts(evaluator) == 2


@pytest.mark.slow
def test_a_silent_kafka_is_told_on_the_board(start: Start) -> None:
    log = FakeLog()
    world = World([log, KafkaAwayError("away")])
    evaluator = start(world)
    log.turns()
    assert evaluator.board().connected
    log.error = KafkaAwayError("away")
    for _ in range(2):
        assert world.connected.acquire(timeout=60)
    world.now += 16
    assert world.connected.acquire(timeout=60)
    assert world.connected.acquire(timeout=60)
    assert not evaluator.board().connected


def test_the_board_shows_windows_of_the_past_once_it_was_read(start: Start) -> None:
    log = FakeLog([record(5)])
    evaluator = start(World([log]))
    log.turns(6)
    (series,) = evaluator.board().series("e")
    assert [window.aggregate().texts for window in series.windows] == [5]


def test_a_fault_of_ours_ends_the_role_and_is_told(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog([record(5)])
    world = World([log])
    evaluator = start(world)
    log.turns()
    assert not evaluator.is_broken()
    log.error = ArithmeticError("nothing that the role knows how to survive")
    assert world.broken.wait(timeout=60)
    assert evaluator.is_broken()
    assert log.closed
    assert "the evaluate role broke" in caplog.text


def test_traffic_that_nobody_folds_is_told_though_kafka_answers(start: Start) -> None:
    log = FakeLog([record(5, end=4)])
    world = World([log])
    world.published.told = Ends("t", {0: 4, 1: 0})
    evaluator = start(world)
    log.turns()
    assert evaluator.counting().state is CountingState.COUNTED
    for _ in range(10):  # gateways go on publishing
        world.now += 2
        world.published.told = Ends("t", {0: 40 + int(world.now - NOW), 1: 0})
        log.turns()
    found = evaluator.counting()
    assert (found.state, found.since, found.messages) == (CountingState.STALLED, NOW + 2, 56)
    assert evaluator.board().counting == found
    log.give(record(6, end=60))
    assert evaluator.counting().state is CountingState.COUNTED


def test_a_kafka_that_does_not_tell_its_ends_is_not_known_to_be_counted(start: Start) -> None:
    log = FakeLog([record(5)])
    world = World([log])
    world.published.error = KafkaAwayError("away")
    evaluator = start(world)
    world.now += 16
    log.turns()
    assert evaluator.counting().state is CountingState.UNKNOWN
    assert evaluator.counting().since == NOW


def test_a_reading_thread_that_stands_still_knows_nothing_of_counting(start: Start) -> None:
    log = FakeLog([record(5, end=4)])
    world = World([log])
    world.published.told = Ends("t", {0: 4})
    evaluator = start(world)
    log.turns()
    evaluator.close()
    assert world.published.closed
    world.now += 100
    assert evaluator.counting().state is CountingState.UNKNOWN
    assert evaluator.stood_still_seconds() == 100

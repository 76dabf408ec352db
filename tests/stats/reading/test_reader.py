"""What the controller is told of windows, and when it is told that nobody knows."""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from memory_kafka import FakePublished

from contracts.endpoint import Arm
from contracts.windows import EndpointWindow, WindowAggregate, WindowRecord, decode, encode
from measures.counting import CountingState
from measures.dividing import COMMON, divide, partition_of
from service.kafka import KafkaAwayError, TopicMissingError
from stats.errors import StalledError
from stats.reading.published import Ends
from stats.reading.reader import ReaderPace, WindowsReader

pytestmark = pytest.mark.slow

PACE = ReaderPace(lateness_seconds=5.0, keep_seconds=3600.0, answer_seconds=15.0)
NOW = 10_000.0


def record(
    start: int,
    *aggregates: tuple[int, int],
    end: int = 0,
    partition: int = 0,
    through: float = NOW,
    endpoint: str = "e",
) -> bytes:
    """A record whose aggregates have so many requests in the window that starts at."""
    made = [
        WindowAggregate(endpoint, "1", "p", Arm.STABLE, at, statuses={200: count})
        for at, count in aggregates
    ]
    return encode(
        WindowRecord(
            "t", partition, start, end or start + 1, 0.0, 0, through=through, aggregates=made
        )
    )


def pieces_of(message: bytes, pieces: int = 8) -> list[bytes]:
    return [encode(piece) for piece in divide(decode(message), pieces)]


@dataclass
class FakeLog:
    """A topic that the test fills. Each poll returns what is there, and tells that it did."""

    messages: list[bytes] = field(default_factory=list)
    error: Exception | None = None
    unread: set[int] = field(default_factory=set)
    stalled: bool = False
    partitions: int = 1
    rewound: list[tuple[set[int], float, set[int]]] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def poll(self, seconds: float) -> Sequence[bytes]:
        self.go_on.acquire(timeout=seconds)
        if self.error is not None:
            raise self.error
        messages, self.messages = self.messages, []
        return messages

    def rewind(
        self, partitions: Collection[int], since: float, *, keep: Collection[int] = ()
    ) -> None:
        self.rewound.append((set(partitions), since, set(keep)))

    def list_unread(self) -> set[int]:
        self.asked.release()
        if self.stalled:
            raise StalledError("records wait, and none was read")
        return self.unread

    def close(self) -> None:
        self.closed.set()


@dataclass
class World:
    """A reader, its log and its clock."""

    now: float = NOW
    refusing: bool = False
    missing: bool = False
    between: Callable[[], object] = lambda: None
    tried: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.published = FakePublished()
        self.reader = WindowsReader(
            self._connect,
            self.published,
            pace=PACE,
            clock=lambda: self.now,
            between=lambda: self.between(),  # noqa: PLW0108 - a test puts another one there
        )
        self.log = FakeLog()
        self.reader.windows("e", 0.0)  # somebody asks for it

    def _connect(self) -> FakeLog:
        self.tried.release()
        if self.refusing:
            raise TopicMissingError("none") if self.missing else KafkaAwayError("away")
        return self.log

    def read(self, *messages: bytes) -> None:
        """Returns when the reader has taken these and asked whether that is all."""
        self.log.messages = [*self.log.messages, *messages]
        self.now += PACE.check_seconds
        # A question may have been under way: the second one is after these were taken.
        for _ in range(2):
            while self.log.asked.acquire(blocking=False):
                pass
            self.now += PACE.check_seconds
            self.log.go_on.release()
            assert self.log.asked.acquire(timeout=60)
        # It has been told to the reader once the next poll begins.
        self.until(lambda: not self.log.messages)

    def until(self, what: Callable[[], bool]) -> None:
        tick = threading.Event()
        for _ in range(3000):
            if what():
                return
            tick.wait(0.02)
        raise AssertionError("it never came to be")

    def counts(self, after: float = 0.0) -> list[tuple[int, int]] | None:
        found = self.reader.windows("e", after)
        return None if found is None else [(w.start, requests_of(w)) for w in found]


def requests_of(window: EndpointWindow) -> int:
    return sum(sum(aggregate.statuses.values()) for aggregate in window.aggregates)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.reader.close()


def test_closed_windows_are_told_oldest_first(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3), (9_960, 2)), record(64, (9_980, 1), partition=1))
    world.until(lambda: world.counts() == [(9_960, 2), (9_980, 4)])
    assert world.counts(after=9_970) == [(9_980, 4)]
    assert world.reader.windows("another", 0.0) is None
    world.until(lambda: len(world.log.rewound) > 1)
    world.read()
    world.until(lambda: world.reader.windows("another", 0.0) == ())


def test_only_partitions_of_endpoints_that_are_asked_for_are_read(world: World) -> None:
    world.log.partitions = 8
    mine, other = partition_of("e", 8), partition_of("sentiment", 8)
    world.reader.start()
    first = pieces_of(record(0, (9_980, 3)))
    world.read(*first, *pieces_of(record(0, (9_980, 9), endpoint="sentiment")))
    world.until(lambda: world.counts() == [(9_980, 3)])
    assert [(parts, keep) for parts, _, keep in world.log.rewound] == [
        ({COMMON, mine}, {COMMON, mine})
    ]
    assert world.log.rewound[0][1] <= NOW - PACE.keep_seconds
    world.reader.windows("sentiment", 0.0)
    world.until(lambda: len(world.log.rewound) > 1)
    assert world.log.rewound[1][::2] == ({other}, {COMMON, mine, other})
    old = record(0, (9_000, 9), through=NOW - 500, endpoint="sentiment")
    world.read(pieces_of(old)[other])
    world.until(lambda: len(world.reader.windows("sentiment", 0.0) or ()) == 1)
    assert world.counts() == [(9_980, 3)]  # what was closed of others stays so


def test_an_endpoint_that_nobody_asks_for_any_more_is_not_read(world: World) -> None:
    world.log.partitions = 8
    world.reader.start()
    world.read(*pieces_of(record(0, (9_980, 3))))
    world.reader.windows("sentiment", 0.0)
    world.until(lambda: len(world.log.rewound) > 1)
    world.now += PACE.keep_seconds - 1
    world.counts()
    world.now += 2
    world.read()
    world.until(lambda: len(world.log.rewound) > 2)
    assert world.log.rewound[2][::2] == (set(), {COMMON, partition_of("e", 8)})


def test_after_partitions_were_added_an_endpoint_is_read_where_it_was_too(world: World) -> None:
    world.log.partitions = 8
    before, after = partition_of("e", 8), partition_of("e", 11)
    assert before != after
    world.reader.start()
    world.read(*pieces_of(record(0, (9_980, 3))))
    broken, world.log = world.log, FakeLog(partitions=11)
    broken.error = KafkaAwayError("the topic is not what it was")
    world.until(lambda: bool(world.log.rewound))
    assert world.log.rewound[0][0] == {COMMON, before, after}
    again = pieces_of(record(0, (9_980, 3)), 11)
    world.read(*again, *pieces_of(record(64, (9_980, 1)), 11))
    world.until(lambda: world.counts() == [(9_980, 4)])


def test_a_window_that_may_still_grow_is_not_told(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3), (9_990, 2)))
    world.until(lambda: world.counts() == [(9_980, 3)])
    world.read(record(64, through=NOW + 5.0))
    world.until(lambda: world.counts() == [(9_980, 3), (9_990, 2)])


def test_whoever_asks_is_answered_between_two_records(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_900, 1)))
    answers: list[int | None] = []

    def ask() -> None:  # in the thread that takes records: it would wait for itself
        found = world.reader.windows("e", 0.0)
        answers.append(None if found is None else len(found))
        assert world.reader.counting().state is not None

    world.between = ask
    world.read(*(record(64 * number, (9_900 + 10 * number, 1)) for number in range(1, 6)))
    assert answers == [2, 3, 4, 5, 6]


def test_an_endpoint_whose_requests_take_long_waits_longer(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    world.until(lambda: world.counts() == [(9_980, 3)])
    assert world.reader.windows("e", 0.0, lateness_seconds=11.0) == ()


@pytest.mark.parametrize(("through", "number"), [(9_994.5, 0), (9_995.0, 1), (NOW + 60, 1)])
def test_windows_are_closed_up_to_when_it_says_so(
    world: World, through: float, number: int
) -> None:
    world.reader.start()
    assert world.reader.closed_through("e", 5.0) < 0
    world.read(record(0, (9_980, 3), through=through))
    world.until(lambda: world.counts() is not None)
    assert len(world.counts() or ()) == number
    assert world.reader.closed_through("e", 5.0) == min(through, world.now) - 5.0
    assert (world.reader.closed_through("e", 5.0) >= 9_980 + 10) == bool(number)


def test_nothing_is_known_before_all_was_read(world: World) -> None:
    assert world.counts() is None
    world.log.unread = {COMMON}
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    assert world.counts() is None
    world.log.unread = set()
    world.read()
    world.until(lambda: world.counts() == [(9_980, 3)])


def test_a_silent_kafka_means_unknown_and_not_no_traffic(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    world.until(lambda: world.counts() is not None)
    world.log.unread = {COMMON}
    world.now += PACE.answer_seconds + PACE.check_seconds + 1.0
    assert world.counts() is None


def test_after_an_error_it_reads_again_and_keeps_what_it_had(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    broken, world.refusing = world.log, True
    broken.error = KafkaAwayError("gone")
    assert broken.closed.wait(60)
    world.log = FakeLog()
    world.refusing = False
    world.read(record(64, (9_980, 1)))
    world.until(lambda: world.counts() == [(9_980, 4)])
    assert all(since < NOW - PACE.keep_seconds + 100 for _, since, _ in world.log.rewound)


def test_a_connection_that_stands_still_is_followed_by_one_that_reads(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    still, world.log = world.log, FakeLog()
    still.stalled = True
    world.now += PACE.check_seconds
    assert still.closed.wait(60)
    world.read(record(64, (9_980, 1)))
    world.until(lambda: world.counts() == [(9_980, 4)])


def test_after_a_fault_of_ours_nothing_is_known_until_all_was_read_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3)))
    world.until(lambda: world.counts() is not None)
    broken, world.log = world.log, FakeLog(unread={COMMON})
    broken.error = ArithmeticError("nothing that the reader knows how to survive")
    assert broken.closed.wait(60)
    world.until(lambda: world.counts() is None)
    world.log.unread = set()
    world.read(record(0, (9_980, 7)))
    world.until(lambda: world.counts() == [(9_980, 7)])
    assert "it begins again" in caplog.text


def test_what_is_no_record_is_passed(world: World) -> None:
    world.reader.start()
    strange = [b"", b'{"schema_version": 9}', record(0, (9_980, 1)).replace(b'"events"', b'"x"')]
    world.read(*strange, record(64, (9_980, 3)))
    world.until(lambda: world.counts() == [(9_980, 3)])


def test_windows_older_than_what_is_kept_are_not_told(world: World) -> None:
    world.reader.start()
    world.read(record(0, (9_980, 3), (9_990, 1), through=NOW + 100))
    world.until(lambda: world.counts() is not None)
    world.now = 9_981 + PACE.keep_seconds  # and a few seconds more by reading
    world.read(record(64, through=world.now))
    world.until(lambda: world.counts() == [(9_990, 1)])


def test_closing_ends_the_thread_and_the_connection(world: World) -> None:
    world.reader.start()
    world.read()
    world.reader.close()
    assert world.log.closed.is_set()


def test_traffic_that_nobody_folds_is_told_beside_windows_that_are_known(world: World) -> None:
    world.published.told = Ends("t", {0: 5})
    world.reader.start()
    world.read(record(0, (9_980, 3), end=5))
    world.until(lambda: world.reader.counting().state is CountingState.COUNTED)
    for more in range(1, 8):
        world.published.told = Ends("t", {0: 5 + more})
        world.read()
    world.until(lambda: world.reader.counting().state is CountingState.STALLED)
    assert world.counts() is not None


def test_a_topic_of_windows_that_nobody_ever_made_is_a_standstill_too(world: World) -> None:
    world.refusing = True
    world.missing = True
    world.reader.start()
    for more in range(12):
        world.published.told = Ends("t", {0: more})
        world.now += 10
        assert world.tried.acquire(timeout=60)
        if world.reader.counting().state is CountingState.STALLED:
            return
    raise AssertionError("it was never told")


def test_a_fault_in_asking_ends_no_reading(world: World) -> None:
    world.refusing = True
    world.published.error = ValueError("a fault of ours")
    world.reader.start()
    for _ in range(2):
        assert world.tried.acquire(timeout=60)
    world.refusing, world.published.error = False, None
    world.read(record(0, (9_980, 3)))
    world.until(lambda: world.counts() == [(9_980, 3)])


@dataclass
class DividedLog(FakeLog):
    """Partitions that are kept, of which a reader gets what it assigned and did not read yet."""

    kept: dict[int, list[bytes]] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    def write(self, message: bytes, pieces: int) -> None:
        for number, piece in enumerate(pieces_of(message, pieces)):
            self.kept.setdefault(number, []).append(piece)

    def poll(self, seconds: float) -> Sequence[bytes]:
        super().poll(seconds)
        found = [one for part, at in self.places.items() for one in self.kept.get(part, [])[at:]]
        self.places = {part: len(self.kept.get(part, [])) for part in self.places}
        return found

    def rewind(
        self, partitions: Collection[int], since: float, *, keep: Collection[int] = ()
    ) -> None:
        if any(part >= self.partitions for part in partitions):
            raise KafkaAwayError("no such partition")
        super().rewind(partitions, since, keep=keep)
        kept = {part: at for part, at in self.places.items() if part in keep}
        self.places = kept | dict.fromkeys(partitions, 0)


def test_a_reader_that_begins_after_partitions_were_added_reads_what_was_before(
    world: World,
) -> None:
    world.log = log = DividedLog(partitions=11)
    assert partition_of("e", 8) != partition_of("e", 11)
    log.write(record(0, (9_980, 3), end=64), 8)
    log.write(record(64, (9_980, 1)), 11)
    world.reader.start()
    world.read()
    world.until(lambda: world.counts() is not None)
    assert world.counts() == [(9_980, 4)]


def test_a_window_is_open_while_a_part_of_it_lies_where_nobody_reads_yet(world: World) -> None:
    world.log = log = DividedLog(partitions=8)
    assert partition_of("e", 16) >= 8
    for partition in (0, 1):
        log.write(record(0, (9_980, 3), partition=partition, through=9_984.0), 8)
    world.reader.start()
    world.read()
    world.until(lambda: world.counts() == [])
    log.write(record(0, (9_980, 5), partition=1, end=2), 16)  # its worker knows of the new ones
    log.write(record(0, (9_980, 3), end=2), 8)
    world.read()
    assert world.counts() == []
    broken, world.log = log, DividedLog(partitions=16, kept=log.kept)
    broken.error = KafkaAwayError("the topic is not what it was")
    world.until(lambda: bool(world.log.rewound))
    world.read()
    world.until(lambda: world.counts() == [(9_980, 8)])


def test_a_topic_that_was_made_again_with_fewer_partitions_is_read(world: World) -> None:
    world.log = log = DividedLog(partitions=8)
    log.write(record(0, (9_980, 3)), 8)
    world.reader.start()
    world.read()
    world.until(lambda: world.counts() == [(9_980, 3)])
    assert partition_of("e", 8) >= 2
    broken, world.log = log, DividedLog(partitions=2)
    world.log.write(record(64, (9_980, 1)), 2)
    broken.error = KafkaAwayError("the topic is not what it was")
    assert broken.closed.wait(60)
    world.read()
    world.until(lambda: world.counts() == [(9_980, 4)])


def names_in(partition: int, number: int) -> list[str]:
    """Endpoints that lie in a partition of eight, which is not the one of "e"."""
    names = (f"other-{n}" for n in range(1000))
    return [name for name in names if partition_of(name, 8) == partition][:number]


def test_endpoints_that_are_asked_for_one_by_one_never_keep_it_from_the_end(world: World) -> None:
    world.log.partitions = 8
    world.reader.start()
    world.read(*pieces_of(record(0, (9_980, 3))))
    world.log.unread = {5}
    others = names_in(5, 4)
    for other in others:
        world.reader.windows(other, 0.0)
        world.read()
    assert len(world.log.rewound) == 2
    world.log.unread = set()
    world.read()
    world.until(lambda: len(world.log.rewound) == 3)
    world.read()
    world.until(lambda: world.reader.windows(others[-1], 0.0) == ())


def test_a_partition_that_is_read_again_for_long_holds_no_endpoint_of_another(
    world: World,
) -> None:
    world.log.partitions = 8
    mine = partition_of("e", 8)
    (slow,), (quick,) = names_in(5, 1), names_in(6, 1)
    assert len({COMMON, mine, 5, 6}) == 4
    world.reader.start()
    world.log.unread = {5}
    world.reader.windows(slow, 0.0)
    world.read(*pieces_of(record(0, (9_980, 3))))
    world.reader.windows(quick, 0.0)
    for _ in range(10):  # longer than an answer may take
        world.read()
    assert world.now > NOW + 2 * PACE.answer_seconds
    assert world.counts() == [(9_980, 3)]
    assert world.reader.windows(quick, 0.0) == ()
    assert world.reader.windows(slow, 0.0) is None


def test_what_is_known_stays_so_while_the_first_partition_is_read_again(world: World) -> None:
    world.log.partitions = 8
    (common,) = names_in(COMMON, 1)
    world.reader.start()
    world.read(*pieces_of(record(0, (9_980, 3))))
    world.log.unread = {COMMON}
    world.reader.windows(common, 0.0)
    for _ in range(10):
        world.read()
    assert world.counts() == [(9_980, 3)]


def undivided(message: bytes) -> bytes:
    """As release 0.1.0 wrote it."""
    found = json.loads(message)
    del found["piece"], found["pieces"]
    return json.dumps(found | {"schema_version": 1}).encode()


def test_records_of_an_older_release_are_read_wherever_they_lie(world: World) -> None:
    world.log = log = DividedLog(partitions=8)
    for partition in range(2):
        written = undivided(record(0, (9_980, 3), partition=partition))
        log.kept.setdefault(partition, []).append(written)
    assert partition_of("e", 8) > 1
    world.reader.start()
    world.read()
    world.until(lambda: world.counts() is not None)
    assert world.counts() == [(9_980, 6)]
    log.write(record(0, (9_980, 5), partition=1, end=2), 8)  # the range goes on, divided
    world.read()
    world.until(lambda: world.counts() == [(9_980, 8)])


def test_pieces_of_others_are_read_without_a_pause(world: World) -> None:
    paused: list[None] = []
    world.between = lambda: paused.append(None)
    world.log.partitions = 8
    world.reader.start()
    world.read(*pieces_of(record(0, (9_980, 3))))
    assert len(paused) == 1

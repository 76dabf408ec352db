"""The evaluate role: a member of a group that divides the endpoints, and lets itself be read.

A thread of its own reads Kafka and owns the ``Evaluation``; the page takes the newest board, which
never changes, and a scrape takes what the counters stand at between two steps. Kafka being away, or
killed, ends nothing. With each assignment it begins from what Kafka holds of its endpoints, and
tells what it knew until it has caught up. It tells of no endpoint that may be another's: not while
the broker has not said for a session's time that this is a member.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
from prometheus_client.core import Metric as Family

from contracts.backoff import Backoff
from contracts.endpoint import ModelEndpoint
from contracts.events import UnknownSchemaError
from contracts.windows import head
from measures.counting import CountingState, CountingStatus
from measures.dividing import COMMON, names_in, partition_of
from measures.losses import MessageLosses
from service.kafka import StreamError, TopicMissingError
from stats.evaluation.board import Board
from stats.evaluation.evaluation import Evaluation
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.known import EndpointState, PartitionState, Place
from stats.evaluation.packing import pack, unpack
from stats.reading.group import Membership
from stats.reading.published import EventCountCheck, EventLogEnds
from stats.reading.record_log import largest
from stats.reading.stall import ReadingSnapshot, Stall, look_on
from stats.reading.window_group import OwnPartitions, WindowGroup, WindowMessage

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_SAVE_SECONDS = 0.5  # of one step, for states: a group's member must poll
_HAND_OVER_SECONDS = 5.0
_PAUSES = Backoff(0.2, 5.0)


@dataclass(frozen=True, slots=True)
class EvaluatePace:
    """How often what is done, in seconds.

    Attributes:
        look_seconds: between two looks at windows and drift.
        check_seconds: between two questions to Kafka whether there is more.
        answer_seconds: without an answer of Kafka for this time, it counts as away.
        tell_seconds: for this time after the broker called this a member, endpoints are told of.
        save_seconds: between two times that the states of endpoints that changed are written.
    """

    look_seconds: float = 1.0
    check_seconds: float = 2.0
    answer_seconds: float = 15.0
    tell_seconds: float = 7.5
    save_seconds: float = 30.0


@dataclass(slots=True)
class _Held:
    """An assignment, and what follows from it."""

    evaluation: Evaluation
    own: OwnPartitions = field(default_factory=lambda: OwnPartitions("", {}, 1, {}, {}))
    read: dict[int, int] = field(default_factory=dict)
    began: dict[int, int] | None = field(default_factory=dict)  # None: offsets of others count too
    due: list[str] = field(default_factory=list)  # endpoints whose states are being written
    due_read: dict[int, int] | None = None  # and up to where they hold all


class Evaluator:
    """Start it once, close it once."""

    def __init__(
        self,
        begin: Callable[[int], Evaluation],
        connect: Callable[[Callable[[WindowGroup], None]], WindowGroup],
        published: EventLogEnds,
        endpoints: Callable[[], Sequence[ModelEndpoint]],
        *,
        false_alarm_seconds: float,
        pace: EvaluatePace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Takes its parts; connects in its own thread, as often as it must.

        Args:
            begin: an evaluation that knows nothing, of so many partitions.
            connect: joins the group, with what is to be called before others may get our
                partitions; raises ``StreamError``.
            published: knows how much there is to be counted; this object closes it.
            endpoints: as stored now.
            false_alarm_seconds: expected time between false alarms, to be told.
            pace: how often what is done.
            clock: unix seconds.
        """
        self._begin_evaluation = begin
        self._connect = connect
        self._endpoints = endpoints
        self._false_alarm_seconds = false_alarm_seconds
        self._pace = pace or EvaluatePace()
        self._clock = clock
        self._counted = EventCountCheck(published, clock())  # only the reading thread's
        self._lock = threading.Lock()  # of what is held, what is coming, and the health
        self._held = _Held(begin(1))  # what is told of
        self._coming: _Held | None = None  # what will be once it has caught up
        self._instance = uuid.uuid4().hex
        self._health = RoleHealth()
        self._board = Board()
        self._answered_at = 0.0  # Kafka, unix seconds
        self._member_at = 0.0  # and when it was asked that said that this is a member
        self._stall = Stall()
        self._ends: Mapping[int, int] = {}  # of our partitions, as Kafka said last
        self._check_at = 0.0
        self._away = False
        self._look_at = 0.0
        self._save_at = clock() + self._pace.save_seconds
        self._stop = threading.Event()
        self._broken = False
        self._thread = threading.Thread(target=self._run_guarded, name="evaluate", daemon=True)
        self._on_fault: Callable[[], None] = lambda: None

    def start(self, on_fault: Callable[[], None]) -> None:
        """Begins to read; ``on_fault`` is called if a fault of ours ends that for good."""
        self._on_fault = on_fault
        self._thread.start()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Stops reading, once states are written."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def board(self) -> Board:
        """The newest one, of the endpoints that this process has."""
        return self._board

    def families(self) -> list[Family]:
        """All metrics as they are now; of endpoints, only those that are no other's."""
        with self._lock:
            now, evaluation = self._clock(), self._held.evaluation
            board, own = self._board, self._held.own
            own_board = {k: one for k, one in board.by_endpoint.items() if self._tells(k)}
            exposed = ExpositionSnapshot(
                totals=evaluation.totals,
                arms=[key for key in evaluation.arms(now) if self._tells(key.endpoint)],
                refusals={k: o for k, o in evaluation.refusals(now).items() if self._tells(k)},
                board=replace(board, by_endpoint=own_board),
                health=self._health,
                counting=self.counting(),
                lost=evaluation.lost,
                partitions=(len(own.offsets) if self._may_tell() else 0, own.count),
                has_common=self._tells_common(),
                false_alarm_seconds=self._false_alarm_seconds,
            )
            return list(families(exposed))

    def counters(self) -> dict[str, Any]:
        """Where the counters stand, and between which offsets they counted: to be recounted.

        They are what the largest piece of each range before the offsets ``read`` adds to the
        largest before ``began``, partition by partition, but for the ``forgotten`` arms and
        endpoints that made room for others. ``began`` is null if the topic was made again since, or
        endpoints moved when partitions were added.
        """
        with self._lock:
            held, totals = self._held, self._held.evaluation.totals
            arms = [
                {
                    "endpoint": key.endpoint,
                    "version": key.version,
                    "arm": key.arm.value,
                    **msgspec.to_builtins(arm, str_keys=True),
                }
                for key, arm in totals.arms.items()
            ]
            return {
                "instance": self._instance,
                "topic_id": held.own.topic_id,
                "partitions": held.own.count,
                "since": held.evaluation.since,
                "began": held.began if held.evaluation.since else None,
                "read": dict(held.read),
                "arms": arms,
                "refusals": {name: dict(counts) for name, counts in totals.refusals.items()},
                "skipped": totals.skipped,
                "copies": totals.copies,
                "mistimed": totals.mistimed,
                "overflow": dict(totals.overflow),
                "forgotten": totals.forgotten,
            }

    def ready(self) -> bool:
        """Whether all that there was is read, so that what is shown is whole."""
        return self._held.evaluation.since > 0

    def counting(self) -> CountingStatus:
        """Whether traffic is counted now; not known if the reading itself has stood still."""
        board = self._board
        if self._clock() - board.at > self._pace.answer_seconds:
            return CountingStatus(CountingState.UNKNOWN, board.at)
        return board.counting

    def losses(self) -> MessageLosses:
        """What gateways sent and is not in the log, since the counters began."""
        with self._lock:
            return self._held.evaluation.lost

    def stood_still_seconds(self) -> float:
        """How long ago the reading thread last looked at anything; 0 before its first look."""
        at = self._board.at
        return max(0.0, self._clock() - at) if at else 0.0

    def is_broken(self) -> bool:
        """Whether a fault of ours ended the reading."""
        return self._broken

    def _run_guarded(self) -> None:
        try:
            self._run()
        except Exception:
            log.exception("the evaluate role broke")
            self._broken = True
            self._on_fault()
        finally:
            self._counted.close()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                source = self._connect(self._hand_over)
            except TopicMissingError:
                # Nothing was ever folded: whatever comes is new, and is counted.
                self._note_answer(self._clock())
                self._held.evaluation.begin(self._clock())
            except StreamError as error:
                self._note_failure(error)
            else:
                if self._read(source):
                    failures = 0
            self._look()
            failures += 1
            self._stop.wait(_PAUSES.after(failures))

    def _read(self, source: WindowGroup) -> bool:
        """Reads until told to stop, or an error; whether it ever had all."""
        had_all, self._check_at, self._stall = False, 0.0, Stall()
        try:
            while not self._stop.is_set():
                polled = source.poll(_POLL_SECONDS)
                if isinstance(polled, OwnPartitions):
                    self._begin(source, polled)
                    self._check_at = 0.0
                else:
                    self._take(polled)
                had_all |= self._check(source)
                self._look()
                if self._coming is None:
                    self._save(source)
            self._hand_over(source)
        except StreamError as error:
            self._note_failure(error)
        finally:
            source.close()
        return had_all

    def _begin(self, source: WindowGroup, own: OwnPartitions) -> None:
        """Goes on from what Kafka holds of endpoints that are ours now."""
        now = self._clock()
        coming = _Held(self._begin_evaluation(own.count), own, dict(own.offsets))
        began = dict(own.offsets)
        is_comparable = True
        moved: dict[int, dict[str, int]] = {}  # where endpoints lay before partitions were added
        for number, packed in own.partition_states.items():
            kept = _read_state(packed, PartitionState, str(number))
            if kept is not None:
                coming.evaluation.adopt_partition(number, kept)
                began[number] = kept.began
                is_comparable &= kept.topic_id == own.topic_id
        for name, packed in own.states.items():
            self._check_membership(source)
            state = _read_state(packed, EndpointState, name)
            if state is None:
                continue
            coming.evaluation.adopt(state, now)
            place = state.place
            if place.topic_id == own.topic_id and place.count != own.count:
                moved.setdefault(place.partition, {})[name] = place.offset
        for number, places in moved.items():
            self._catch_up(source, coming, number, places)
        coming.began = began if is_comparable and not moved else None
        log.info("partitions assigned", extra={"partitions": sorted(own.offsets)})
        with self._lock:
            self._coming, self._ends = coming, {}

    def _catch_up(
        self, source: WindowGroup, coming: _Held, partition: int, places: Mapping[str, int]
    ) -> None:
        """Counts what came after their states in the partition that endpoints lay in before."""
        for values in source.messages(partition, min(places.values())):
            self._check_membership(source)
            for record in largest(values):
                for name in names_in(record) & places.keys():
                    coming.evaluation.take_part(name, record, self._clock())

    def _take(self, messages: Sequence[WindowMessage]) -> None:
        now, held = self._clock(), self._coming or self._held
        for number in {message.partition for message in messages}:
            if number not in held.read:
                continue
            values = [each.value for each in messages if each.partition == number]
            records = largest(values)
            self._counted.take(records, now)
            with self._lock:
                held.evaluation.take(records, now, number)
                held.read[number] = max(
                    each.offset + 1 for each in messages if each.partition == number
                )
                self._health = replace(
                    self._health,
                    records=self._health.records + len(records),
                    skipped=self._health.skipped + sum(not _is_record(one) for one in values),
                )

    def _check(self, source: WindowGroup) -> bool:
        """Asks the broker about our place and what there is; whether all of it was read."""
        held = self._coming or self._held
        membership = self._check_membership(source)
        if membership is None:
            return False
        now = self._clock()
        ends = {number: end for number, (_, end) in membership.spans.items()}
        positions = {
            number: max(held.read.get(number, 0), first)
            for number, (first, _) in membership.spans.items()
        }
        # New records come all the time: who waits for a moment without any may wait for ever.
        enough, self._ends = self._ends or ends, ends
        is_whole = all(positions[number] >= enough.get(number, 0) for number in ends)
        with self._lock:
            self._health = replace(
                self._health,
                lag=sum(max(0, ends[number] - positions[number]) for number in ends),
            )
            has_all = is_whole and not membership.fault and ends.keys() == held.read.keys()
            if has_all:
                held.evaluation.begin(now)
                self._held, self._coming = held, None
        self._stall = look_on(self._stall, ReadingSnapshot(ends, positions, membership.fault), now)
        self._stall.check(now)
        return has_all

    def _check_membership(self, source: WindowGroup) -> Membership | None:
        """Asks the broker whether we are a member, if it is time to."""
        asked_at = self._clock()
        if asked_at < self._check_at:
            return None
        self._check_at = asked_at + self._pace.check_seconds
        membership = source.membership()
        self._note_answer(self._clock())
        with self._lock:
            self._member_at = asked_at if membership.member else 0.0
        return membership

    def _save(self, source: WindowGroup) -> None:
        """Writes states of endpoints that changed, some at a time, and then commits."""
        held, now = self._held, self._clock()
        if held.due_read is None:
            if now < self._save_at or not held.own.offsets:
                return
            self._save_at = now + self._pace.save_seconds
            source.write(dict.fromkeys(held.evaluation.forget(now)), {})
            held.due, held.due_read = sorted(held.evaluation.changed), dict(held.read)
        until = time.monotonic() + _SAVE_SECONDS
        while held.due and time.monotonic() < until:
            name = held.due.pop()
            source.write(self._pack([name], held), {})
        if not held.due:
            source.write({}, self._pack_partitions(held))
            source.commit(held.due_read)
            held.due_read = None

    def _hand_over(self, source: WindowGroup) -> None:
        """Writes all that changed: whoever gets our partitions goes on from there."""
        held = self._coming or self._held
        names = {*held.evaluation.changed, *held.due} if held.own.offsets else set()
        held.due, held.due_read = [], None
        until = time.monotonic() + _HAND_OVER_SECONDS  # no heartbeat is sent meanwhile
        while names and time.monotonic() < until:
            source.write(self._pack([names.pop()], held), {})
        if held.own.offsets and not names:
            source.write({}, self._pack_partitions(held))

    def _pack(self, names: Sequence[str], held: _Held) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name in names:
            number = partition_of(name, held.own.count)
            place = Place(held.own.topic_id, held.own.count, number, held.read.get(number, 0))
            found[name] = pack(held.evaluation.state(name, self._clock(), place))
            held.evaluation.changed.discard(name)
        return found

    def _pack_partitions(self, held: _Held) -> dict[int, bytes]:
        began, topic_id = held.began or {}, held.own.topic_id if held.began is not None else ""
        return {
            number: pack(held.evaluation.partition_state(number, topic_id, began.get(number, 0)))
            for number in held.own.offsets
        }

    def _tells(self, endpoint: str) -> bool:
        """Whether an endpoint is ours for sure; the caller has the lock."""
        is_coming = self._coming is None or self._coming.own.owns(endpoint)
        return self._may_tell() and is_coming and self._held.own.owns(endpoint)

    def _tells_common(self) -> bool:
        """Whether what is of no endpoint is ours; anybody's while nothing was ever folded."""
        own = self._held.own
        return self.ready() if not own.topic_id else self._may_tell() and COMMON in own.offsets

    def _may_tell(self) -> bool:
        return self._clock() - self._member_at <= self._pace.tell_seconds

    def _note_answer(self, now: float) -> None:
        self._answered_at = now
        if self._away:
            log.info("window records can be read again")
        self._away = False

    def _note_failure(self, error: StreamError) -> None:
        with self._lock:
            self._health = replace(self._health, failures=self._health.failures + 1)
        if not self._away:  # once, not at every try
            log.warning("window records can't be read", extra={"reason": str(error)})
        self._away = True

    def _look(self) -> None:
        """Closes windows and looks at drift, if it is time to."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + self._pace.look_seconds
        held = self._held
        endpoints = [each for each in self._endpoints() if held.own.owns(each.name)]
        self._counted.ask(now)
        connected = now - self._answered_at <= self._pace.answer_seconds
        counting = self._counted.state(now) if self.ready() else CountingStatus()
        with self._lock:
            if self._coming is None:
                board = held.evaluation.look(endpoints, now, connected=connected)
            else:  # what is held is old, and only told of
                board = replace(self._board, at=now, connected=connected)
        self._board = replace(board, counting=counting)


_S = TypeVar("_S", EndpointState, PartitionState)


def _read_state(packed: bytes, kind: type[_S], of: str) -> _S | None:
    try:
        return unpack(packed, kind)
    except ValueError as error:
        log.warning("a state can't be used", extra={"of": of, "reason": str(error)})
        return None


def _is_record(message: bytes) -> bool:
    try:
        head(message)
    except (UnknownSchemaError, msgspec.DecodeError):
        return False
    return True

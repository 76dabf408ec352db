"""The evaluate role: one reader of all window records, that evaluates them and lets itself be read.

A thread of its own reads Kafka and owns the ``Evaluation``; the page takes the newest board, which
never changes, and a scrape takes what the counters stand at between two steps. Kafka being away, or
killed, ends nothing: it reads on where it was, and what it reads twice counts once. It never writes
to Kafka.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from prometheus_client.core import Metric as Family

from contracts.backoff import Backoff
from contracts.endpoint import ModelEndpoint
from contracts.events import UnknownSchemaError
from contracts.windows import head
from measures.counting import CountingState, CountingStatus
from measures.losses import MessageLosses
from service.kafka import StreamError, TopicMissingError
from stats.evaluation.board import Board
from stats.evaluation.calibration_store import CalibrationFile
from stats.evaluation.evaluation import Evaluation
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.sharding import Shard
from stats.reading.published import EventCountCheck, EventLogEnds
from stats.reading.record_log import ReadProgress, WindowLog, largest

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_PAUSES = Backoff(0.2, 5.0)
_MARGIN_SECONDS = 120.0  # read again after Kafka was away: clocks differ


@dataclass(frozen=True, slots=True)
class EvaluatePace:
    """How often what is done, in seconds.

    Attributes:
        history_seconds: records of this age and younger are read at the start.
        look_seconds: between two looks at windows and drift.
        check_seconds: between two questions to Kafka whether there is more.
        answer_seconds: without an answer of Kafka for this time, it counts as away.
        save_seconds: between two times that the calibration of drift is saved.
    """

    history_seconds: float = 86_400.0
    look_seconds: float = 1.0
    check_seconds: float = 2.0
    answer_seconds: float = 15.0
    save_seconds: float = 300.0


@dataclass(slots=True)
class _Marks:
    """Where the counters began, and how far they got."""

    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    topic_id: str = ""
    began: Mapping[int, int] | None = None  # None: not yet, or the topic was made again since
    read: Mapping[int, int] = field(default_factory=dict)


class Evaluator:
    """Start it once, close it once."""

    def __init__(
        self,
        evaluation: Evaluation,
        connect: Callable[[float], WindowLog],
        published: EventLogEnds,
        endpoints: Callable[[], Sequence[ModelEndpoint]],
        calibrations: CalibrationFile,
        *,
        false_alarm_seconds: float,
        shard: Shard = Shard(),  # noqa: B008 - it is frozen
        pace: EvaluatePace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Takes its parts; connects in its own thread, as often as it must.

        Args:
            evaluation: belongs to this object from now on.
            connect: opens the log of records from a time onwards; raises ``StreamError``.
            published: knows how much there is to be counted; this object closes it.
            endpoints: as stored now.
            calibrations: where the calibration of drift is kept.
            false_alarm_seconds: expected time between false alarms, to be told.
            shard: whose endpoints it looks after.
            pace: how often what is done.
            clock: unix seconds.
        """
        self._evaluation = evaluation
        self._connect = connect
        self._endpoints = endpoints
        self._calibrations = calibrations
        self._false_alarm_seconds = false_alarm_seconds
        self._shard = shard
        self._pace = pace or EvaluatePace()
        self._clock = clock
        self._counted = EventCountCheck(published, clock())  # only the reading thread's
        self._lock = threading.Lock()  # of the evaluation, the marks and the health
        self._marks = _Marks()
        self._health = RoleHealth()
        self._board = Board()
        self._answered_at = 0.0  # Kafka, unix seconds
        self._away = False
        self._whole_at = 0.0  # when all that Kafka had was read
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
        """Stops reading, and saves the calibration unless a fault left it in doubt."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        if not self._broken:
            self._save()

    def board(self) -> Board:
        """The newest one."""
        return self._board

    def families(self) -> list[Family]:
        """All metrics as they are now."""
        with self._lock:
            now = self._clock()
            exposed = ExpositionSnapshot(
                totals=self._evaluation.totals,
                arms=self._evaluation.arms(now),
                refusals=self._evaluation.refusals(now),
                board=self._board,
                health=self._health,
                counting=self.counting(),
                lost=self._evaluation.lost,
                shard=self._shard,
                false_alarm_seconds=self._false_alarm_seconds,
            )
            return list(families(exposed))

    def counters(self) -> dict[str, Any]:
        """Where the counters stand, and between which offsets they counted: to be recounted.

        They are what the largest record of each range before the offsets ``read`` adds to the
        largest before ``began``, but for the ``forgotten`` arms and endpoints that made room for
        others. ``began`` is null while nothing was counted, or if the topic was made again since.
        """
        with self._lock:
            marks, totals = self._marks, self._evaluation.totals
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
                "instance": marks.instance,
                "shard": self._shard.number,
                "shards": self._shard.of,
                "topic_id": marks.topic_id,
                "since": self._evaluation.since,
                "began": marks.began,
                "read": marks.read,
                "arms": arms,
                "refusals": {name: dict(counts) for name, counts in totals.refusals.items()},
                "skipped": totals.skipped,
                "copies": totals.copies,
                "mistimed": totals.mistimed,
                "overflow": dict(totals.overflow),
                "forgotten": totals.forgotten,
            }

    def ready(self) -> bool:
        """Whether the past was read, so that what is shown is whole."""
        return self._evaluation.since > 0

    def counting(self) -> CountingStatus:
        """Whether traffic is counted now; not known if the reading itself has stood still."""
        board = self._board
        if self._clock() - board.at > self._pace.answer_seconds:
            return CountingStatus(CountingState.UNKNOWN, board.at)
        return board.counting

    def losses(self) -> MessageLosses:
        """What gateways sent and is not in the log, since the counters began."""
        with self._lock:
            return self._evaluation.lost

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
                source = self._connect(self._read_from())
            except TopicMissingError:
                # Nothing was ever folded: whatever comes is new, and is counted.
                self._note_answer(self._clock())
                self._begin(ReadProgress())
            except StreamError as error:
                self._note_failure(error)
            else:
                if self._read(source):
                    failures = 0
            self._look()
            failures += 1
            self._stop.wait(_PAUSES.after(failures))

    def _read_from(self) -> float:
        """Unix seconds."""
        if self._whole_at:
            return self._whole_at - _MARGIN_SECONDS
        return self._clock() - self._pace.history_seconds

    def _read(self, source: WindowLog) -> bool:
        """Reads until told to stop, or an error; whether it ever had all."""
        had_all, check_at = False, 0.0
        try:
            while not self._stop.is_set():
                self._take(source.poll(_POLL_SECONDS), source.progress())
                now = self._clock()
                if now >= check_at:
                    check_at = now + self._pace.check_seconds
                    unread = source.list_unread()
                    self._note_answer(now)
                    if not unread:
                        had_all, self._whole_at = True, now
                        self._begin(source.progress())
                self._look()
        except StreamError as error:
            self._note_failure(error)
        finally:
            source.close()
        return had_all

    def _take(self, messages: Sequence[bytes], progress: ReadProgress) -> None:
        records = largest(messages)
        self._counted.take(records, self._clock())
        with self._lock:
            marks = self._marks
            if marks.topic_id and progress.topic_id != marks.topic_id:
                marks.began = None  # offsets of before mean nothing now
            marks.topic_id, marks.read = progress.topic_id, progress.positions
            self._evaluation.take(self._shard.part(records), self._clock())
            self._health = replace(
                self._health,
                lag=progress.lag,
                records=self._health.records + len(records),
                skipped=self._health.skipped + sum(not _is_record(one) for one in messages),
            )

    def _begin(self, progress: ReadProgress) -> None:
        with self._lock:
            if not self._evaluation.since:
                self._evaluation.begin(self._clock())
                self._marks.topic_id = progress.topic_id
                self._marks.began = dict(progress.positions)
                log.info("the counters begin", extra={"offsets": self._marks.began})

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
        endpoints = [each for each in self._endpoints() if self._shard.owns(each.name)]
        self._counted.ask(now)
        connected = now - self._answered_at <= self._pace.answer_seconds
        counting = self._counted.state(now) if self.ready() else CountingStatus()
        with self._lock:
            board = self._evaluation.look(endpoints, now, connected=connected)
        self._board = replace(board, counting=counting)
        if now >= self._save_at:
            self._save_at = now + self._pace.save_seconds
            self._save()

    def calibrations(self) -> dict[str, Any]:
        """What drift has learnt, for a process that takes endpoints over."""
        with self._lock:
            return self._evaluation.to_json()

    def _save(self) -> None:
        calibrations = self.calibrations()
        if calibrations:
            self._calibrations.save(calibrations)


def _is_record(message: bytes) -> bool:
    try:
        head(message)
    except (UnknownSchemaError, msgspec.DecodeError):
        return False
    return True

"""The batcher of one package: batches the texts of all calls, and sends them to its replicas.

``submit`` queues encoded texts and returns a ``Job`` with a future of their values. ``Schedule``
decides which batch is sent when. It is asked once for all texts that are submitted in one iteration
of the event loop, so that they can share a batch, and again when a batch ends. A job is answered as
a whole or fails as a whole. The texts of a call that is cancelled leave the queue. Bulk calls have
a schedule of their own, which is asked once nothing else waits and only for instances that idle;
``bulk.py`` says when.

Four things can go wrong with a batch:

- No Triton answers at the address, or it does not hold the model. The replica's breaker opens, and
  the texts are queued again for the replicas that still serve, never for another package.
- Triton takes too long. If another replica serves, the slow one is suspended after a time limit
  (``_retry_seconds``), and the texts are queued again. A batch on the only replica, or on its
  second try, has until the deadlines of its texts, and no breaker opens: a deadline may just have
  been short, and without the only replica every call would be refused. If that Triton hangs, its
  loader has it restarted.
- The model holds as much as it takes, of all gateways. The texts are queued again, without blame,
  and the Triton gets no batch until it has answered another one, or for a short while.
- The model fails on the batch. Another replica that serves is asked: if it answers, the failure was
  the first one's own, and that is suspended. Else the batch is split by jobs and tried again in
  halves, so that no call fails because of another call's text.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from contracts.backoff import Backoff
from gateway.batching.bulk import BulkShare
from gateway.batching.cost_model import JointCosts
from gateway.batching.jobs import (
    Deadlines,
    Job,
    TextRow,
    Values,
    mark_ended,
    mark_sent,
    parts,
)
from gateway.batching.lag import LoopLag
from gateway.batching.packed_costs import TokenCosts
from gateway.batching.packed_schedule import PackedSchedule
from gateway.batching.schedule import Schedule
from gateway.batching.waiting_rows import Batch, Slots, WaitingRows
from gateway.engine.fleet import Fleet, Flight, Replica, State
from gateway.engine.large_answers import BATCH_INLINE_NUMBERS, beside
from gateway.engine.protocol import (
    EngineBusyError,
    EngineMissingModelError,
    EngineModelError,
    EngineProcessGoneError,
    EngineTimeoutError,
    EngineUnavailableError,
    Work,
)
from gateway.errors import (
    DeadlineExceededError,
    ModelFailedError,
    bulk_too_late,
    no_triton,
    too_late,
)
from gateway.packages import ServedModel
from preprocess.encoder import EncodedTexts
from preprocess.errors import EngineOutputError

log = logging.getLogger(__name__)

_MOST_TRIES = 3  # of a row; the breaker of a replica that did not answer is open by the next
_LEAST_TIMEOUT_SECONDS = 0.001
# After the last Triton stopped serving, texts wait so long for one to come back: a process that was
# killed is started again in less, and with one that stays away callers are better refused at once.
RETURN_SECONDS = 5.0
# A Triton can hang and still say that it is ready. So if another Triton serves the package, a batch
# is sent there once it has taken this share of the time to its first deadline and many times the
# expected time. The Triton that hangs is then suspended: the next probe would find it ready.
_RETRY_SHARE = 0.5
_RETRY_SLOWDOWN = 10.0
_SUSPEND_SECONDS = 2.0
# After this many failed batches in a row, the model is taken for broken on that Triton. Until it
# answers a batch, a failed one is split into halves only, and these no further.
_MOST_FAILED = 16
_HALVES = 2
# How long a Triton gets no batch that was too busy for one; doubled each time.
_PAUSES = Backoff(0.002, 0.05)
# Between two looks whether bulk calls may begin because time has passed. What frees an instance
# tells them.
_BULK_LOOK_SECONDS = 0.25
_TOKENS_A_CHARACTER = 0.25  # before any text was seen
_LENGTH_RATE = 0.05
# By how many iterations of the event loop the end of a batch is seen late at most: its answer waits
# for the current one, is read in the next, and wakes its task in the one after that.
_LATE_ITERATIONS = 3.0
# Iterations of the event loop for which an instance should have work: the current one ends before
# the next batch is sent, and the next may take as long.
_LOOKAHEAD_ITERATIONS = 2.0


class BatchMeter(Protocol):
    """Metrics of batches."""

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        """A batch was answered: its rows, real and padded tokens, and engine seconds."""

    def batch_split(self, model: ServedModel) -> None:
        """The model failed on a batch, which is split into halves and tried again."""

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        """The model failed on texts that are not split any further; their calls fail."""


class Batcher:
    """All waiting and running work of one package.

    Args:
        model: the package.
        fleet: is told of a Triton that does not answer.
        meter: counts batches.
        lag: measures how long iterations of the event loop take.
        share: what bulk calls of the process may take; it is told how long others took.
        clock: the event loop's, seconds.
    """

    def __init__(
        self,
        model: ServedModel,
        fleet: Fleet,
        meter: BatchMeter,
        lag: LoopLag | None = None,
        share: BulkShare | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.model = model
        self.cost: JointCosts
        self._schedule: WaitingRows[TextRow]
        self._bulk: WaitingRows[TextRow]
        self.cost, self._schedule, self._bulk = _planning(model)
        self.share = share or BulkShare()
        self.replicas: tuple[Replica, ...] = ()
        self._clock = clock
        self._fleet = fleet
        self._meter = meter
        self._lag = lag or LoopLag()
        self._tokens_a_character = _TOKENS_A_CHARACTER
        self._loop = asyncio.get_running_loop()
        self._decision_due = False
        self._served = False  # at the last decision
        self._hangs = False  # the last Triton that stopped serving did not answer in time
        self._timer: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(self._loop, self._fail_late, clock)
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, replicas: tuple[Replica, ...]) -> None:
        """Sets the package's replicas, and forgets the costs of Tritons that are gone."""
        self.replicas = replicas
        self.cost.keep(replica.address for replica in replicas)
        self.wake()

    @property
    def serves(self) -> bool:
        """Whether any Triton serves the package now."""
        for replica in self.replicas:  # noqa: SIM110 - for every request: no any(), no property
            if replica.breaker.state is State.CLOSED:
                return True
        return False

    @property
    def may_return(self) -> bool:
        """Whether a Triton served it until a moment ago, so that texts wait for one."""
        return self._clock() < self._return_end

    @property
    def _return_end(self) -> float:
        stopped = max((each.served_until for each in self.replicas), default=-math.inf)
        return stopped + RETURN_SECONDS

    @property
    def queued_rows(self) -> int:
        """Texts in the queue; not those of bulk calls."""
        return self._schedule.rows

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        if self._schedule.rows or self._bulk.rows or self._tasks:
            return False
        return not any(replica.busy for replica in self.replicas)  # with prompts

    def wait_seconds(self, endpoint: str) -> float:
        """Estimated seconds that a new text of an endpoint would wait for an instance."""
        instances = 0
        in_flight = 0.0
        for replica in self.replicas:
            if replica.breaker.state is State.CLOSED:
                if self._schedule.rows == 0 and replica.idle:
                    return 0.0
                instances += replica.instances
                in_flight += replica.expected_seconds
        if instances == 0:
            return 0.0
        return (self._schedule.wait_seconds(endpoint) + in_flight) / instances

    def work_seconds(self, tokens: Iterable[int]) -> float:
        """Estimated engine seconds of texts, in batches of the best size; ``tokens`` of each."""
        return sum(self.cost.row_seconds(self.model.bucket_of(count)) for count in tokens)

    def likely_tokens(self, texts: int, characters: int) -> int:
        """Estimated tokens of a text, where ``texts`` have this many ``characters`` together."""
        tokens = int(characters * self._tokens_a_character / texts) + 1
        return min(tokens, self.model.buckets[-1])

    def learn_length(self, characters: int, tokens: int) -> None:
        """Corrects the estimate of ``likely_tokens`` by a request that was tokenised."""
        seen = tokens / (characters + 1)
        self._tokens_a_character += _LENGTH_RATE * (seen - self._tokens_a_character)

    def submit(
        self,
        encoded: EncodedTexts,
        endpoint: str,
        deadline: float,
        *,
        waits: bool = True,
        bulk: bool = False,
    ) -> Job:
        """Queues texts. If an instance is idle, they are sent in the event loop's next iteration.

        Args:
            encoded: at least one text.
            endpoint: the call's; endpoints that share the package get equal shares of it.
            deadline: by the loop's clock, seconds.
            waits: for a Triton that went away to come back; false if another version answers.
            bulk: takes idle instances only.
        """
        now = self._clock()
        job = Job(endpoint, deadline, self._loop.create_future(), waits=waits, bulk=bulk)
        if not waits and not self.serves:
            job.end(no_triton())
            return job
        type_ids = encoded.type_ids
        for index, ids in enumerate(encoded.ids):
            bucket = self.model.bucket_of(len(ids))
            row = TextRow(job, index, ids, bucket=bucket, enqueued=now)
            if type_ids is not None:
                row.type_ids = type_ids[index]
            job.rows.append(row)
        job.unanswered = len(job.rows)
        if bulk:
            self.share.jobs += 1
            job.future.add_done_callback(self.share.drop_job)
        else:
            self.share.note_asked(now)
            if self.share.jobs:
                is_free = any(each.serves and each.has_room for each in self.replicas)
                until = max([r.load.bulk_until for r in self.replicas if r.load.bulk], default=None)
                job.delay = self.share.note_arrival(now, self, until, waits=not is_free)
        self._queue_of(job).push(job.rows)
        self._deadlines.watch(job)
        self.wake()
        return job

    def abandon(self, job: Job, error: Exception | None = None) -> None:
        """Ends a job with an error, or cancels it, and takes its texts out of the queue.

        Texts in flight are ignored when they are answered.
        """
        queue = self._queue_of(job)
        for row in job.rows:
            queue.remove(row)
        job.end(error)

    def _queue_of(self, job: Job) -> WaitingRows[TextRow]:
        return self._bulk if job.bulk else self._schedule

    def wake(self) -> None:
        """Has what to send decided in the event loop's next iteration, once."""
        if not self._decision_due:
            self._decision_due = True
            self._loop.call_soon(self._decide_once)

    async def settle(self) -> None:
        """Waits until every batch in flight has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _fail_late(self, job: Job) -> None:
        is_gone = not self.serves and not self._hangs
        self.abandon(job, no_triton() if is_gone else _too_late(job))

    def _decide_once(self) -> None:
        self._decision_due = False
        self._decide()

    def _decide(self) -> None:
        """Sends batches as long as the schedule has one to send now, then sets the next timer."""
        if not self.serves:
            if self.may_return and (self._schedule.rows or self._bulk.rows):
                if self._served:
                    self._fail_waiting(stays=lambda row: row.job.waits)
                self._wake_at(self._return_end)
            else:
                self._fail_waiting()
            self._served = False
            return
        self._served = True
        self.cost.serve({each.address: each.instances for each in self.replicas if each.serves})
        now = self._clock()
        while True:
            choice = self._schedule.take(now, self._slots())
            if not isinstance(choice, Batch):
                break
            self._send(choice, now)
        if self._bulk.rows:
            self._decide_bulk(now)
        if self._bulk.rows:
            look = self._await_idle(now)
            choice = look if choice is None else min(choice, look)
        self._wake_at(choice)

    def _decide_bulk(self, now: float) -> None:
        """Sends batches of bulk calls to instances that idle, as long as one may begin."""
        while self._bulk.rows and not self._schedule.rows:
            least = self._bulk.least_seconds()
            for replica in self._idle_for_bulk(now):
                most = self.share.most_seconds(now, least, replica.address, replica.instances)
                if most is not None:
                    break
            else:
                return
            choice = self._bulk.take(now, Slots(1, 0), most)
            if not isinstance(choice, Batch):
                return
            self._send(choice, now, replica)

    def _await_idle(self, now: float) -> float:
        """Has what frees an instance wake this; gives when to look if nothing has."""
        self.share.waiting.add(self.wake)
        for replica in self.replicas:
            replica.load.waiting.add(self.wake)
        return now + _BULK_LOOK_SECONDS

    def _idle_for_bulk(self, now: float) -> list[Replica]:
        """Replicas for a batch of bulk calls: at Tritons that idle but for one more instance.

        That one is left to the next interactive call; a lone instance has to idle. Of several
        Tritons the first ones are left to these.
        """
        serving = [replica for replica in self.replicas if replica.serves]
        return [
            replica
            for replica in reversed(serving[-self.share.most_tritons(now, len(serving)) :])
            if replica.idle and replica.load.all < max(1, replica.instances - 1)
        ]

    def _wake_at(self, moment: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment is not None:
            self._timer = self._loop.call_at(moment, self.wake)

    def _slots(self) -> Slots:
        """What all replicas that serve can take now, for the schedule."""
        idle = spare = 0
        free_at, running = float("inf"), 0.0
        lookahead = self._lag.iteration_seconds * _LOOKAHEAD_ITERATIONS
        for replica in self.replicas:
            if replica.serves:
                idle += replica.idle
                ahead = replica.spare(lookahead)
                spare += ahead
                if ahead and not replica.idle:
                    free_at, running = min((free_at, running), replica.next_free())
        return Slots(idle, spare, free_at, running)

    def _send(self, batch: Batch[TextRow], now: float, replica: Replica | None = None) -> None:
        """Sends a batch to a replica, and gives up its rows that have expired.

        Unless one is named, it has an idle instance, else the batch is sent ahead to it. Among
        several, one whose Triton runs no bulk batch gets it, and the one with the fewest padded
        tokens in flight.
        """
        for row in batch.expired:
            self.abandon(row.job, _too_late(row.job))
        if not batch.rows:
            return
        replica = replica or self._replica_for_next()
        flight = self._record_sent(batch, replica, now)
        task = self._loop.create_task(self._run(batch, replica, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _replica_for_next(self) -> Replica:
        serving = [replica for replica in self.replicas if replica.serves]
        lookahead = self._lag.iteration_seconds * _LOOKAHEAD_ITERATIONS
        available = [r for r in serving if r.idle] or [r for r in serving if r.spare(lookahead)]
        available = [r for r in available if not r.load.bulk] or available
        return min(available, key=lambda r: r.tokens)

    def _record_sent(self, batch: Batch[TextRow], replica: Replica, now: float) -> Flight:
        bucket, rows = batch.shape
        expected = self.cost.seconds_on(replica.address, bucket, rows)
        bulk = batch.rows[0].job.bulk
        flight = replica.batch_sent(now, expected, bucket * rows, bulk=bulk)
        if bulk:
            self.share.note_begin(now, expected, replica.address)
        elif self.share.measures(now):
            self.share.note_work(now, expected, replica.address)
        mark_sent(batch.rows, flight.sent)
        return flight

    async def _run(self, batch: Batch[TextRow], replica: Replica, flight: Flight) -> None:
        """Sends a batch and handles its outcome; splits it where the model fails on it.

        A batch of n jobs takes at most 2 n - 1 tries: the whole batch, its halves, their halves,
        down to each job alone; and as many at another Triton, if one serves. If the model was
        broken before (``_MOST_FAILED``), the halves are tried, and smaller parts only if the model
        answers one of the halves.
        """
        parts = deque([batch])  # not yet answered
        tries = 0
        broken = replica.failed >= _MOST_FAILED
        try:
            while parts:
                part = parts[0]
                if tries > 0:
                    part.rows[:] = _still_waiting(part.rows)
                    if not part.rows:
                        parts.popleft()
                        continue
                    flight = self._record_sent(part, replica, self._clock())
                failure = await self._answer(part, replica, flight)
                tries += 1
                is_taken = failure is None or await self._is_taken_elsewhere(part, replica)
                parts.popleft()
                if failure is None:
                    broken = broken and replica.failed > 0
                elif not is_taken:
                    replica.failed += 1
                    parts += self._halves(part, failure)
                    if broken and tries > _HALVES:
                        self._fail_for_model([row for part in parts for row in part.rows], failure)
                        break
                if not replica.serves:
                    self._repeat([row for part in parts for row in part.rows])
                    break
        except BaseException as error:
            # A bug, or the end of the process: the jobs fail, and it is raised again.
            for part in parts:
                self._fail(part.rows, RuntimeError(f"batch was lost: {error!r}"))
            raise
        finally:
            # Now, not in the next iteration of the event loop: if the loop is busy, an instance
            # would be idle until then.
            self._decide()

    async def _answer(
        self, batch: Batch[TextRow], replica: Replica, flight: Flight
    ) -> EngineModelError | EngineOutputError | None:
        """Sends a batch to one Triton, then answers its jobs, fails them, or queues it again.

        Returns:
            The error if the model failed on the batch: its jobs have not been answered.
        """
        rows = batch.rows
        sent = self._clock()
        # Until the last deadline: ``Deadlines`` fails those jobs whose deadline is earlier.
        left = max(_LEAST_TIMEOUT_SECONDS, max([row.deadline for row in rows]) - sent)
        timeout = min(left, self._retry_seconds(rows, replica, sent))
        tokens = [row.tokens for row in rows]
        counts = parts(rows)
        try:
            values = await self._infer(batch, tokens, counts, replica, timeout)
        except (EngineUnavailableError, EngineMissingModelError) as lost:
            self.stop_sending(replica, lost)
            self._record_end(rows, replica, flight)
            self._repeat(rows)
        except EngineTimeoutError as slow:
            self._record_end(rows, replica, flight)
            if timeout < left:
                self.suspend(replica, slow)
                self._repeat(rows)
            else:
                self._fail(rows, _too_late(rows[0].job))
        except EngineBusyError:
            self._record_end(rows, replica, flight)
            self._pause(replica)
            self._schedule_again(rows)
        except (EngineModelError, EngineOutputError) as failure:
            self._record_end(rows, replica, flight)
            return failure
        except BaseException:
            self._record_end(rows, replica, flight)
            raise
        else:
            self._hangs = self._hangs and not replica.serves
            replica.failed = replica.refused = 0
            replica.pauses = False
            flight.answered = True
            seconds = self._record_end(rows, replica, flight)
            bucket, shaped = batch.shape
            late = _LATE_ITERATIONS * max(self._lag.seconds(), self._lag.iteration_seconds)
            more = late
            if flight.started == flight.sent:  # with nothing before it, whose end was seen late too
                more = 0.0
                seconds -= sent - flight.sent  # until this task began
            self.cost.observe(replica.address, bucket, shaped, seconds, less=late, more=more)
            self._meter.batch_finished(self.model, len(rows), sum(tokens), bucket * shaped, seconds)
            at = 0
            for count, found in zip(counts, values, strict=True):
                rows[at].job.fill(rows[at].index, count, found)
                at += count
        return None

    async def _is_taken_elsewhere(self, batch: Batch[TextRow], replica: Replica) -> bool:
        """Asks another Triton for what the model failed at on a replica.

        If that one answers it, the replica is at fault, and suspended.

        Returns:
            Whether the batch was answered, or queued again.
        """
        others = [each for each in self.replicas if each.serves and each is not replica]
        batch.rows[:] = _still_waiting(batch.rows)
        if not others or not batch.rows:
            return False
        other = min(others, key=lambda each: (each.failed, each.tokens))
        if min(replica.failed, other.failed) >= _MOST_FAILED:
            return False
        flight = self._record_sent(batch, other, self._clock())
        if await self._answer(batch, other, flight) is not None:
            other.failed += 1
            return False
        if flight.answered:
            self.suspend(replica, EngineModelError(f"it fails at what {other.address} answers"))
        elif other.pauses:
            self._pause(replica)  # else it would get the same at once, and so on without a pause
        return True

    def _halves(self, batch: Batch[TextRow], failure: Exception) -> list[Batch[TextRow]]:
        """Splits a failed batch by jobs. A batch of a single job fails instead."""
        rows = _still_waiting(batch.rows)
        jobs = list(dict.fromkeys(row.job for row in rows))
        if len(jobs) < _HALVES:
            self._fail_for_model(rows, failure)
            return []
        self._meter.batch_split(self.model)
        first = set(jobs[: len(jobs) // _HALVES])
        halves = ([r for r in rows if r.job in first], [r for r in rows if r.job not in first])
        return [batch.part(half) for half in halves]

    def _fail_for_model(self, rows: list[TextRow], failure: Exception) -> None:
        """Fails the jobs of these texts with the model's error."""
        rows = _still_waiting(rows)
        if rows:
            fields = {"model": self.model.name, "texts": len(rows), "reason": str(failure)}
            log.warning("model failed", extra=fields)
            self._meter.texts_failed(self.model, len(rows))
            self._fail(rows, ModelFailedError(f"The model failed on these texts: {failure}"))

    def _retry_seconds(self, rows: list[TextRow], replica: Replica, now: float) -> float:
        """Seconds after which a batch is sent to another Triton; infinite if it will not be.

        They depend on the first deadline, so that no text of the batch is late for the second try.
        """
        another = any(each.serves for each in self.replicas if each is not replica)
        if not another or any(row.tries for row in rows):
            return math.inf
        share = _RETRY_SHARE * (min(row.deadline for row in rows) - now)
        return max(share, _RETRY_SLOWDOWN * replica.expected_seconds, _LEAST_TIMEOUT_SECONDS)

    async def _infer(
        self,
        batch: Batch[TextRow],
        tokens: list[int],
        counts: list[int],
        replica: Replica,
        timeout_seconds: float,
    ) -> list[Values]:
        """The values of a batch, an array for each of its parts (see ``jobs.parts``)."""
        rows, model = batch.rows, self.model
        paired = any(row.type_ids is not None for row in rows)
        types = [row.type_ids or [0] * len(row.ids) for row in rows] if paired else None
        work = Work(
            model=replica.model,
            output=model.output,
            tensors=model.tensors([row.ids for row in rows], batch.bucket, types),
        )
        output = await replica.engine.infer(work, timeout_seconds)
        if output.size > BATCH_INLINE_NUMBERS:
            return await beside(lambda: model.decode(output, tokens, counts))
        return model.decode(output, tokens, counts)

    def _record_end(self, rows: list[TextRow], replica: Replica, flight: Flight) -> float:
        now = self._clock()
        seconds = replica.batch_ended(flight, now)
        if flight.bulk:
            self.share.note_end(now)
        mark_ended(rows, flight.sent, now)
        return seconds

    def stop_sending(self, replica: Replica, error: Exception) -> None:
        """Sends no batch until a probe succeeds: to the replica, or to the whole lost Triton."""
        if isinstance(error, EngineProcessGoneError):
            self.suspend(replica, error)
            return
        now = self._clock()
        self._hangs = False
        log.warning("batch found no model", extra={"triton": replica.address, "reason": str(error)})
        if isinstance(error, EngineMissingModelError):
            if replica.serves:
                replica.fail(now)
        else:
            self._fleet.lost(replica.address, now)

    def suspend(self, replica: Replica, error: Exception) -> None:
        """Sends a replica no batch for a while, even if a probe would find it ready."""
        self._hangs = isinstance(error, EngineTimeoutError)
        if replica.serves:
            log.warning(
                "replica suspended", extra={"triton": replica.address, "reason": str(error)}
            )
            replica.fail(self._clock(), at_least=_SUSPEND_SECONDS)

    def _pause(self, replica: Replica) -> None:
        """Sends no batch to a replica that is too busy, until it answers one or a pause is over."""
        replica.pauses = True
        replica.refused += 1
        self._loop.call_later(_PAUSES.after(replica.refused), self._resume, replica)

    def _resume(self, replica: Replica) -> None:
        replica.pauses = False
        self.wake()

    def _schedule_again(self, rows: list[TextRow]) -> None:
        for row in _still_waiting(rows):
            self._queue_of(row.job).push((row,))

    def _repeat(self, rows: list[TextRow]) -> None:
        """Queues texts again, by deadline as before, if tries and a Triton are left."""
        for row in rows:
            row.tries += 1
            if row.job.future.done():
                continue
            may_wait = row.job.waits and self.may_return
            if row.tries < _MOST_TRIES and (self.serves or may_wait):
                self._queue_of(row.job).push((row,))
            else:
                self.abandon(row.job, no_triton())

    def _fail(self, rows: list[TextRow], error: Exception) -> None:
        for row in rows:
            self.abandon(row.job, error)

    def _fail_waiting(self, stays: Callable[[TextRow], bool] = lambda _: False) -> None:
        for row in (*self._schedule.drain(), *self._bulk.drain()):
            if stays(row):
                self._queue_of(row.job).push((row,))
            else:
                self.abandon(row.job, no_triton())


def _planning(
    model: ServedModel,
) -> tuple[JointCosts, WaitingRows[TextRow], WaitingRows[TextRow]]:
    """The costs and both schedules of a package, by what its engine takes."""
    if model.is_packed:
        tokens = TokenCosts()
        return tokens, PackedSchedule(tokens), PackedSchedule(tokens)
    costs = JointCosts(model.buckets, model.max_batch_size, model.row_buckets)
    return costs, Schedule(costs), Schedule(costs)


def _too_late(job: Job) -> DeadlineExceededError:
    return bulk_too_late() if job.bulk else too_late()


def _still_waiting(rows: list[TextRow]) -> list[TextRow]:
    return [row for row in rows if not row.job.future.done()]

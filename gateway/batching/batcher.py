"""The batcher of one package: texts in, batches out to its replicas, each caller's values back.

Who submits encoded texts gets a ``Job`` to await. The batcher asks its ``Schedule`` what to send
whenever something changed, at most once in a turn of the event loop, so that what arrived together
leaves together. A job is answered whole or fails whole; one that nobody waits for leaves the queue.
The batcher repeats a batch on another Triton, never on another package. Where the model fails at a
batch, its callers are tried apart, so that none of them fails for another one's text.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Protocol

import numpy as np

from gateway.batching.cost_model import JointCosts
from gateway.batching.jobs import Deadlines, Job, TextRow, Values
from gateway.batching.lag import LoopLag
from gateway.batching.schedule import Batch, Schedule, Slots
from gateway.engine.fleet import Fleet, Flight, Replica
from gateway.engine.protocol import (
    EngineMissingModelError,
    EngineModelError,
    EngineProcessGoneError,
    EngineTimeoutError,
    EngineUnavailableError,
    Work,
)
from gateway.errors import ModelFailedError, no_triton, too_late
from gateway.packages import ServedModel
from preprocess.encoder import Encoded
from preprocess.errors import EngineOutputError

log = logging.getLogger(__name__)

_MOST_TRIES = 3  # of a row on different replicas
_LEAST_TIMEOUT_SECONDS = 0.001
# A Triton can hang and say that it is well. So where another serves, a batch that has taken this
# share of its callers' time, and many times what was expected, is asked there, and the Triton gets
# no other for a while: a probe would find it ready at once.
_PATIENCE = 0.5
_MOST_SLOWER = 10.0
_DOUBT_SECONDS = 2.0
# A model that failed at so many batches in a row on a Triton is taken for broken there: until it
# answers one, no more than both halves of a batch are tried.
_MOST_FAILED = 16
_HALVES = 2
_TOKENS_A_CHARACTER = 0.25  # before any text was seen
_LENGTH_RATE = 0.05
# A batch's time is believed if the event loop was late by no more than this share of it.
_MOST_LAG = 0.25
# Turns of the event loop for which an engine should have work: one is over before the next batch is
# sent, and another may be as long.
_TURNS_COVERED = 2.0


class BatchMeter(Protocol):
    """Who counts batches."""

    def batch_finished(
        self, model: ServedModel, rows: int, tokens: int, padded: int, seconds: float
    ) -> None:
        """A batch was answered: its rows, real and padded tokens, and the engine's seconds."""
        ...

    def batch_split(self, model: ServedModel) -> None:
        """The model failed at a batch, and its callers are tried in halves."""
        ...

    def texts_failed(self, model: ServedModel, texts: int) -> None:
        """The model failed at texts that were not, or could not be, tried apart any further."""
        ...


class Batcher:
    """All waiting and running work of one package.

    Args:
        model: the package.
        fleet: hears of a Triton that is gone.
        meter: counts batches.
        lag: of the event loop, which must not be taken for the engine's time.
    """

    def __init__(
        self, model: ServedModel, fleet: Fleet, meter: BatchMeter, lag: LoopLag | None = None
    ) -> None:
        self.model = model
        self.cost = JointCosts(model.buckets, model.max_batch_size)
        self.replicas: tuple[Replica, ...] = ()
        self._schedule: Schedule[TextRow] = Schedule(self.cost)
        self._fleet = fleet
        self._meter = meter
        self._lag = lag or LoopLag()
        self._tokens_a_character = _TOKENS_A_CHARACTER
        self._loop = asyncio.get_running_loop()
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(self._loop, self._late)
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, replicas: tuple[Replica, ...]) -> None:
        """Takes the package's replicas; what is known of Tritons that left is forgotten."""
        self.replicas = replicas
        self.cost.keep(replica.address for replica in replicas)
        self.wake()

    @property
    def serves(self) -> bool:
        """Whether any Triton serves the package now."""
        for replica in self.replicas:  # noqa: SIM110 - twice as fast as any(), for every request
            if replica.breaker.closed:
                return True
        return False

    @property
    def queued_rows(self) -> int:
        """Texts that wait here."""
        return self._schedule.rows

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return self._schedule.rows == 0 and not self._tasks

    def wait_seconds(self, flow: str) -> float:
        """How long a new text of an endpoint would wait for an engine, as estimated."""
        engines = 0
        flying = 0.0
        for replica in self.replicas:
            if replica.serves:
                if self._schedule.rows == 0 and replica.idle:
                    return 0.0
                engines += replica.instances
                flying += replica.expected_seconds
        if engines == 0:
            return 0.0
        return (self._schedule.wait_seconds(flow) + flying) / engines

    def work_seconds(self, tokens: Iterable[int]) -> float:
        """Engine seconds of texts with so many tokens each, in batches of the best size."""
        return sum(self.cost.row_seconds(self.model.bucket_of(count)) for count in tokens)

    def likely_tokens(self, texts: int, characters: int) -> int:
        """Tokens of each of some texts before they are counted, from all their characters."""
        tokens = int(characters * self._tokens_a_character / texts) + 1
        return min(tokens, self.model.buckets[-1])

    def learn_length(self, characters: int, tokens: int) -> None:
        """Takes what a request's characters came to."""
        seen = tokens / (characters + 1)
        self._tokens_a_character += _LENGTH_RATE * (seen - self._tokens_a_character)

    def submit(self, encoded: Encoded, flow: str, deadline: float) -> Job:
        """Queues the texts; their batch leaves in this turn of the loop if an engine is idle.

        Args:
            encoded: at least one text.
            flow: the endpoint, for fairness between those that share the package.
            deadline: the loop's clock, seconds.
        """
        now = monotonic()
        job = Job(flow, deadline, self._loop.create_future())
        type_ids = encoded.type_ids
        for index, ids in enumerate(encoded.ids):
            bucket = self.model.bucket_of(len(ids))
            row = TextRow(job, index, ids, bucket=bucket, enqueued=now)
            if type_ids is not None:
                row.type_ids = type_ids[index]
            job.rows.append(row)
            self._schedule.push(row)
        job.left = len(job.rows)
        if job.left > 1:
            job.parts = [_NOTHING] * job.left
        self._deadlines.watch(job)
        self.wake()
        return job

    def abandon(self, job: Job, error: Exception | None = None) -> None:
        """Takes a job's texts out of the queue; what is in flight is thrown away when it ends."""
        for row in job.rows:
            self._schedule.remove(row)
        if error is not None:
            job.fail(error)
        elif not job.future.done():
            job.future.cancel()

    def wake(self) -> None:
        """Decides anew, once in this turn of the loop."""
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._woken)

    async def settle(self) -> None:
        """Waits until every batch in flight has come back."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _late(self, job: Job) -> None:
        self.abandon(job, too_late())

    def _woken(self) -> None:
        self._awake = False
        self._decide()

    def _decide(self) -> None:
        if not self.serves:
            self._fail_waiting()
            return
        self.cost.serve({each.address: each.instances for each in self.replicas if each.serves})
        now = monotonic()
        while True:
            choice = self._schedule.take(now, self._slots())
            if not isinstance(choice, Batch):
                break
            for row in choice.expired:
                self.abandon(row.job, too_late())
            if choice.rows:
                self._send(choice, now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if choice is not None:
            self._timer = self._loop.call_at(choice, self.wake)

    def _slots(self) -> Slots:
        idle = spare = 0
        free_at, running = float("inf"), 0.0
        cover = self._lag.turn_seconds * _TURNS_COVERED
        for replica in self.replicas:
            if replica.serves:
                idle += replica.idle
                room = replica.spare(cover)
                spare += room
                if room and not replica.idle:
                    free_at, running = min((free_at, running), replica.next_free())
        return Slots(idle, spare, free_at, running)

    def _send(self, batch: Batch[TextRow], now: float) -> None:
        serving = [replica for replica in self.replicas if replica.serves]
        cover = self._lag.turn_seconds * _TURNS_COVERED
        open_now = [r for r in serving if r.idle] or [r for r in serving if r.spare(cover)]
        replica = min(open_now, key=lambda r: r.tokens)
        flight = self._depart(batch, replica, now)
        task = self._loop.create_task(self._run(batch, replica, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _depart(self, batch: Batch[TextRow], replica: Replica, now: float) -> Flight:
        expected = self.cost.seconds_on(replica.address, batch.bucket, len(batch.rows))
        flight = replica.depart(now, expected, batch.bucket * len(batch.rows))
        for row in batch.rows:
            row.left(flight.sent)
        return flight

    async def _run(self, batch: Batch[TextRow], replica: Replica, flight: Flight) -> None:
        """Sees a batch to its end, in parts where the model fails at it.

        For n callers there are at most 2 n - 1 tries: it, its halves, their halves, down to each
        caller alone; no caller is in more than one part of each size. Of a model that was found
        broken before, the halves are tried, and smaller parts only if it answers one of them.
        """
        parts = deque([batch])  # that nobody has answered yet
        tries = 0
        broken = replica.failed >= _MOST_FAILED
        try:
            while parts:
                part = parts[0]
                if tries > 0:
                    part.rows[:] = _waited_for(part.rows)
                    if not part.rows:
                        parts.popleft()
                        continue
                    flight = self._depart(part, replica, monotonic())
                failure = await self._answer(part, replica, flight)
                tries += 1
                parts.popleft()
                if failure is None:
                    broken = broken and replica.failed > 0
                else:
                    replica.failed += 1
                    parts += self._halves(part, failure)
                    if broken and tries > _HALVES:
                        self._blame([row for part in parts for row in part.rows], failure)
                        break
                if not replica.serves:
                    self._repeat([row for part in parts for row in part.rows])
                    break
        except BaseException as error:
            # A mistake of ours, or the end of the loop: whoever waits is told before it goes on.
            for part in parts:
                self._fail(part.rows, RuntimeError(f"batch was lost: {error!r}"))
            raise
        finally:
            # At once, not in the next turn of the loop: on a busy loop that is when an engine
            # would have nothing to do.
            self._decide()

    async def _answer(
        self, batch: Batch[TextRow], replica: Replica, flight: Flight
    ) -> EngineModelError | EngineOutputError | None:
        """Asks one Triton, and answers, repeats or fails the batch by what it says.

        Returns:
            How the model failed at the batch, of which nobody has been told yet.
        """
        rows = batch.rows
        sent = monotonic()
        left = max(_LEAST_TIMEOUT_SECONDS, max(row.deadline for row in rows) - sent)
        patience = min(left, self._patience(rows, replica, sent))
        try:
            values = await self._infer(batch, replica, patience)
        except (EngineUnavailableError, EngineMissingModelError) as error:
            self._lose(replica, error)
            self._ended(rows, replica, flight)
            self._repeat(rows)
        except EngineTimeoutError as error:
            self._ended(rows, replica, flight)
            if patience < left:
                self._doubt(replica, error)
                self._repeat(rows)
            else:
                self._fail(rows, too_late())
        except (EngineModelError, EngineOutputError) as error:
            self._ended(rows, replica, flight)
            return error
        except BaseException:
            self._ended(rows, replica, flight)
            raise
        else:
            replica.failed = 0
            seconds = self._ended(rows, replica, flight)
            if self._lag.seconds() < _MOST_LAG * seconds:
                self.cost.observe(replica.address, batch.bucket, len(rows), seconds)
            tokens = sum(row.tokens for row in rows)
            self._meter.batch_finished(
                self.model, len(rows), tokens, batch.bucket * len(rows), seconds
            )
            for at, row in enumerate(rows):
                row.job.fill(row.index, values[at : at + 1])
        return None

    def _halves(self, batch: Batch[TextRow], failure: Exception) -> list[Batch[TextRow]]:
        """Half of the callers each, of a batch that the model failed at; a single one is told."""
        rows = _waited_for(batch.rows)
        jobs = list(dict.fromkeys(row.job for row in rows))
        if len(jobs) < _HALVES:
            self._blame(rows, failure)
            return []
        self._meter.batch_split(self.model)
        first = set(jobs[: len(jobs) // _HALVES])
        halves = ([r for r in rows if r.job in first], [r for r in rows if r.job not in first])
        return [Batch(batch.bucket, half, []) for half in halves]

    def _blame(self, rows: list[TextRow], failure: Exception) -> None:
        """Tells callers that the model failed at their texts."""
        rows = _waited_for(rows)
        if rows:
            told = {"model": self.model.name, "texts": len(rows), "reason": str(failure)}
            log.warning("model failed", extra=told)
            self._meter.texts_failed(self.model, len(rows))
            self._fail(rows, ModelFailedError(f"The model failed on these texts: {failure}"))

    def _patience(self, rows: list[TextRow], replica: Replica, now: float) -> float:
        """Seconds that one Triton may take before another is asked; no bound where none is."""
        another = any(each.serves for each in self.replicas if each is not replica)
        if not another or any(row.tries for row in rows):
            return math.inf
        share = _PATIENCE * (min(row.deadline for row in rows) - now)
        return max(share, _MOST_SLOWER * replica.expected_seconds, _LEAST_TIMEOUT_SECONDS)

    async def _infer(
        self, batch: Batch[TextRow], replica: Replica, timeout_seconds: float
    ) -> Values:
        rows, model = batch.rows, self.model
        paired = any(row.type_ids is not None for row in rows)
        types = [row.type_ids or [0] * len(row.ids) for row in rows] if paired else None
        work = Work(
            model=replica.model,
            output=model.output,
            tensors=model.padder.pad([row.ids for row in rows], batch.bucket, types),
        )
        output = await replica.engine.infer(work, timeout_seconds)
        if len(output) != len(rows):
            raise EngineModelError(f"{len(output)} rows of answers for {len(rows)} texts")
        return model.decode(output)

    def _ended(self, rows: list[TextRow], replica: Replica, flight: Flight) -> float:
        now = monotonic()
        seconds = replica.arrive(flight, now)
        for row in rows:
            row.came_back(flight.sent, now)
        return seconds

    def _lose(self, replica: Replica, error: Exception) -> None:
        if isinstance(error, EngineProcessGoneError):
            self._doubt(replica, error)
            return
        now = monotonic()
        log.warning("batch found no model", extra={"triton": replica.address, "reason": str(error)})
        if isinstance(error, EngineMissingModelError):
            if replica.serves:
                replica.breaker.fail(now)
        else:
            self._fleet.lost(replica.address, now)

    def _doubt(self, replica: Replica, error: Exception) -> None:
        """Sends a replica nothing for a while, whatever it says of itself."""
        if replica.serves:
            log.warning(
                "replica is doubted", extra={"triton": replica.address, "reason": str(error)}
            )
            replica.breaker.fail(monotonic(), at_least=_DOUBT_SECONDS)

    def _repeat(self, rows: list[TextRow]) -> None:
        """Queues texts again where another Triton serves; their place is by deadline as before."""
        for row in rows:
            row.tries += 1
            if row.job.future.done():
                continue
            if self.serves and row.tries < _MOST_TRIES:
                self._schedule.push(row)
            else:
                self.abandon(row.job, no_triton())

    def _fail(self, rows: list[TextRow], error: Exception) -> None:
        for row in rows:
            self.abandon(row.job, error)

    def _fail_waiting(self) -> None:
        for row in self._schedule.drain():
            self.abandon(row.job, no_triton())


def _waited_for(rows: list[TextRow]) -> list[TextRow]:
    return [row for row in rows if not row.job.future.done()]


_NOTHING: Values = np.empty((0, 0), np.float32)

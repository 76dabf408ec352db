"""Runs batches, of which each is run by one gateway at a time, and by another if that one is gone.

A gateway takes a batch by a lease and renews it; a lease that stays as it is for ``lease_seconds``,
by the clock of the gateway that looks at it, is of one that was killed or hangs. Two gateways that
run one batch nevertheless do no harm: answers to a piece of the input are kept once.

Rows are bulk requests of the batch's caller, answered by the same function as any other: admission
is asked for each, so that the key's endpoints and rate hold, and a key that is no longer valid ends
the batch. The vector space that answers first is asked for by its name from then on; an answer of
another one ends the batch too. What can't be answered now is tried again until the batch expires.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from contracts.backoff import Backoff
from gateway.admission.controller import AdmissionController
from gateway.admission.rate_limits import UNNAMED
from gateway.batch_jobs.records import (
    BatchEnd,
    BatchLease,
    BatchRecord,
    FileRecord,
    Outcome,
    derived_file_id,
    made_at,
)
from gateway.batch_jobs.store import BatchStore, PieceWriter, lines_of
from gateway.batch_jobs.upload import URL, RequestLine
from gateway.errors import (
    BatchStoreUnavailableError,
    GatewayError,
    ModelUnavailableError,
    UnknownFileError,
    forget_frames,
    internal_error,
)
from gateway.http.error_replies import ErrorForm, error_reply
from gateway.http.messages import Message, Reply, Request
from gateway.request_context import RequestContext

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
LOOK_SECONDS = 5.0
_BEATS = 6  # in the time of a lease
_SWEEP_SECONDS = 3600.0
_MOST_BATCHES = 2  # that one gateway runs at once
_MOST_ROWS = 8  # of one batch, on their way at once
_ROW_SECONDS = 60.0  # that a row may wait for idle capacity before it is tried again
_PAUSES = Backoff(0.5, 30.0, jitter=0.5)
_TRANSIENT = (429, 503, 504)
_KEY_GONE = (401, 403)
_OUTPUT_BYTES, _OUTPUT_LINES = 1024 * 1024, 4096  # of a piece of the output
_UNFINISHED_SECONDS = 3600
_LINE_BYTES = 256  # of a line of the output beside its answer
_SPACE = b"x-headrace-space"

T = TypeVar("T")
Answer = Callable[[Request], Coroutine[Any, Any, Reply]]
Key = tuple[str, str]  # owner and id of a batch

_lines = msgspec.json.Decoder(RequestLine)
_SENTENCES: dict[Outcome, str] = {
    "expired": "The request was not answered before the completion window ended.",
    "cancelled": "The batch was cancelled before the request was answered.",
}


@dataclass
class _Job:
    """A batch that is run here."""

    owner: str
    batch: BatchRecord
    number: int  # of the lease
    lease: BatchLease
    space: str | None = None
    outcome: Outcome = "completed"
    reason: str = ""
    pinning: asyncio.Lock = field(default_factory=asyncio.Lock)
    rows: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_ROWS))
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, outcome: Outcome, reason: str = "") -> None:
        """No row is asked any more."""
        if not self.stopped.is_set():
            self.outcome, self.reason = outcome, reason
            self.stopped.set()


class BatchRunner:
    """Runs the batches that fall to one gateway.

    Args:
        store: all batches.
        answer: answers one request for vectors, or raises a ``GatewayError``.
        admission: is told of rows that are refused, and counts the memory of answers.
        name: of this gateway, unlike any other's.
        lease_seconds: see the module.
        look_seconds: between two looks for batches.
        wall_clock: unix time, for what batches are told of time.
        clock: for leases.
    """

    def __init__(
        self,
        store: BatchStore,
        answer: Answer,
        admission: AdmissionController,
        name: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._answer = answer
        self._admission = admission
        self._name = name
        self._lease_seconds = lease_seconds
        self._look_seconds = look_seconds
        self._wall_clock = wall_clock
        self._clock = clock
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._seen: dict[Key, tuple[BatchLease, float]] = {}
        self._sweep_at = clock()
        self._news = asyncio.Event()
        self._away = False
        store.on_new = self.wake

    def wake(self) -> None:
        """There is a batch that nobody runs."""
        self._news.set()

    async def run(self) -> None:
        """Runs batches until it is cancelled; those that run then are left to other gateways."""
        try:
            while True:
                self._news.clear()
                try:
                    await self._look()
                    self._away = False
                except BatchStoreUnavailableError as error:
                    if not self._away:
                        log.warning("batches can't be looked for", extra={"reason": error.message})
                    self._away = True
                except Exception:
                    log.exception("a bug: batches can't be looked for")
                try:
                    async with asyncio.timeout(self._look_seconds):
                        await self._news.wait()
                except TimeoutError:
                    continue
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        """Takes batches that nobody runs, as long as there is room for them."""
        ask, store = self.store.ask, self.store
        if self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + _SWEEP_SECONDS
            await ask(partial(store.sweep, self._wall_clock()))
        if len(self._running) >= _MOST_BATCHES:
            return
        found = await ask(store.open_batches)
        self._seen = {key: seen for key, seen in self._seen.items() if key in found}
        while len(self._running) < _MOST_BATCHES:
            here = Counter(owner for owner, _ in self._running)
            free = [key for key in found if key not in self._running]
            if not free:
                return
            key = min(free, key=lambda each: here[each[0]])  # the oldest of the least served
            found.remove(key)
            taken = await self._take(key)
            if taken is not None:
                task = asyncio.create_task(self._run(key, *taken), name=f"batch {key[1]}")
                self._running[key] = task
                task.add_done_callback(partial(self._note_end, key))

    def _note_end(self, key: Key, _: "asyncio.Task[None]") -> None:
        del self._running[key]
        self.wake()

    async def _take(self, key: Key) -> tuple[int, BatchLease] | None:
        """The number of the lease and the lease, if the batch is this gateway's now."""
        store = self.store
        newest, lease = await store.ask(partial(store.lease, *key))
        if lease is not None and not lease.released:
            seen, since = self._seen.get(key, (None, 0.0))
            if seen != lease:
                self._seen[key] = lease, self._clock()
                return None
            if self._clock() - since < self._lease_seconds:
                return None
        since_unix = int(self._wall_clock()) if lease is None else lease.since
        mine = BatchLease(self._name, since=since_unix)
        if lease is not None:
            mine = msgspec.structs.replace(mine, completed=lease.completed, failed=lease.failed)
        number = newest + 1
        taken = await store.ask(partial(store.take, *key, number, mine))
        return (number, mine) if taken else None

    async def _run(self, key: Key, number: int, lease: BatchLease) -> None:
        owner, name = key
        store = self.store
        try:
            end = await store.ask(partial(store.end, *key))
            if end is not None:  # who ended it was killed before all of no use was removed
                await store.ask(partial(store.finish, *key, end))
                return
            try:
                batch = await store.ask(partial(store.batch, *key))
            except UnknownFileError:  # it is being made, or was removed
                if self._wall_clock() - made_at(name) > _UNFINISHED_SECONDS:
                    await store.ask(partial(store.close_batch, *key))
                return
            space = await store.ask(partial(store.space, *key))
            job = _Job(owner, batch, number, lease, space)
            log.info("runs a batch", extra={"batch": name, "endpoint": batch.model})
            try:
                await self._hold(job)
            except (asyncio.CancelledError, BatchStoreUnavailableError):
                await self._release(job)
                raise
            # After a bug the lease has to run out, or the batch would break off again at once.
            await self._release(job)
        except BatchStoreUnavailableError as error:
            log.warning("a batch is left", extra={"batch": name, "reason": error.message})
        except Exception:
            log.exception("a bug: a batch broke off", extra={"batch": name})

    async def _hold(self, job: _Job) -> None:
        """Works at a batch, and renews its lease; ends if another gateway has taken it."""
        work = asyncio.create_task(self._work(job), name=f"work at {job.batch.id}")
        try:
            while not work.done():
                await self._look_at_end(job)
                await asyncio.wait((work,), timeout=self._lease_seconds / _BEATS)
                if not work.done() and not await self._renew(job):
                    log.info("another gateway runs the batch", extra={"batch": job.batch.id})
                    return
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _look_at_end(self, job: _Job) -> None:
        if self._wall_clock() >= job.batch.expires_at:
            job.stop("expired")
            return
        store = self.store
        try:
            cancelled = await store.ask(partial(store.cancelled_at, job.owner, job.batch.id))
        except BatchStoreUnavailableError:
            return
        if cancelled is not None:
            job.stop("cancelled")

    async def _renew(self, job: _Job, *, released: bool = False) -> bool:
        job.lease = msgspec.structs.replace(job.lease, beat=job.lease.beat + 1, released=released)
        store = self.store
        renew = partial(store.renew, job.owner, job.batch.id, job.number, job.lease)
        try:
            return await store.ask(renew)
        except BatchStoreUnavailableError:
            return True  # another that takes it does no harm

    async def _release(self, job: _Job) -> None:
        await asyncio.shield(self._renew(job, released=True))

    async def _work(self, job: _Job) -> None:
        """Answers the pieces that are not answered, and ends the batch."""
        store, batch = self.store, job.batch
        key = job.owner, batch.id
        done = await store.ask(partial(store.parts, *key))
        lines_done = sum(batch.pieces[number].lines for number in done)
        failed = min(job.lease.failed, lines_done)  # as far as the holder before has said
        job.lease = msgspec.structs.replace(job.lease, completed=lines_done - failed, failed=failed)
        for number in range(len(batch.pieces)):
            if number in done:
                continue
            piece = partial(_read_piece, store, job.owner, batch.input_file_id, number)
            try:
                lines: list[RequestLine] = await self._patiently(piece)
            except UnknownFileError as gone:  # by other hands than a caller's
                job.stop("failed", gone.message)
                lines = []
            first = sum(each.lines for each in batch.pieces[:number])
            await self._answer_piece(job, number, first, lines)
        await self._finish(job)

    async def _answer_piece(
        self, job: _Job, number: int, first: int, lines: list[RequestLine]
    ) -> None:
        held = 0

        async def answer(index: int, line: RequestLine) -> tuple[bool, _Line]:
            nonlocal held
            found = await self._row(job, first + index, line)
            self._admission.held.add(found[1].size)
            held += found[1].size
            return found

        try:
            async with asyncio.TaskGroup() as group:
                rows = [group.create_task(answer(*each)) for each in enumerate(lines)]
            found = [row.result() for row in rows]
            answers = [line for is_answer, line in found if is_answer]
            errors = [line for is_answer, line in found if not is_answer]
            key = job.owner, job.batch.id
            put = partial(_put_part, self.store, key, number, answers, errors)
            await self._patiently(put)
        finally:
            self._admission.held.add(-held)
        job.lease = msgspec.structs.replace(
            job.lease,
            completed=job.lease.completed + len(answers),
            failed=job.lease.failed + len(errors),
        )

    async def _patiently(self, work: Callable[[], T]) -> T:
        """What the store gives, however long it is away."""
        return await self._persist(partial(self.store.ask, work))

    async def _persist(self, asking: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Asks again and again while the store is away; says once why."""
        failures = 0
        while True:
            try:
                return await asking()
            except BatchStoreUnavailableError as error:
                failures += 1
                if failures == 1:
                    reason = error.__cause__ or error.message  # the disk may be full
                    log.warning("a batch waits for its store", extra={"reason": str(reason)})
                await asyncio.sleep(_PAUSES.after(failures, _draw()))

    async def _row(self, job: _Job, index: int, request: RequestLine) -> tuple[bool, "_Line"]:
        """The line that answers a line of the input, and whether it is no error."""
        name = f"{job.batch.id}-{index}"
        failures = 0
        while not job.stopped.is_set():
            async with job.rows:
                if job.stopped.is_set():
                    break
                found = await self._ask(job, name, bytes(request.body))
            if isinstance(found, Reply):
                return True, _Line(name, request.custom_id, int(found.status), found.body)
            if found.status in _KEY_GONE:
                job.stop("failed", found.message)
            elif found.status not in _TRANSIENT:
                reply = error_reply(found, name, ErrorForm.OPENAI)
                return False, _Line(name, request.custom_id, int(reply.status), reply.body)
            failures += 1
            pause = max(found.retry_after_seconds or 0.0, _PAUSES.after(failures, _draw()))
            try:
                async with asyncio.timeout(pause):
                    await job.stopped.wait()
            except TimeoutError:
                continue
        message = job.reason or _SENTENCES.get(job.outcome, "")
        error = {"code": f"batch_{job.outcome}", "message": message}
        return False, _Line(name, request.custom_id, error=error)

    async def _ask(self, job: _Job, name: str, body: bytes) -> Reply | GatewayError:
        if job.space is not None:
            return await self._ask_once(job, name, body)
        async with job.pinning:  # one at a time, until one has answered
            return await self._ask_once(job, name, body)

    async def _ask_once(self, job: _Job, name: str, body: bytes) -> Reply | GatewayError:
        batch = job.batch
        context = RequestContext(
            name,
            time.time(),
            time.monotonic(),
            timeout_seconds=_ROW_SECONDS,
            space=job.space or batch.space,
            bulk=True,
            held_bytes=len(body),
            caller=batch.caller,
            recognised=True,
            rated_as=UNNAMED,
            deferred=True,
            held=self._admission.held,
        )
        request = Request("POST", URL, {}, {}, _no_more, context, body)
        known: GatewayError
        try:
            reply = await self._answer(request)
            space = dict(reply.headers).get(_SPACE, b"").decode()
            if job.space is None:
                pin = partial(self.store.pin, job.owner, batch.id, space)
                job.space = await self._patiently(pin)
            if space != job.space:
                job.stop(
                    "failed",
                    f"The vector space changed from {job.space or 'none'} to {space or 'none'} in "
                    "the middle of the batch.",
                )
                return ModelUnavailableError(job.reason)
        except GatewayError as error:
            known = error
        except Exception:
            log.exception("a bug: unexpected error", extra={"request_id": name})
            known = internal_error()
        else:
            return reply
        finally:
            context.release()
        self._admission.refused(context, known)
        forget_frames(known)
        return known

    async def _finish(self, job: _Job) -> None:
        """Makes the files of all parts, and ends the batch. Repeated, it writes the same."""
        try:
            end = await self._persist(partial(self._end, job))
        except UnknownFileError:  # of a part, as another gateway has ended the batch
            ended = partial(self.store.end, job.owner, job.batch.id)
            if await self._patiently(ended) is None:
                raise
            return
        fields = {"outcome": end.outcome, "completed": end.completed, "failed": end.failed}
        log.info("a batch is over", extra={"batch": job.batch.id, **fields})

    async def _end(self, job: _Job) -> BatchEnd:
        ask, store, batch = self.store.ask, self.store, job.batch
        key = job.owner, batch.id
        outputs = _Output(store, job.owner, batch, "o"), _Output(store, job.owner, batch, "e")
        for number in range(len(batch.pieces)):
            found = await ask(partial(store.part, *key, number))
            for output, lines in zip(outputs, found, strict=True):
                await ask(partial(output.add, lines))
        names = [await ask(each.close) for each in outputs]
        end = BatchEnd(
            job.outcome,
            int(self._wall_clock()),
            completed=outputs[0].lines,
            failed=outputs[1].lines,
            output_file_id=names[0],
            error_file_id=names[1],
            reason=job.reason,
        )
        await ask(partial(store.finish, *key, end))
        return end


class _Output:
    """The output of a batch, or its errors, as a file. Its methods block on the store."""

    def __init__(
        self, store: BatchStore, owner: str, batch: BatchRecord, kind: Literal["o", "e"]
    ) -> None:
        self._store = store
        self._owner = owner
        self._batch = batch
        self._id = derived_file_id(batch.id, batch.expires_at, kind)
        self._suffix = "output" if kind == "o" else "errors"
        self._writer = PieceWriter(
            store, owner, self._id, most_bytes=_OUTPUT_BYTES, most_lines=_OUTPUT_LINES
        )
        self.lines = 0

    def add(self, lines: list[bytes]) -> None:
        """Takes the lines of the next part."""
        self.lines += len(lines)
        for line in lines:
            self._writer.add(line)

    def close(self) -> str | None:
        """Makes the file and gives its id; None if it would be empty."""
        if not self.lines:
            return None
        self._writer.flush()
        record = FileRecord(
            id=self._id,
            created_at=self._batch.created_at,
            filename=f"{self._batch.id}_{self._suffix}.jsonl",
            purpose="batch_output",
            pieces=self._writer.pieces,
        )
        self._store.add_file(self._owner, record)
        return self._id


class _Line(NamedTuple):
    """A line of the output, which is written by the thread that keeps it: it may be of megabytes.

    ``error``: it was not answered.
    """

    name: str
    custom_id: str
    status: int = 0
    body: bytes = b""
    error: dict[str, str] | None = None

    @property
    def size(self) -> int:
        """About as many bytes it has."""
        return len(self.body) + _LINE_BYTES

    def encode(self) -> bytes:
        """As it is written, without its end."""
        answer = {
            "status_code": self.status,
            "request_id": self.name,
            "body": msgspec.Raw(self.body),
        }
        return msgspec.json.encode(
            {
                "id": f"batch_req_{self.name}",
                "custom_id": self.custom_id,
                "response": answer if self.error is None else None,
                "error": self.error,
            }
        )


# What lines of megabytes would hold the event loop for is done in the store's threads.


def _read_piece(store: BatchStore, owner: str, file: str, number: int) -> list[RequestLine]:
    return [_lines.decode(line) for line in lines_of(store.piece(owner, file, number))]


def _put_part(store: BatchStore, key: Key, number: int, *found: list[_Line]) -> None:
    answers, errors = ([each.encode() for each in lines] for lines in found)
    store.put_part(*key, number, answers, errors)


def _draw() -> float:
    return random.random()  # noqa: S311 - so that gateways do not ask at once


async def _no_more() -> Message:
    raise RuntimeError("this request's body is there")

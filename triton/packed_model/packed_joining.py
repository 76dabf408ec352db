"""Joins requests to runs, has them computed, and answers each of them exactly once.

Requests wait in order of arrival. One thread joins whole requests to a run and starts it; another
waits for results and answers. Two runs are on the way at most: one computes, and one is ready to
follow, whose members are chosen when ``packed_timetable`` says so, or once they fill a run. A run
that fails is tried again request by request, so that a failure is the failure of its own request
alone. It knows neither torch nor Triton: both are passed in. ``gpu_faults.py`` beside it says which
failures are a lost GPU.
"""

import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import gpu_faults
import numpy as np
from packed_timetable import Timetable

RUNS_ON_THE_WAY = 2
# To ask Triton whether a caller is gone takes a message to its process and back.
ASK_SECONDS = 0.05
# A result that takes no longer was there before it was asked for.
_AT_ONCE_SECONDS = 0.00002


@dataclass(frozen=True)
class RunLimits:
    """What is held and run at most.

    Attributes:
        run_tokens: of one run; a single request may have more.
        run_rows: the same of rows.
        held_tokens: of all requests that are not answered yet; a single one may have more.
        row_tokens: of one row.
        vocabulary: ids are less.
        types: ids of types are less; 0 if the model has none.
    """

    run_tokens: int
    run_rows: int
    held_tokens: int
    row_tokens: int
    vocabulary: int
    types: int = 0


@dataclass(eq=False)
class PackedRequest:
    """A request: its rows, and whom to answer.

    Attributes:
        ids: int32 ``[T]``.
        starts: int32 ``[n + 1]``.
        types: uint8 ``[T]``; None if all are 0.
        caller: of ``Replies``.
        since: when it came, by ``time.monotonic``.
    """

    ids: np.ndarray
    starts: np.ndarray
    types: np.ndarray | None = None
    caller: Any = None
    since: float = field(default_factory=time.monotonic)

    @property
    def rows(self) -> int:
        """Its rows."""
        return len(self.starts) - 1


class RunResult(Protocol):
    """A run on its way."""

    @property
    def tokens(self) -> int:
        """That are computed, those that fill up included."""

    def values(self) -> np.ndarray:
        """Waits for what was computed; raises what failed."""

    def seconds(self) -> float:
        """How long the device computed; once ``values`` are there."""


class Meter(Protocol):
    """Counts what the engine did."""

    def note_run(self, messages: int, tokens: int, computed: int, seconds: float) -> None:
        """A run is over: its messages, their tokens, all that were computed, and its time."""

    def note_refusal(self) -> None:
        """A request found too much held."""

    def note_retry(self, messages: int) -> None:
        """Requests of a run that failed are tried again, each by itself."""


class NoMeter:
    """Counts nothing."""

    def note_run(self, messages: int, tokens: int, computed: int, seconds: float) -> None:
        """See ``Meter``."""

    def note_refusal(self) -> None:
        """See ``Meter``."""

    def note_retry(self, messages: int) -> None:
        """See ``Meter``."""


class Runner(Protocol):
    """What computes."""

    def begin(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> RunResult:
        """Starts a run; may wait until it is over."""

    def free_memory(self) -> None:
        """Gives back memory that nothing uses."""


class Replies(Protocol):
    """How requests are answered: by one call for each, ``is_gone`` aside."""

    def answer(self, asked: PackedRequest, values: np.ndarray) -> None:
        """Sends values."""

    def fail(self, asked: PackedRequest, reason: str) -> None:
        """Sends an error."""

    def drop(self, asked: PackedRequest) -> None:
        """Ends a request whose caller is gone."""

    def is_gone(self, asked: PackedRequest) -> bool:
        """Whether the caller gave up."""


def check_request(asked: PackedRequest, limits: RunLimits) -> PackedRequest:
    """The request, if it can be run; raises ``ValueError`` with what is wrong with it.

    An id that is out of range would end the process on a GPU, and every request with it.
    """
    ids, starts, types = asked.ids, asked.starts, asked.types
    if ids is None or starts is None:
        raise ValueError("input_ids and row_starts are needed")
    if ids.dtype != np.int32 or starts.dtype != np.int32 or ids.ndim != 1 or starts.ndim != 1:
        raise ValueError("input_ids and row_starts must be INT32 of one dimension each")
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(ids):
        raise ValueError(f"row_starts must begin with 0 and end with the {len(ids)} tokens")
    lengths = np.diff(starts)
    if lengths.min() < 1:
        raise ValueError("row_starts must grow: each row has a token at least")
    if lengths.max() > limits.row_tokens:
        raise ValueError(f"a row of {lengths.max()} tokens is over the model's {limits.row_tokens}")
    if ids.min() < 0 or ids.max() >= limits.vocabulary:
        raise ValueError(f"input_ids must be from 0 to {limits.vocabulary - 1}")
    if types is None:
        return asked
    if types.dtype != np.uint8 or types.shape != ids.shape:
        raise ValueError("token_type_ids must be UINT8, one for each of input_ids")
    if types.max() >= max(limits.types, 1):
        raise ValueError(f"token_type_ids must be less than {max(limits.types, 1)}")
    return asked


def join_rows(
    members: Sequence[PackedRequest],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Ids, starts and types of the rows of all, one after the other."""
    if len(members) == 1:
        return members[0].ids, members[0].starts, members[0].types
    ids = np.concatenate([each.ids for each in members])
    begins = np.cumsum([0, *(len(each.ids) for each in members)])
    starts = np.concatenate(
        [
            np.zeros(1, np.int32),
            *(each.starts[1:] + begin for each, begin in zip(members, begins, strict=False)),
        ]
    ).astype(np.int32)
    if all(each.types is None for each in members):
        return ids, starts, None
    types = [
        np.zeros(len(each.ids), np.uint8) if each.types is None else each.types for each in members
    ]
    return ids, starts, np.concatenate(types)


def parts(
    members: Sequence[PackedRequest], values: np.ndarray, *, by_token: bool
) -> list[np.ndarray]:
    """What belongs to each of them."""
    sizes = [len(each.ids) if by_token else each.rows for each in members]
    if sum(sizes) != len(values):
        raise RuntimeError(f"{len(values)} answers for {sum(sizes)} questions")
    return np.split(values, np.cumsum(sizes)[:-1])


def is_full(error: BaseException) -> bool:
    """Whether memory did not suffice: less at a time may succeed."""
    return isinstance(error, MemoryError) or gpu_faults.is_memory(str(error))


def is_lost(error: BaseException) -> bool:
    """Whether the GPU can't be used by this process any more, whatever is asked next."""
    return not isinstance(error, MemoryError) and gpu_faults.ends_process(str(error))


class PackedQueue:
    """Requests that wait, the tokens of all that are held, and whose turn it is; for threads."""

    def __init__(self, limits: RunLimits) -> None:
        self._limits = limits
        self._timetable = Timetable()
        self._requests: deque[PackedRequest] = deque()
        self._tokens = self._rows = 0  # of those
        self._unanswered: dict[PackedRequest, None] = {}  # in order of arrival
        self._held = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Tokens of requests that are not answered yet."""
        with self._changed:
            return self._held

    def offer(self, asked: PackedRequest) -> bool:
        """Takes a request, or refuses it because too much is held."""
        with self._changed:
            tokens = len(asked.ids)
            if self._closed or (self._held and self._held + tokens > self._limits.held_tokens):
                return False
            self._held += tokens
            self._unanswered[asked] = None
            self._requests.append(asked)
            self._tokens += tokens
            self._rows += asked.rows
            if len(self._requests) == 1 or self._fill_a_run():
                self._changed.notify()
            return True

    def take(self) -> list[PackedRequest]:
        """Waits until it is time to choose a run; gives its members. None once it is closed."""
        with self._changed:
            has_waited = False
            while not self._closed:
                left = None
                if self._requests:
                    left = self._timetable.due() - time.monotonic()
                    if left <= 0 or self._fill_a_run():
                        break
                    has_waited = True
                self._changed.wait(left)
            taken = self._choose()
            if taken:
                tokens = sum([len(each.ids) for each in taken])
                self._timetable.choose(tokens, time.monotonic(), has_waited=has_waited)
            return taken

    def note_launch(self) -> None:
        """The run that was taken last is on the device, or will follow there by itself."""
        with self._changed:
            self._timetable.launch()

    def note_drop(self) -> None:
        """Nobody waits for the run that was taken last: it does not take place."""
        with self._changed:
            self._timetable.give_up()

    def note_end(self, seconds: float | None, *, was_awaited: bool) -> None:
        """The first of the runs is over; see ``Timetable.end``."""
        with self._changed:
            since = self._requests[0].since if self._requests else None
            self._timetable.end(
                time.monotonic(), seconds, was_awaited=was_awaited, waits_since=since
            )
            self._changed.notify()

    def leave(self, asked: PackedRequest) -> bool:
        """A request is about to be answered; false if it was already."""
        with self._changed:
            if asked not in self._unanswered:
                return False
            del self._unanswered[asked]
            self._held -= len(asked.ids)
            return True

    def give_up(self) -> list[PackedRequest]:
        """Takes no more and gives out no more; those that are not answered yet."""
        with self._changed:
            self._requests.clear()
            self._closed = True
            self._changed.notify_all()
            return list(self._unanswered)

    def close(self) -> None:
        """Takes no more; those that wait are still given out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fill_a_run(self) -> bool:
        limits = self._limits
        return self._tokens >= limits.run_tokens or self._rows >= limits.run_rows

    def _choose(self) -> list[PackedRequest]:
        """As many of those that wait as one run has room for."""
        taken: list[PackedRequest] = []
        tokens = rows = 0
        while self._requests:
            tokens += len(self._requests[0].ids)
            rows += self._requests[0].rows
            over = tokens > self._limits.run_tokens or rows > self._limits.run_rows
            if taken and over:
                break
            asked = self._requests.popleft()
            self._tokens -= len(asked.ids)
            self._rows -= asked.rows
            taken.append(asked)
        return taken


def end_process(reason: str) -> None:
    """Ends the process: the loader starts another, on a clean GPU."""
    os.write(2, f"model process ends: {reason}\n".encode())
    os._exit(1)


class RunPipeline:
    """Two threads: one that joins and starts runs, one that answers.

    Args:
        runner: computes.
        replies: answers.
        limits: of runs and of what is held.
        by_token: whether there is an answer for each token; else for each row.
        meter: counts.
        alive: called before requests are run and before they are answered.
        end: ends the process, with the reason.
    """

    def __init__(
        self,
        runner: Runner,
        replies: Replies,
        limits: RunLimits,
        *,
        by_token: bool = False,
        meter: Meter | None = None,
        alive: Callable[[], None] = lambda: None,
        end: Callable[[str], None] = end_process,
    ) -> None:
        self.limits = limits
        self._runner = runner
        self._replies = replies
        self._by_token = by_token
        self._meter = meter or NoMeter()
        self._alive = alive
        self._end = end
        self._waiting = PackedQueue(limits)
        self._room = threading.Semaphore(RUNS_ON_THE_WAY)
        self._starting = threading.Lock()  # a second try starts runs too, beside the joining thread
        self._begun: queue.SimpleQueue[tuple[list[PackedRequest], RunResult | Exception] | None]
        self._begun = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._guard, args=(loop,), name=name, daemon=True)
            for name, loop in (("join", self._join), ("answer", self._answer))
        ]

    def start(self) -> None:
        """Starts both threads."""
        for thread in self._threads:
            thread.start()

    def offer(self, asked: PackedRequest) -> None:
        """Takes a request, or answers it with the reason why not."""
        try:
            check_request(asked, self.limits)
        except ValueError as error:
            self._replies.fail(asked, f"engine: {error}")
            return
        if not self._waiting.offer(asked):
            self._meter.note_refusal()
            held = self._waiting.held
            # Not after "engine: ", by which gateways know what is the model's own fault.
            self._replies.fail(asked, f"queue is full: {held} tokens are held")

    def close(self) -> None:
        """Answers what was taken, and ends both threads."""
        self._waiting.close()
        for thread in self._threads:
            thread.join()

    def _guard(self, loop: Callable[[], None]) -> None:
        """A thread that dies would leave requests without an answer for ever: all ends with it."""
        try:
            loop()
        except Exception as error:  # noqa: BLE001 - whatever it is
            traceback.print_exc(file=sys.stderr)
            self._end_all(f"it can't answer any more: {error!r}")

    def _join(self) -> None:
        while True:
            self._room.acquire()  # first: what comes meanwhile joins
            members = self._waiting.take()
            if not members:
                self._begun.put(None)
                return
            self._alive()
            members = [each for each in members if not self._is_dropped(each)]
            if members:
                begun = self._start(members)
                self._waiting.note_launch()
                self._begun.put((members, begun))
            else:
                self._waiting.note_drop()
                self._room.release()

    def _answer(self) -> None:
        while (begun := self._begun.get()) is not None:
            members, result = begun
            asked = time.monotonic()
            values = self._finish(members, result)
            was_awaited = time.monotonic() - asked > _AT_ONCE_SECONDS
            if isinstance(values, Exception) or isinstance(result, Exception):
                took = None
            else:
                took = result.seconds()
            self._waiting.note_end(took, was_awaited=was_awaited)
            if isinstance(values, Exception):
                self._run_apart(members, values)
                self._room.release()
            else:
                self._room.release()  # first: the device must not wait until answers are sent
                self._send(members, values)

    def _is_dropped(self, asked: PackedRequest) -> bool:
        if time.monotonic() - asked.since < ASK_SECONDS:
            return False
        try:
            gone = self._replies.is_gone(asked)
        except Exception:  # noqa: BLE001 - who can't be asked is answered
            gone = False
        if not gone:
            return False
        self._over(asked, partial(self._replies.drop, asked))
        return True

    def _start(self, members: Sequence[PackedRequest]) -> RunResult | Exception:
        try:
            with self._starting:
                return self._runner.begin(*join_rows(members))
        except Exception as error:  # noqa: BLE001 - torch's errors have no common base
            return error

    def _finish(
        self, members: Sequence[PackedRequest], result: RunResult | Exception
    ) -> np.ndarray | Exception:
        if isinstance(result, Exception):
            return result
        try:
            values = result.values()
        except Exception as error:  # noqa: BLE001 - as above
            return error
        tokens = sum([len(each.ids) for each in members])
        self._meter.note_run(len(members), tokens, result.tokens, result.seconds())
        return values

    def _run_apart(self, members: list[PackedRequest], error: Exception) -> None:
        """After a failure: each request by itself, unless it was by itself."""
        self._end_if_lost(error)
        if is_full(error):
            self._runner.free_memory()
        elif len(members) == 1:
            self._fail(members[0], error)
            return
        self._meter.note_retry(len(members))
        for asked in members:
            values = self._finish([asked], self._start([asked]))
            if isinstance(values, Exception):
                self._end_if_lost(values)
                self._fail(asked, values)
            else:
                self._send([asked], values)

    def _end_if_lost(self, error: Exception) -> None:
        if is_lost(error):
            self._end_all(f"the GPU can't be used any more: {error}")

    def _end_all(self, reason: str) -> None:
        """Ends the process. Triton tells nobody whose request ended with one, so this does before.

        Gateways and loaders know these words, which are Triton's: another one is asked.
        """
        self._alive()
        for asked in self._waiting.give_up():
            self._over(asked, partial(self._replies.fail, asked, f"Stub process ends: {reason}"))
        self._end(reason)

    def _send(self, members: list[PackedRequest], values: np.ndarray) -> None:
        self._alive()
        for asked, part in zip(
            members, parts(members, values, by_token=self._by_token), strict=True
        ):
            if np.isfinite(part).all():
                self._over(asked, partial(self._replies.answer, asked, part))
            else:
                self._fail(asked, ValueError("the model gives NaN or infinity for it"))

    def _fail(self, asked: PackedRequest, error: Exception) -> None:
        reason = f"the memory does not suffice: {error}" if is_full(error) else error
        self._over(asked, partial(self._replies.fail, asked, f"engine: {reason}"))

    def _over(self, asked: PackedRequest, reply: Callable[[], None]) -> None:
        """The one reply that a request gets; Triton may refuse it, if its caller is gone."""
        if not self._waiting.leave(asked):
            return
        try:
            reply()
        except Exception:  # noqa: BLE001 - it is only this request's
            traceback.print_exc(file=sys.stderr)

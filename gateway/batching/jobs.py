"""A ``Job`` is one call in a batcher: its texts as rows, the future of their values, its deadline.

A batcher makes one for each call that is submitted, and fills it as batches are answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from gateway.batching.bulk import Delay
from gateway.batching.waiting_rows import Row

_LEAST_REVIEW = 512  # jobs in the heap of deadlines before those that ended are swept out

Values = NDArray[np.float32]


class TextRow(Row):
    """One text of a job.

    Its seconds in the queue and at Tritons, of all tries together, do not overlap.
    """

    __slots__ = ("ids", "index", "infer", "job", "since", "tries", "type_ids", "wait")

    def __init__(
        self, job: "Job", index: int, ids: Sequence[int], *, bucket: int, enqueued: float
    ) -> None:
        lengths = (bucket, len(ids))
        super().__init__(job.endpoint, lengths, enqueued=enqueued, deadline=job.deadline)
        self.job = job
        self.index = index
        self.ids = ids
        self.type_ids: Sequence[int] | None = None
        self.tries = 0
        self.wait = 0.0
        self.infer = 0.0
        self.since = enqueued  # when it last came into the batcher


def mark_sent(rows: Sequence[TextRow], at: float) -> None:
    """Records that the rows' batch was sent, at a time of the event loop's clock in seconds."""
    for row in rows:
        row.wait += at - row.since


def mark_ended(rows: Sequence[TextRow], sent: float, now: float) -> None:
    """Records that the rows' batch has ended, answered or not."""
    seconds = now - sent
    for row in rows:
        row.infer += seconds
        row.since = now


class Job:
    """The rows of one call on one package; await ``future`` for their values.

    These are float32 ``[rows, width]``, or ``[tokens of all rows, width]`` of labels of tokens.
    The batcher fails it at its deadline. A job that has ended has no ``rows``: rows refer to their
    job, and a circle would stay until the garbage collector stops all requests to look for it.
    """

    __slots__ = (
        "_times", "bulk", "deadline", "delay", "endpoint", "future", "rows", "unanswered", "values",
        "waits",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: str,
        deadline: float,
        future: "asyncio.Future[Values]",
        *,
        waits: bool = True,
        bulk: bool = False,
    ) -> None:
        self.waits = waits  # for a Triton to come back
        self.bulk = bulk
        self.delay: Delay | None = None  # by bulk batches
        self.endpoint = endpoint
        self.deadline = deadline
        self.future = future
        self.rows: list[TextRow] = []
        self.values: list[Values] = []
        self.unanswered = 0
        self._times = (0.0, 0.0)

    @property
    def times(self) -> tuple[float, float]:
        """Seconds in the queue and at Tritons of the text that has taken longest.

        Their sum never exceeds the time that has passed.
        """
        rows = self.rows
        if len(rows) == 1:
            return rows[0].wait, rows[0].infer
        if not rows:
            return self._times
        totals = [row.wait + row.infer for row in rows]
        slowest = rows[totals.index(max(totals))]
        return slowest.wait, slowest.infer

    def fill(self, index: int, rows: int, values: Values) -> None:
        """Sets the values of one row, or of all rows in their order; the last completes the job.

        Does nothing if the job has ended.

        Args:
            index: of the first row.
            rows: 1, or as many as the job has.
            values: of these rows.
        """
        if self.future.done():
            return
        self.unanswered -= rows
        if rows < len(self.rows):
            if not self.values:
                self.values = [_NO_VALUES] * len(self.rows)
            self.values[index] = values
            if self.unanswered > 0:
                return
            values = np.concatenate(self.values)
        self._let_go()
        self.future.set_result(values)

    def end(self, error: Exception | None = None) -> None:
        """Ends the job with an error, or cancels it, unless it has ended."""
        self._let_go()
        if self.future.done():
            return
        if error is None:
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def _let_go(self) -> None:
        self._times = self.times
        self.rows.clear()


def parts(rows: Sequence[TextRow]) -> list[int]:
    """Numbers of successive rows of a batch that are answered together.

    The rows of a job that all lie in the batch in their order, else one row.
    """
    counts: list[int] = []
    at, end = 0, len(rows)
    while at < end:
        job = rows[at].job
        size = len(job.rows)
        count = 1
        if size > 1 and at + size <= end:
            count = 0
            while count < size and rows[at + count] is job.rows[count]:
                count += 1
            if count < size:
                count = 1
        counts.append(count)
        at += count
    return counts


_NO_VALUES: Values = np.empty((0, 0), np.float32)


class Deadlines:
    """Calls back for jobs that have not ended by their deadlines.

    One timer for all jobs: a timer each would cost as much as the rest of the queue.

    Args:
        loop: the batcher's.
        late: called with each job that has not ended by its deadline.
        clock: the loop's, seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        late: Callable[[Job], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._late = late
        self._clock = clock
        self._alarm: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[float, int, Job]] = []
        self._review_at = _LEAST_REVIEW
        self._jobs = 0

    def watch(self, job: Job) -> None:
        """Takes a new job."""
        waiting = self._waiting
        if len(waiting) >= self._review_at:
            # Jobs that were answered long before their deadline don't stay in memory until then.
            waiting[:] = [entry for entry in waiting if not entry[2].future.done()]
            heapify(waiting)
            self._review_at = 2 * len(waiting) + _LEAST_REVIEW
        heappush(waiting, (job.deadline, self._jobs, job))
        self._jobs += 1
        if waiting[0][2] is job or self._alarm is None:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        waiting = self._waiting
        while waiting and waiting[0][2].future.done():
            heappop(waiting)
        self._alarm = self._loop.call_at(waiting[0][0], self._ring) if waiting else None

    def _ring(self) -> None:
        now = self._clock()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, job = heappop(self._waiting)
            if not job.future.done():
                self._late(job)
        self._set_alarm()

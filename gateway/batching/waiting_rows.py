"""The waiting rows of one package, in queues of endpoints that share its instances fairly. Pure.

What both kinds of schedule stand on. Endpoints share the instances by start-time fair queueing, in
whose terms each endpoint is a flow. Which rows make a batch, and when it is sent, is for the
schedules: ``schedule.py`` for padded rows, ``packed_schedule.py`` for packed ones.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from gateway.batching.cost_model import Costs

# A row expires early if the time to its deadline is shorter than this share of its cost alone.
_LEAST_FIT = 0.8


class Row:
    """One text on its way to an instance; ``TextRow`` adds what the batcher needs.

    ``bucket`` and ``tokens`` are its lengths with and without padding, the same for a packed
    engine; times are the event loop's, in seconds.
    """

    __slots__ = ("bucket", "cost", "deadline", "endpoint", "enqueued", "number", "tokens")

    def __init__(
        self, endpoint: str, lengths: tuple[int, int], *, enqueued: float, deadline: float
    ) -> None:
        self.endpoint = endpoint
        self.bucket, self.tokens = lengths
        self.enqueued = enqueued
        self.deadline = deadline
        self.cost = 0.0  # engine seconds, as estimated when it was queued
        self.number = -1  # -1 while in no queue


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Slots:
    """The batches that the package's instances can take now.

    Attributes:
        idle: instances that run nothing.
        spare: batches that may be sent ahead. They wait at a busy instance, which begins the next
            one as soon as it is idle.
        free_at: when the first busy instance that may get one is expected to be idle.
        running: engine seconds of the batch that it finishes then.
    """

    idle: int
    spare: int
    free_at: float = 0.0
    running: float = 0.0


class Batch(Generic[R]):
    """Rows to send now, padded to ``bucket``; ``expired`` rows can't be answered in time."""

    __slots__ = ("bucket", "expired", "rows")

    def __init__(self, bucket: int, rows: list[R], expired: list[R]) -> None:
        self.bucket = bucket
        self.rows = rows
        self.expired = expired

    @property
    def shape(self) -> tuple[int, int]:
        """Row length and rows, as ``Costs`` count them."""
        return self.bucket, len(self.rows)

    def part(self, rows: list[R]) -> "Batch[R]":
        """A batch of some of its rows."""
        return Batch(self.bucket, rows, [])


class Queue(Generic[R]):
    """Rows of one endpoint, and of one bucket if rows are padded; the one due first in front."""

    __slots__ = ("bucket", "rows")

    def __init__(self, bucket: int) -> None:
        self.bucket = bucket
        self.rows: list[tuple[float, int, R]] = []

    def push(self, row: R) -> None:
        """Queues a row by its deadline."""
        entry = (row.deadline, row.number, row)
        if not self.rows or self.rows[-1] < entry:
            self.rows.append(entry)
        else:
            insort(self.rows, entry)

    def remove(self, row: R) -> None:
        """Takes out a row that is in it."""
        at = bisect_left(self.rows, (row.deadline, row.number))
        del self.rows[at]


class Flow(Generic[R]):
    """One endpoint's queues, and its virtual time: the engine seconds that it has been given."""

    __slots__ = ("backlog", "queues", "rows", "virtual_time")

    def __init__(self) -> None:
        self.queues: dict[int, Queue[R]] = {}
        self.virtual_time = 0.0
        self.backlog = 0.0  # engine seconds
        self.rows = 0


class WaitingRows(ABC, Generic[R]):
    """The waiting rows of one package.

    Args:
        cost: of batches.
        by_bucket: an endpoint has a queue for each length bucket; else one, whose key is 0.
    """

    def __init__(self, cost: Costs, *, by_bucket: bool) -> None:
        self._cost = cost
        self._by_bucket = by_bucket
        self._flows: dict[str, Flow[R]] = {}
        self._virtual_time = 0.0
        self._number = 0
        self.rows = 0

    def push(self, rows: Sequence[R]) -> None:
        """Queues rows of one endpoint, at least one."""
        endpoint = rows[0].endpoint
        flow = self._flows.get(endpoint)
        if flow is None:
            flow = self._flows[endpoint] = Flow()
        if flow.rows == 0:
            # An endpoint that was idle has not saved up engine time for later.
            flow.virtual_time = max(flow.virtual_time, self._virtual_time)
            flow.backlog = 0.0
        by_bucket = self._by_bucket
        queue: Queue[R] | None = None
        for row in rows:
            if queue is None or (by_bucket and queue.bucket != row.bucket):
                queue = self._queue(flow, row)
            row.number = self._number
            self._number += 1
            row.cost = self._cost.row_seconds(row.bucket)
            queue.push(row)
            flow.backlog += row.cost
        flow.rows += len(rows)
        self.rows += len(rows)

    def remove(self, row: R) -> None:
        """Takes out a row whose job has ended; does nothing if it is in no queue."""
        if row.number < 0:
            return
        flow = self._flows[row.endpoint]
        self._queue(flow, row).remove(row)
        self._count_out(flow, (row,))

    def drain(self) -> list[R]:
        """Takes every row out, in no particular order."""
        rows = [
            entry[2]
            for flow in self._flows.values()
            for queue in flow.queues.values()
            for entry in queue.rows
        ]
        for row in rows:
            self.remove(row)
        return rows

    def wait_seconds(self, endpoint: str) -> float:
        """Engine seconds that would be served before a new row of this endpoint.

        An endpoint waits for its own rows, and for others' only up to its own share.
        """
        if self.rows == 0:
            return 0.0
        own = self._flows.get(endpoint)
        mine = own.backlog if own is not None and own.rows else 0.0
        if len(self._flows) == 1:
            return mine
        others = (flow for flow in self._flows.values() if flow.rows and flow is not own)
        return mine + sum(min(flow.backlog, mine) for flow in others)

    def least_seconds(self) -> float:
        """Engine seconds of the row that leaves next, by itself; only if any waits."""
        first = min(queue.rows[0] for queue in self._next_flow().queues.values() if queue.rows)
        return self._cost.seconds(first[2].bucket, 1)

    @abstractmethod
    def take(self, now: float, slots: Slots, most_seconds: float = inf) -> Batch[R] | float | None:
        """The batch to send now, or the time to ask again, or None to ask at the next change.

        Args:
            now: the event loop's clock, seconds.
            slots: what the instances can take.
            most_seconds: of the engine, for a batch of more than one row.
        """

    def _queue(self, flow: Flow[R], row: R) -> Queue[R]:
        """The row's queue among those of its endpoint."""
        key = row.bucket if self._by_bucket else 0
        queue = flow.queues.get(key)
        if queue is None:
            queue = flow.queues[key] = Queue(key)
        return queue

    def _next_flow(self) -> Flow[R]:
        """The endpoint that has been given least; only if any row waits."""
        return min((f for f in self._flows.values() if f.rows), key=lambda f: f.virtual_time)

    def _drop_expired(self, flow: Flow[R], queue: Queue[R], now: float) -> list[R]:
        """Takes out rows that can't be answered in time, while there is other work to do.

        A lone row is always tried, so that a wrong cost estimate can't refuse every row for ever.
        """
        expired: list[R] = []
        while queue.rows and self.rows > 1:
            row = queue.rows[0][2]
            if row.deadline >= now + _LEAST_FIT * self._cost.seconds(row.bucket, 1):
                break
            del queue.rows[0]
            self._count_out(flow, (row,))
            expired.append(row)
        return expired

    def _count_out(self, flow: Flow[R], rows: Sequence[R]) -> None:
        """Counts rows of a flow that have left their queues."""
        for row in rows:
            row.number = -1
            flow.backlog -= row.cost
        flow.rows -= len(rows)
        self.rows -= len(rows)

"""Which rows go to the engine next, and when: the batcher's decisions, with the time passed in.

There is one ``Schedule`` for each package. Rows wait in one queue for each (endpoint, length
bucket). Endpoints share the engine by start-time fair queueing, in whose terms each endpoint is a
flow. Within an endpoint, the queue whose first row has the earliest deadline is served, among those
queues whose batch is worth sending. Nothing here waits, sends or reads a clock.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.batching.cost_model import Costs

# How long before an engine falls free the next batch leaves here, as a share of the engine time
# that its predecessor takes, and at least (seconds): a batch that leaves too late idles the
# engine, one that leaves too early might have been fuller.
_LEAD_SHARE = 0.1
_LEAST_LEAD_SECONDS = 0.002

# A row expires early if the time to its deadline is shorter than this share of its cost alone.
_LEAST_FIT = 0.8


class Row:
    """One text on its way to the engine; ``TextRow`` adds what the batcher needs.

    ``bucket`` and ``tokens`` are its lengths with and without padding; times are the event loop's,
    in seconds.
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
    """Room at the engines that hold the package.

    ``idle`` engines run nothing; ``spare`` batches more may be sent ahead to busy ones; the first
    busy engine is expected to fall free at ``free_at`` after a batch of ``running`` seconds.
    """

    idle: int
    spare: int
    free_at: float = 0.0
    running: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch(Generic[R]):
    """Rows to send now, padded to ``bucket``; the callers of ``expired`` rows are told at once."""

    bucket: int
    rows: list[R]
    expired: list[R]


class _Queue(Generic[R]):
    """Rows of one endpoint and bucket, the one due first in front."""

    __slots__ = ("bucket", "rows")

    def __init__(self, bucket: int) -> None:
        self.bucket = bucket
        self.rows: list[tuple[float, int, R]] = []

    def push(self, row: R) -> None:
        entry = (row.deadline, row.number, row)
        if not self.rows or self.rows[-1] < entry:
            self.rows.append(entry)
        else:
            insort(self.rows, entry)

    def remove(self, row: R) -> None:
        at = bisect_left(self.rows, (row.deadline, row.number))
        del self.rows[at]


class _Flow(Generic[R]):
    """One endpoint's queues, and its virtual time: the engine seconds that it has been given."""

    __slots__ = ("backlog", "queues", "rows", "virtual_time")

    def __init__(self) -> None:
        self.queues: dict[int, _Queue[R]] = {}
        self.virtual_time = 0.0
        self.backlog = 0.0  # engine seconds
        self.rows = 0


class Schedule(Generic[R]):
    """The waiting rows of one package."""

    def __init__(self, cost: Costs) -> None:
        self._cost = cost
        self._flows: dict[str, _Flow[R]] = {}
        self._virtual_time = 0.0
        self._number = 0
        self.rows = 0
        self.tokens = 0

    def push(self, row: R) -> None:
        """Queues a row."""
        flow = self._flows.get(row.endpoint)
        if flow is None:
            flow = self._flows[row.endpoint] = _Flow()
        if flow.rows == 0:
            # An endpoint that was idle has not saved up engine time for later.
            flow.virtual_time = max(flow.virtual_time, self._virtual_time)
            flow.backlog = 0.0
        queue = flow.queues.get(row.bucket)
        if queue is None:
            queue = flow.queues[row.bucket] = _Queue(row.bucket)
        row.number = self._number
        self._number += 1
        row.cost = self._cost.row_seconds(row.bucket)
        queue.push(row)
        self._count(flow, row, 1)

    def remove(self, row: R) -> None:
        """Takes out a row for which no caller waits any more; does nothing if it is in no queue."""
        if row.number < 0:
            return
        flow = self._flows[row.endpoint]
        flow.queues[row.bucket].remove(row)
        self._leave_queue(flow, row)

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

    def take(self, now: float, slots: Slots) -> Batch[R] | float | None:
        """The batch to send now, or when to ask again, or None: at the next change.

        Args:
            now: the event loop's clock, seconds.
            slots: room at the engines.
        """
        if self.rows == 0 or (slots.idle == 0 and slots.spare == 0):
            return None
        flow = min((f for f in self._flows.values() if f.rows), key=lambda f: f.virtual_time)
        queue = self._pick(flow, now)
        if slots.idle == 0 and len(queue.rows) < self._cost.best_rows(queue.bucket):
            # All engines are busy: a batch that isn't full gains by waiting until one falls free.
            lead = max(_LEAST_LEAD_SECONDS, _LEAD_SHARE * slots.running)
            send_at = slots.free_at - lead
            if now < send_at:
                return send_at
        return self._cut(flow, queue, now, slots.idle)

    def _pick(self, flow: _Flow[R], now: float) -> _Queue[R]:
        """The queue to serve: due first among those worth sending, else due first of all."""
        waiting = [queue for queue in flow.queues.values() if queue.rows]
        if len(waiting) == 1:
            return waiting[0]
        # A round is a batch from each queue. A queue whose first row has waited for a whole round
        # is served even if its batch is small: otherwise rare lengths starve, which shows in the
        # 99th percentile.
        costs = self._cost
        round_seconds = sum(
            costs.seconds(q.bucket, min(len(q.rows), costs.best_rows(q.bucket))) for q in waiting
        )
        worth_sending = [
            queue
            for queue in waiting
            if len(queue.rows) >= costs.best_rows(queue.bucket)
            or now - queue.rows[0][2].enqueued >= round_seconds
            or queue.rows[0][0] - now <= round_seconds
        ]
        return min(worth_sending or waiting, key=lambda queue: queue.rows[0][:2])

    def _cut(self, flow: _Flow[R], queue: _Queue[R], now: float, idle: int) -> Batch[R]:
        expired = self._drop_expired(flow, queue, now)
        rows = min(len(queue.rows), self._cost.best_rows(queue.bucket))
        if idle > 1:
            # The waiting rows are spread over all idle engines.
            rows = min(rows, -(-self.rows // idle))
        slack = queue.rows[0][2].deadline - now if queue.rows else 0.0
        while rows > 1 and self._cost.seconds(queue.bucket, rows) > slack:
            rows //= 2
        taken = self._take_rows(flow, queue, rows)
        if idle <= 1 and rows and not queue.rows:
            self._fill_up(flow, queue.bucket, taken, slack)
        self._virtual_time = flow.virtual_time
        flow.virtual_time += self._cost.seconds(queue.bucket, len(taken)) if taken else 0.0
        return Batch(queue.bucket, taken, expired)

    def _fill_up(self, flow: _Flow[R], bucket: int, taken: list[R], slack: float) -> None:
        """Adds rows of smaller buckets where padding them costs less than a batch of their own.

        That is so where a batch has a large fixed cost, as on a GPU; on a CPU seldom.
        """
        cost = self._cost
        best = cost.best_rows(bucket)
        smaller = sorted((b for b, q in flow.queues.items() if b < bucket and q.rows), reverse=True)
        for other in smaller:
            queue = flow.queues[other]
            more = min(len(queue.rows), best - len(taken))
            if more <= 0 or len(queue.rows) >= cost.best_rows(other):
                break  # full, or a queue that is worth a batch of its own
            together = cost.seconds(bucket, len(taken) + more)
            if together > slack or together - cost.seconds(bucket, len(taken)) > cost.seconds(
                other, more
            ):
                break
            taken += self._take_rows(flow, queue, more)

    def _take_rows(self, flow: _Flow[R], queue: _Queue[R], rows: int) -> list[R]:
        taken = [entry[2] for entry in queue.rows[:rows]]
        del queue.rows[:rows]
        for row in taken:
            self._leave_queue(flow, row)
        return taken

    def _drop_expired(self, flow: _Flow[R], queue: _Queue[R], now: float) -> list[R]:
        """Takes out rows that can't be answered in time, while there is other work to do.

        A lone row is always tried, so that a wrong cost estimate can't refuse every row for ever.
        """
        least = now + _LEAST_FIT * self._cost.seconds(queue.bucket, 1)
        expired: list[R] = []
        while queue.rows and self.rows > 1 and queue.rows[0][2].deadline < least:
            row = queue.rows.pop(0)[2]
            self._leave_queue(flow, row)
            expired.append(row)
        return expired

    def _leave_queue(self, flow: _Flow[R], row: R) -> None:
        row.number = -1
        self._count(flow, row, -1)

    def _count(self, flow: _Flow[R], row: R, sign: int) -> None:
        flow.rows += sign
        flow.backlog += sign * row.cost
        self.rows += sign
        self.tokens += sign * row.tokens

"""Decides which rows make the next batch, and when it is sent. Pure, with the time passed in.

There is one ``Schedule`` for each package. Rows wait in one queue for each (endpoint, length
bucket). Endpoints share the package's instances by start-time fair queueing, in whose terms each
endpoint is a flow. A batch holds rows of one endpoint: the one with the earliest deadline, and
those that cost less in the same batch. The batcher does the sending.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import ceil, inf
from typing import Generic, TypeVar

from gateway.batching.cost_model import Costs

# How long before an instance becomes idle the next batch is sent: as a share of the engine time of
# the batch before it, and at least (seconds). Sent too late, the instance would idle; sent too
# early, the batch might have been fuller. The loop's timers may ring a millisecond late.
_LEAD_SHARE = 0.1
_LEAST_LEAD_SECONDS = 0.001

# If a full batch saves at least this share of engine time, all waiting rows may share one.
_ALL_FROM = 0.5

# A row expires early if the time to its deadline is shorter than this share of its cost alone.
_LEAST_FIT = 0.8


class Row:
    """One text on its way to an instance; ``TextRow`` adds what the batcher needs.

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

    def push(self, rows: Sequence[R]) -> None:
        """Queues rows of one endpoint, at least one."""
        endpoint = rows[0].endpoint
        flow = self._flows.get(endpoint)
        if flow is None:
            flow = self._flows[endpoint] = _Flow()
        if flow.rows == 0:
            # An endpoint that was idle has not saved up engine time for later.
            flow.virtual_time = max(flow.virtual_time, self._virtual_time)
            flow.backlog = 0.0
        for row in rows:
            queue = flow.queues.get(row.bucket)
            if queue is None:
                queue = flow.queues[row.bucket] = _Queue(row.bucket)
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
        flow.queues[row.bucket].remove(row)
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

    def take(self, now: float, slots: Slots) -> Batch[R] | float | None:
        """The batch to send now, or the time to ask again, or None to ask at the next change.

        With an idle instance, a batch is sent at once. With none, a full batch is sent ahead at
        once. A smaller one waits for more rows until shortly before an instance becomes idle, which
        is the time that is returned. None: nothing waits, or no instance may get a batch.

        The batch holds the row that is due first; see ``_sharing`` for the other rows.

        Args:
            now: the event loop's clock, seconds.
            slots: what the instances can take.
        """
        if self.rows == 0 or (slots.idle == 0 and slots.spare == 0):
            return None
        flow = min((f for f in self._flows.values() if f.rows), key=lambda f: f.virtual_time)
        first = min((q for q in flow.queues.values() if q.rows), key=lambda q: q.rows[0][:2])
        if slots.idle == 0 and len(first.rows) < self._cost.best_rows(first.bucket):
            lead = max(_LEAST_LEAD_SECONDS, _LEAD_SHARE * slots.running)
            send_at = slots.free_at - lead
            if now < send_at:
                return send_at
        expired = self._drop_expired(flow, first, now)
        if not first.rows:
            return Batch(first.bucket, [], expired)
        return self._cut(flow, first, expired, now, slots.idle)

    def _cut(
        self, flow: _Flow[R], first: _Queue[R], expired: list[R], now: float, idle: int
    ) -> Batch[R]:
        """Takes out the first row of a queue, and the rows that share its batch."""
        cost = self._cost
        together = self._sharing(flow, first)
        longest = together[0][0]
        rows = min(cost.best_rows(longest), sum(len(entries) for _, entries in together))
        if idle > 1:
            # The waiting rows are spread over all idle instances.
            rows = min(rows, -(-self.rows // idle))
        slack = first.rows[0][0] - now
        while rows > 1 and cost.seconds(longest, rows) > slack:
            rows //= 2
        if len(together) == 1:
            bucket = longest
            taken = [entry[2] for entry in together[0][1][:rows]]
            del flow.queues[bucket].rows[:rows]
        else:
            queued = merge(*(entries for _, entries in together))
            taken = [entry[2] for entry in islice(queued, rows)]
            # Of each queue they are the first ones.
            for own, count in Counter(row.bucket for row in taken).items():
                del flow.queues[own].rows[:count]
            bucket = max(row.bucket for row in taken)
        self._count_out(flow, taken)
        self._virtual_time = flow.virtual_time
        flow.virtual_time += cost.seconds(bucket, len(taken))
        return Batch(bucket, taken, expired)

    def _sharing(
        self, flow: _Flow[R], first: _Queue[R]
    ) -> list[tuple[int, list[tuple[float, int, R]]]]:
        """The rows that may share a batch with the flow's first row.

        All waiting rows are divided into batches, each of neighbouring buckets, so that the engine
        time of all of them is least. So shorter rows are padded where that saves a batch with a
        large fixed cost, as on a GPU. On a CPU this is rare.

        Rows that are sent with the first one overtake others. Therefore only the oldest rows are
        considered, and fewer of them, the less engine time a full batch saves. With n waiting rows
        these are n * saving / (1 - saving): a ninth of them where it saves a tenth, and all where
        it saves half.

        Returns:
            The queues' entries by bucket, the longest bucket first.
        """
        queues = sorted((q for q in flow.queues.values() if q.rows), key=lambda q: -q.bucket)
        saving = self._cost.saving(first.bucket)
        oldest = ceil(flow.rows * saving / (1 - saving)) if saving < _ALL_FROM else flow.rows
        if oldest >= flow.rows:
            waiting = [(queue.bucket, queue.rows) for queue in queues]
        else:
            found: dict[int, list[tuple[float, int, R]]] = {queue.bucket: [] for queue in queues}
            for entry in islice(merge(*(queue.rows for queue in queues)), max(1, oldest)):
                found[entry[2].bucket].append(entry)
            waiting = [(bucket, entries) for bucket, entries in found.items() if entries]
        if len(waiting) > 1:
            for start, end in self._divide([(bucket, len(rows)) for bucket, rows in waiting]):
                if waiting[end - 1][0] <= first.bucket <= waiting[start][0]:
                    return waiting[start:end]
        return waiting

    def _divide(self, counts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Divides rows into batches of neighbouring buckets that take the least time together.

        By dynamic programming over the buckets.

        Args:
            counts: (bucket, rows) of each, the longest bucket first.

        Returns:
            Half-open ranges of ``counts``.
        """
        seconds = self._cost.planned_seconds
        least = [0.0]  # of the first n buckets
        begins = [0]
        for end in range(1, len(counts) + 1):
            rows, best, begin = 0, inf, end - 1
            for start in range(end - 1, -1, -1):
                bucket, more = counts[start]
                full = self._cost.best_rows(bucket)
                if rows >= full:
                    break  # a batch more is needed for any more rows
                rows += more
                whole, rest = divmod(rows, full)
                total = least[start] + whole * seconds(bucket, full) + seconds(bucket, rest)
                if total < best:
                    best, begin = total, start
            least.append(best)
            begins.append(begin)
        ranges = []
        end = len(counts)
        while end:
            ranges.append((begins[end], end))
            end = begins[end]
        return ranges

    def _drop_expired(self, flow: _Flow[R], queue: _Queue[R], now: float) -> list[R]:
        """Takes out rows that can't be answered in time, while there is other work to do.

        A lone row is always tried, so that a wrong cost estimate can't refuse every row for ever.
        """
        least = now + _LEAST_FIT * self._cost.seconds(queue.bucket, 1)
        expired: list[R] = []
        while queue.rows and self.rows > 1 and queue.rows[0][2].deadline < least:
            row = queue.rows.pop(0)[2]
            self._count_out(flow, (row,))
            expired.append(row)
        return expired

    def _count_out(self, flow: _Flow[R], rows: Sequence[R]) -> None:
        """Counts rows of a flow that have left their queues."""
        for row in rows:
            row.number = -1
            flow.backlog -= row.cost
        flow.rows -= len(rows)
        self.rows -= len(rows)

"""Decides which rows make the next batch, and when it is sent. Pure, with the time passed in.

There is one ``Schedule`` for each package. Rows wait in one queue for each (endpoint, length
bucket). Endpoints share the package's instances by start-time fair queueing, in whose terms each
endpoint is a flow. A batch holds rows of one endpoint: the one with the earliest deadline, and
those that cost less in the same batch. The batcher does the sending.
"""

from collections import Counter
from heapq import merge
from itertools import islice
from math import ceil, inf

from gateway.batching.cost_model import Costs
from gateway.batching.waiting_rows import Batch, Flow, Queue, R, Slots, WaitingRows

# How long before an instance becomes idle the next batch is sent: as a share of the engine time of
# the batch before it, and at least (seconds). Sent too late, the instance would idle; sent too
# early, the batch might have been fuller. The loop's timers may ring a millisecond late.
_LEAD_SHARE = 0.1
_LEAST_LEAD_SECONDS = 0.001

# If a full batch saves at least this share of engine time, all waiting rows may share one.
_ALL_FROM = 0.5


class Schedule(WaitingRows[R]):
    """The waiting rows of one package whose rows are padded."""

    def __init__(self, cost: Costs) -> None:
        super().__init__(cost, by_bucket=True)

    def take(self, now: float, slots: Slots, most_seconds: float = inf) -> Batch[R] | float | None:
        """The batch to send now, or the time to ask again, or None to ask at the next change.

        With an idle instance, a batch is sent at once. With none, a full batch is sent ahead at
        once. A smaller one waits for more rows until shortly before an instance becomes idle, which
        is the time that is returned. None: nothing waits, or no instance may get a batch.

        The batch holds the row that is due first; see ``_sharing`` for the other rows.

        Args:
            now: the event loop's clock, seconds.
            slots: what the instances can take.
            most_seconds: see ``WaitingRows.take``.
        """
        if self.rows == 0 or (slots.idle == 0 and slots.spare == 0):
            return None
        flow = self._next_flow()
        first = min((q for q in flow.queues.values() if q.rows), key=lambda q: q.rows[0][:2])
        if slots.idle == 0 and len(first.rows) < self._cost.best_rows(first.bucket):
            lead = max(_LEAST_LEAD_SECONDS, _LEAD_SHARE * slots.running)
            send_at = slots.free_at - lead
            if now < send_at:
                return send_at
        expired = self._drop_expired(flow, first, now)
        if not first.rows:
            return Batch(first.bucket, [], expired)
        most_seconds = min(most_seconds, first.rows[0][0] - now)
        return self._cut(flow, first, expired, most_seconds, slots.idle)

    def _cut(
        self, flow: Flow[R], first: Queue[R], expired: list[R], most_seconds: float, idle: int
    ) -> Batch[R]:
        """Takes out the first row of a queue, and the rows that share its batch."""
        cost = self._cost
        together = self._sharing(flow, first)
        longest = together[0][0]
        rows = min(cost.best_rows(longest), sum(len(entries) for _, entries in together))
        if idle > 1:
            # The waiting rows are spread over all idle instances.
            rows = min(rows, -(-self.rows // idle))
        while rows > 1 and cost.seconds(longest, rows) > most_seconds:
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
        self, flow: Flow[R], first: Queue[R]
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

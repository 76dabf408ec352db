"""The schedule of a package whose engine takes packed rows. Pure, with the time passed in.

Such an engine joins what all gateways have sent while it computes the batch before, and a run costs
about the same up to some thousand tokens. So there is nothing to wait for here: no length bucket
that may fill up, and no moment just before the engine is free. Rows leave at once while a replica
has nothing of this gateway's. While one message is on its way, the next one leaves as soon as it is
worth what a message costs the gateway itself; what comes later waits for an answer, so that under
load messages are few and large. At most two messages of ``best_tokens`` each are on their way to an
instance. The rest waits here, where late texts can be refused and endpoints get equal shares.
"""

import math

from gateway.batching.packed_costs import MOST_ROWS, TokenCosts
from gateway.batching.waiting_rows import Batch, Flow, R, Slots, WaitingRows

# About what a message costs this process besides what its rows cost. One more is worth it while the
# engine has work, if it keeps the engine busy for so long (docs/performance.md has others).
MESSAGE_SECONDS = 0.0003
# Of a batch, what the endpoints are given in their turns together.
_TURN = 0.5


class PackedBatch(Batch[R]):
    """Rows to send now, one after the other; ``expired`` rows can't be answered in time."""

    __slots__ = ()

    def __init__(self, rows: list[R], expired: list[R]) -> None:
        super().__init__(sum([row.tokens for row in rows]), rows, expired)

    @property
    def shape(self) -> tuple[int, int]:
        """Tokens of all rows, as of one row."""
        return self.bucket, 1

    def part(self, rows: list[R]) -> Batch[R]:
        """A batch of some of its rows."""
        return PackedBatch(rows, [])


class PackedSchedule(WaitingRows[R]):
    """The waiting rows of one package whose rows are packed.

    Args:
        cost: of batches, by their tokens.
        max_rows: the most rows of a batch.
        message_seconds: engine time that makes another message worth it; more than 0.
    """

    def __init__(
        self,
        cost: TokenCosts,
        max_rows: int = MOST_ROWS,
        message_seconds: float = MESSAGE_SECONDS,
    ) -> None:
        super().__init__(cost, by_bucket=False)
        self._tokens = cost
        self._max_rows = max_rows
        self._message_seconds = message_seconds

    def take(
        self, now: float, slots: Slots, most_seconds: float = math.inf
    ) -> Batch[R] | float | None:
        """See ``WaitingRows.take``; never a time."""
        if self.rows == 0 or (slots.idle == 0 and slots.spare == 0):
            return None
        waiting = sum([flow.backlog for flow in self._flows.values() if flow.rows])
        if slots.idle == 0 and waiting < self._message_seconds and self.rows < self._max_rows:
            return None
        flow = self._next_flow()
        expired = self._drop_expired(flow, flow.queues[0], now)
        if flow.rows == 0:
            return PackedBatch([], expired)
        first = flow.queues[0].rows[0][2]
        room = self._room(first, waiting, slots.idle)
        most_seconds = min(most_seconds, first.deadline - now)
        while room > first.tokens and self._tokens.seconds(room, 1) > most_seconds:
            room //= 2
        return PackedBatch(self._cut(flow, room), expired)

    def _room(self, first: R, waiting: float, idle: int) -> int:
        """The most tokens of the next batch: the rows are spread over instances that idle."""
        most = self._tokens.best_tokens
        parts = min(idle, int(waiting / self._message_seconds))
        if parts > 1:
            share = self._tokens.tokens_in(waiting / parts)
            most = min(most, max(share, first.tokens))
        return most

    def _cut(self, flow: Flow[R], room: int) -> list[R]:
        """Takes out rows of this many tokens, at least one: those of each endpoint in its turn."""
        taken: list[R] = []
        while True:
            count, tokens = self._turn(flow, room, len(taken))
            if count == 0:
                return taken
            rows = flow.queues[0].rows
            own = [entry[2] for entry in rows[:count]]
            del rows[:count]
            self._virtual_time = flow.virtual_time
            flow.virtual_time += sum([row.cost for row in own])
            self._count_out(flow, own)
            taken += own
            room -= tokens
            if self.rows == 0 or room <= 0:
                return taken
            flow = self._next_flow()

    def _turn(self, flow: Flow[R], room: int, taken: int) -> tuple[int, int]:
        """How many first rows of an endpoint leave before another one's turn, and their tokens.

        An endpoint's turn ends once it is ahead of all others by its share of half a batch. So a
        message may hold rows of all, and the rows of one call seldom part.
        """
        others = [f.virtual_time for f in self._flows.values() if f.rows and f is not flow]
        until = math.inf
        if others:
            batch = self._tokens.row_seconds(self._tokens.best_tokens)
            until = min(others) + _TURN * batch / (1 + len(others))
        given = flow.virtual_time
        count = tokens = 0
        for _, _, row in flow.queues[0].rows:
            if taken + count >= self._max_rows or (tokens + row.tokens > room and taken + count):
                break
            if count and given > until:
                break
            count += 1
            tokens += row.tokens
            given += row.cost
        return count, tokens

"""The batcher's decisions in simulated time: texts a second and waits, on engines of several kinds.

``gateway.batching.schedule`` itself decides; callers and engine are simulated, without a clock, a
socket or a tensor, so that a figure says what the decisions are worth and nothing of Python's
speed. Beside it two rules that need no costs: each row alone in order of deadline, and batches of
whatever waits, padded to the longest row (a dynamic batcher that knows no lengths).
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from contracts.loading import CostPoint
from gateway.batching.cost_model import CostModel, batch_sizes
from gateway.batching.schedule import Schedule
from gateway.batching.waiting_rows import Batch, Row, Slots
from preprocess.buckets import automatic_buckets, bucket_of

LARGEST = 32  # rows a batch
MAX_TOKENS = 256
BUCKETS = automatic_buckets(MAX_TOKENS)
PAUSE_SECONDS = 0.0005  # of a caller between an answer and its next text
TIMEOUT_SECONDS = 60.0
TEXTS = 10_000  # of a round
MANY = 64  # callers beside other work
JITTER = 0.05  # of a batch's time, either way

Cost = Callable[[int, int], float]


class Queue(Protocol):
    """What decides; ``Schedule`` is one."""

    def push(self, rows: Sequence[Row]) -> None:
        """Queues rows."""
        ...

    def take(self, now: float, slots: Slots) -> Batch[Row] | float | None:
        """The batch to send now, or when to ask again, or None: at the next change."""
        ...


class InOrder:
    """Batches of up to so many rows in the order in which they came, whatever their lengths."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Row] = deque()

    def push(self, rows: Sequence[Row]) -> None:
        """See ``Queue``."""
        self._waiting.extend(rows)

    def take(self, now: float, slots: Slots) -> Batch[Row] | float | None:
        """See ``Queue``."""
        del now
        if not self._waiting or not slots.idle:
            return None
        rows = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        return Batch(max(row.bucket for row in rows), rows, [])


@dataclass(frozen=True)
class Kind:
    """A kind of engine: its seconds for (padded tokens of a row, rows), and how many there are."""

    name: str
    seconds: Cost
    engines: int

    def costs(self) -> CostModel:
        """What a warm-up would measure."""
        model = CostModel(BUCKETS, LARGEST)
        model.seed(
            CostPoint(bucket=bucket, batch=size, milliseconds=1000 * self.seconds(bucket, size))
            for bucket in BUCKETS
            for size in batch_sizes(LARGEST)
        )
        return model


def _processor(saved: float) -> Cost:
    """Costs of a processor core on which a large batch saves a share of its rows' time alone."""
    return lambda bucket, rows: (0.0004 + 0.00022 * bucket) * (saved + (1 - saved) * rows)


KINDS = (
    Kind("accelerator, 1 ms + 1.2 us a token", lambda b, n: 0.001 + 1.2e-6 * b * n, 1),
    Kind("two cores, a batch saves nothing", _processor(0.0), 2),
    Kind("two cores, a batch saves a tenth", _processor(0.1), 2),
    Kind("two cores, a batch saves 30 %", _processor(0.3), 2),
)
RULES: dict[str, Callable[[Kind], Queue]] = {
    "one by one": lambda _: InOrder(1),
    "in order": lambda _: InOrder(LARGEST),
    "headrace": lambda kind: Schedule(kind.costs()),
}


Slowdown = Callable[[float], float]  # by what all batches take longer, at a time in seconds


def steady(now: float) -> float:
    """Nothing else is at work."""
    del now
    return 1.0


def beside_other_work(now: float) -> float:
    """Something takes three eighths of the engines' time every other ten seconds."""
    return 1.0 if int(now / 10) % 2 else 1.6


class Simulation:
    """A closed loop of callers before engines that share one queue of batches, as Triton has it.

    Args:
        kind: of the engines.
        queue: decides.
        callers: each asks anew when it is answered.
        lengths: of texts, in tokens.
        seed: of chance.
        slowdown: of the engines by other work.
        costs: those that the queue decides by, which are corrected by each batch; None: they stay.
    """

    def __init__(
        self,
        kind: Kind,
        queue: Queue,
        callers: int,
        lengths: list[int],
        seed: int,
        *,
        slowdown: Slowdown = steady,
        costs: CostModel | None = None,
    ) -> None:
        self._slowdown = slowdown
        self._costs = costs
        self._kind = kind
        self._queue = queue
        self._lengths = lengths
        self._random = random.Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Batch[Row] | int | None]] = []
        self._numbers = count()
        # Of each batch that runs: its end, and its seconds as they were expected and as they are.
        self._running: list[tuple[float, float, float]] = []
        self._callers: dict[Row, int] = {}  # whose each text is
        self._sent: deque[Batch[Row]] = deque()  # batches that wait for an engine
        for caller in range(callers):
            self._at(0.01 * self._random.random(), caller)

    def batches(self) -> Iterator[tuple[float, Batch[Row]]]:
        """Each batch when it has ended, without an end."""
        while True:
            self._now, _, event = heappop(self._events)
            if isinstance(event, Batch):
                _, _, took = heappop(self._running)
                if self._costs is not None:
                    self._costs.observe(event.bucket, len(event.rows), took)
                if self._sent:
                    self._run(self._sent.popleft())
                yield self._now, event
                for row in event.rows:
                    self._at(self._now + PAUSE_SECONDS, self._callers.pop(row))
            elif event is not None:
                self._ask(event)
            self._decide()

    def _at(self, when: float, event: Batch[Row] | int | None) -> None:
        heappush(self._events, (when, next(self._numbers), event))

    def _ask(self, caller: int) -> None:
        tokens = self._random.choice(self._lengths)
        lengths = (bucket_of(tokens, BUCKETS), tokens)
        row = Row("e", lengths, enqueued=self._now, deadline=self._now + TIMEOUT_SECONDS)
        self._callers[row] = caller
        self._queue.push((row,))

    def _decide(self) -> None:
        """Sends what the rule sends, up to one batch ahead of each engine, as a gateway does."""
        while True:
            in_flight = len(self._running) + len(self._sent)
            engines = self._kind.engines
            free_at, seconds, _ = min(self._running, default=(0.0, 0.0, 0.0))
            idle = max(0, engines - in_flight)
            spare = 2 * engines - max(in_flight, engines)
            choice = self._queue.take(self._now, Slots(idle, spare, free_at, seconds))
            if not isinstance(choice, Batch):
                break
            if len(self._running) < engines:
                self._run(choice)
            else:
                self._sent.append(choice)
        if choice is not None:
            self._at(max(choice, self._now + 1e-6), None)

    def _run(self, batch: Batch[Row]) -> None:
        seconds = self._kind.seconds(batch.bucket, len(batch.rows)) * self._slowdown(self._now)
        took = seconds * self._random.uniform(1 - JITTER, 1 + JITTER)
        heappush(self._running, (self._now + took, seconds, took))
        self._at(self._now + took, batch)


@dataclass(frozen=True)
class Outcome:
    """What came of one round."""

    per_second: float  # texts
    p50: float  # milliseconds from a text's arrival to its answer
    p99: float
    padding: float  # share of the tokens computed
    rows: float  # a batch


def outcome(simulation: Simulation, texts: int) -> Outcome:
    """Of so many texts, after a tenth as many that are not counted."""
    waits: list[float] = []
    padded = tokens = batches = 0
    began = now = 0.0
    uncounted = texts // 10
    for now, batch in simulation.batches():
        if uncounted > 0:
            uncounted -= len(batch.rows)
            began = now
            continue
        waits += [1000 * (now - row.enqueued) for row in batch.rows]
        padded += batch.bucket * len(batch.rows)
        tokens += sum(row.tokens for row in batch.rows)
        batches += 1
        if len(waits) >= texts:
            break
    waits.sort()
    return Outcome(
        per_second=len(waits) / (now - began),
        p50=waits[len(waits) // 2],
        p99=waits[int(0.99 * len(waits))],
        padding=1 - tokens / padded,
        rows=len(waits) / batches,
    )


def slowed(kind: Kind, rule: str, lengths: list[int], seed: int, texts: int = TEXTS) -> Outcome:
    """A round beside other work; the costs that Headrace decides by are learned meanwhile."""
    costs = kind.costs()
    queue: Queue = Schedule(costs) if rule == "headrace" else RULES[rule](kind)
    simulation = Simulation(
        kind, queue, MANY, lengths, seed, slowdown=beside_other_work, costs=costs
    )
    return outcome(simulation, texts)

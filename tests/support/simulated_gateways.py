"""One to eight gateways before one accelerator in SIMULATED time: texts a second, waits, messages.

The gateway's schedules, costs and replicas themselves decide; callers, the cores of the gateways,
the way to Triton and the accelerator are simulated, without a clock, a socket or a tensor. The
accelerator's times are those of ``h200.json``. Its packed engine joins what all
gateways have sent, as ``triton/packed_model`` does; its padded engine runs message after message.

What a request costs a gateway's core is taken from the table of parts in ``docs/performance.md``
(``bench.core``). Not in it: what Triton's and the model's own processes cost for each message, the
network, and the load generator.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

import h200_times
from echo_engine import EchoEngine

from bench import corpus
from contracts.loading import CostPoint
from gateway.batching.cost_model import JointCosts, batch_sizes
from gateway.batching.packed_costs import TokenCosts
from gateway.batching.packed_schedule import MESSAGE_SECONDS, PackedSchedule
from gateway.batching.schedule import Schedule
from gateway.batching.waiting_rows import Batch, Row, Slots, WaitingRows
from gateway.engine.fleet import Flight, Replica
from preprocess.buckets import automatic_buckets, bucket_of

GATEWAYS = (1, 2, 4, 8)
CALLERS = 128  # of each gateway
MAX_TOKENS = 256
BUCKETS = automatic_buckets(MAX_TOKENS)
PADDED_ROWS = 64  # the largest batch of a padded engine
SECONDS = 0.5  # counted; a fifth as long before it is not
PAUSE_SECONDS = 0.0002  # between a caller's answer and its next request
TRANSIT_SECONDS = 0.00025  # from a gateway to the engine, and back again
TIMEOUT_SECONDS = 60.0
FULL = 0.95  # share of the time in which an engine that is full computes
LINEAR = 0.85  # share of the gateways' number that texts a second grow by at least
RUNS_ON_THE_WAY = 2  # of the packed model: one computes, one is ready to follow
LAUNCH_SECONDS = (0.00005, 0.00025)  # from the choice of a run until it can begin

_TRITON = "t"


@dataclass(frozen=True)
class Core:
    """Seconds of a gateway's core: of the source, by the table of parts in the documents.

    A request of one text costs 128 us with its share of a message, one of sixteen 448; a lone
    caller's, whose every text is a message, 309 more, most of it for that.
    """

    request: float = 91e-6
    text: float = 19e-6
    message: float = 193e-6


@dataclass(eq=False, slots=True)
class Request:
    """What a caller waits for."""

    sent: float
    unanswered: int


@dataclass(eq=False, slots=True)
class Message:
    """A batch on its way to the engine and back."""

    batch: Batch[Row]
    gateway: "Gateway"
    flight: Flight


@dataclass(frozen=True)
class Load:
    """What callers ask: texts of a request, their tokens, and what they cost a gateway."""

    texts: int
    lengths: Sequence[int]
    core: Core = Core()
    callers: int = CALLERS  # of a gateway


@dataclass(frozen=True)
class Rule:
    """When a gateway sends a packed engine another message, and when that fixes its next run.

    Attributes:
        ahead: messages of a gateway on their way at most.
        message_seconds: engine time that makes another one worth it, while one is on its way.
        late: the engine chooses the next run when the one before it is about to end; else as soon
            as a message is there.
    """

    ahead: int = 2
    message_seconds: float = MESSAGE_SECONDS
    late: bool = True


Planning = tuple[JointCosts, WaitingRows[Row]]


class Accelerator(Protocol):
    """What computes messages."""

    def offer(self, message: Message) -> None:
        """Takes a message; answers it later by its gateway's ``answered``."""
        ...


@dataclass
class Tally:
    """What was counted since it was last cleared."""

    texts: int = 0
    messages: int = 0
    runs: int = 0
    computed: float = 0.0  # seconds
    idle: float = 0.0  # seconds in which the device could have begun a run
    waits: list[float] = field(default_factory=list)


class World:
    """The clock, what is due, and what is counted."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.tally = Tally()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Has something happen."""
        heappush(self._due, (when, next(self._numbers), what))

    def run(self, until: float) -> None:
        """Lets time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, what = heappop(self._due)
            what()
        self.now = until


@dataclass(eq=False, slots=True)
class Run:
    """Messages that are computed together.

    Attributes:
        members: those.
        since: when the first of them was there.
        took: seconds of the device.
        launch: from its choice until it can begin.
    """

    members: list[Message]
    since: float
    took: float
    launch: float = 0.0


class PackedAccelerator:
    """Joins whole messages in their order, up to a run's tokens, while the run before computes.

    When it chooses them is for the packed model's own timetable. From then on it takes a time
    between both ``LAUNCH_SECONDS`` until the run can begin.
    """

    def __init__(self, world: World, times: Any, rule: "Rule") -> None:
        self._world = world
        self._times = times
        self._timetable = h200_times.timetable().Timetable()
        self._late = rule.late
        self._waiting: deque[tuple[float, Message]] = deque()
        self._runs: deque[Run] = deque()
        self._launching = False
        self._free_at = 0.0

    def offer(self, message: Message) -> None:
        """See ``Accelerator``."""
        self._waiting.append((self._world.now, message))
        self._look()

    def _look(self, *, has_waited: bool = False) -> None:
        """Chooses a run if it is time."""
        if self._launching or len(self._runs) >= RUNS_ON_THE_WAY or not self._waiting:
            return
        tokens = sum(message.flight.tokens for _, message in self._waiting)
        due = self._timetable.due()
        if self._late and due > self._world.now and tokens < self._times.most_tokens:
            self._world.at(due, lambda: self._look(has_waited=True))
            return
        run = self._choose()
        self._timetable.choose(
            sum(message.flight.tokens for message in run.members),
            self._world.now,
            has_waited=has_waited,
        )
        self._runs.append(run)
        self._launching = True
        run.launch = self._world.random.uniform(*LAUNCH_SECONDS)
        self._world.at(self._world.now + run.launch, lambda: self._launched(run))

    def _choose(self) -> Run:
        since, first = self._waiting.popleft()
        members, tokens = [first], first.flight.tokens
        while self._waiting:
            more = self._waiting[0][1].flight.tokens
            if tokens + more > self._times.most_tokens:
                break
            members.append(self._waiting.popleft()[1])
            tokens += more
        return Run(members, since, self._times.seconds(tokens))

    def _launched(self, run: Run) -> None:
        now, tally = self._world.now, self._world.tally
        self._launching = False
        self._timetable.launch()
        # The device could have begun, had the run been chosen at once.
        tally.idle += max(0.0, now - max(self._free_at, run.since + run.launch))
        tally.runs += 1
        tally.computed += run.took
        self._free_at = max(self._free_at, now) + run.took
        self._world.at(self._free_at, self._end)
        self._look()

    def _end(self) -> None:
        run = self._runs.popleft()
        since = self._waiting[0][0] if self._waiting else None
        now = self._world.now
        self._timetable.end(now, run.took, was_awaited=True, waits_since=since)
        for message in run.members:
            message.gateway.answered(message)
        self._look()


class PaddedAccelerator:
    """Computes message after message, each for itself."""

    def __init__(self, world: World, times: Any, rule: "Rule") -> None:
        del rule
        self._world = world
        self._times = times
        self._free_at = 0.0

    def offer(self, message: Message) -> None:
        """See ``Accelerator``."""
        length, rows = message.batch.shape
        took = self._times.seconds(rows, length)
        self._free_at = max(self._free_at, self._world.now) + took
        self._world.tally.runs += 1
        self._world.tally.computed += took
        self._world.at(self._free_at, lambda: message.gateway.answered(message))


class Gateway:
    """One core that reads requests, tokenises, sends, reads answers and renders them.

    As an event loop does, it takes all that is ready, decides what to send, and looks again.
    """

    def __init__(
        self,
        world: World,
        engine: Accelerator,
        planning: "Planning",
        load: "Load",
        ahead: int,
    ) -> None:
        self._world = world
        self._engine = engine
        self._costs, self._schedule = planning
        self._is_packed = isinstance(self._costs, TokenCosts)
        self._core = load.core
        self._texts = load.texts
        self._lengths = load.lengths
        self._replica = Replica(EchoEngine(1), _TRITON, "m", 1, ahead)
        self._ready: deque[Message | Request] = deque()
        self._requests: dict[Row, Request] = {}  # whose each text is
        self._works = False
        self._asleep_until: float | None = None

    def asked(self) -> None:
        """A caller's request has come."""
        self._ready.append(Request(self._world.now, self._texts))
        self._look()

    def answered(self, message: Message) -> None:
        """The engine has computed a message."""
        arrives = self._world.now + TRANSIT_SECONDS
        self._world.at(arrives, lambda: self._arrived(message))

    def _arrived(self, message: Message) -> None:
        self._ready.append(message)
        self._look()

    def _look(self) -> None:
        if not self._works:
            self._works = True
            self._world.at(self._world.now, self._iterate)

    def _iterate(self) -> None:
        ready = list(self._ready)
        self._ready.clear()
        now = self._world.now
        for each in ready:
            now = self._read(each, now) if isinstance(each, Request) else self._render(each, now)
        now = self._decide(now)
        self._world.at(now, self._finish)

    def _finish(self) -> None:
        self._works = False
        if self._ready:
            self._look()

    def _read(self, asked: Request, now: float) -> float:
        now += (self._core.request + asked.unanswered * self._core.text) / 2
        rows = []
        for _ in range(asked.unanswered):
            tokens = self._world.random.choice(self._lengths)
            bucket = tokens if self._is_packed else bucket_of(tokens, BUCKETS)
            row = Row("e", (bucket, tokens), enqueued=now, deadline=now + TIMEOUT_SECONDS)
            self._requests[row] = asked
            rows.append(row)
        self._schedule.push(rows)
        return now

    def _render(self, message: Message, now: float) -> float:
        took = self._replica.batch_ended(message.flight, now)
        bucket, rows = message.batch.shape
        self._costs.observe(_TRITON, bucket, rows, took)
        now = self._decide(now)
        tally = self._world.tally
        tally.texts += len(message.batch.rows)
        for row in message.batch.rows:
            now += self._core.text / 2
            asked = self._requests.pop(row)
            asked.unanswered -= 1
            if asked.unanswered == 0:
                now += self._core.request / 2
                tally.waits.append(now - asked.sent)
                self._world.at(now + PAUSE_SECONDS, self.asked)
        return now

    def _decide(self, now: float) -> float:
        while True:
            replica = self._replica
            ahead = replica.spare()
            free_at, running = replica.next_free() if ahead else (0.0, 0.0)
            choice = self._schedule.take(now, Slots(replica.idle, ahead, free_at, running))
            if not isinstance(choice, Batch):
                break
            now += self._core.message
            self._send(choice, now)
        if choice is not None and choice != self._asleep_until:
            self._asleep_until = choice
            self._world.at(max(choice, now), self._look)
        return now

    def _send(self, batch: Batch[Row], now: float) -> None:
        bucket, rows = batch.shape
        expected = self._costs.seconds_on(_TRITON, bucket, rows)
        message = Message(batch, self, self._replica.batch_sent(now, expected, bucket * rows))
        self._world.tally.messages += 1
        self._world.at(now + TRANSIT_SECONDS, lambda: self._engine.offer(message))


def packed_planning(times: Any, rule: Rule) -> Planning:
    """Costs as a loader measures them on a packed engine, and the schedule for one."""
    costs = TokenCosts()
    sizes = [16 << step for step in range(11)]
    costs.seed(_TRITON, tuple(_point(each, 1, times.seconds(each)) for each in sizes))
    costs.serve({_TRITON: 1})
    return costs, PackedSchedule(costs, message_seconds=rule.message_seconds)


def padded_planning(times: Any, rule: Rule) -> Planning:
    """The same of a padded engine, which has a rule of its own."""
    del rule
    costs = JointCosts(BUCKETS, PADDED_ROWS)
    shapes = [(bucket, rows) for bucket in BUCKETS for rows in batch_sizes(PADDED_ROWS)]
    for bucket, rows in shapes:
        times.seconds(rows, bucket)  # a plan is compiled
    points = [_point(bucket, rows, times.seconds(rows, bucket)) for bucket, rows in shapes]
    costs.seed(_TRITON, tuple(points))
    costs.serve({_TRITON: 1})
    return costs, Schedule(costs)


def _point(bucket: int, rows: int, seconds: float) -> CostPoint:
    transit = 2 * TRANSIT_SECONDS
    return CostPoint(bucket=bucket, batch=rows, milliseconds=1000 * (seconds + transit))


HEADRACE = Rule()
CHOICES = {"at once": Rule(late=False), "late": HEADRACE}
RULES = {
    "headrace": HEADRACE,
    "one message on its way": Rule(ahead=1),
    "two, at once": Rule(message_seconds=1e-9),
    "four, at once": Rule(ahead=4, message_seconds=1e-9),
}
CHOICES = {"at once": Rule(late=False), "late": HEADRACE}


@dataclass(frozen=True)
class Outcome:
    """What came of one round."""

    per_second: float  # texts
    p50: float  # milliseconds from a request's arrival to its answer
    p99: float
    texts_a_message: float
    messages_a_run: float
    busy: float  # share of the time in which the engine computes
    idle: float  # share of the time in which it does not, though messages wait


def outcome(
    engine: str,
    gateways: int,
    load: Load,
    seed: int,
    seconds: float = SECONDS,
    *,
    rule: Rule = HEADRACE,
) -> Outcome:
    """Of so many gateways before one engine of the table."""
    module = h200_times.times()
    times = module.read(h200_times.H200, engine)
    world = World(seed)
    packed = isinstance(times, module.PackedTimes)
    kind = PackedAccelerator if packed else PaddedAccelerator
    accelerator: Accelerator = kind(world, times, rule)
    planning = packed_planning if packed else padded_planning
    for _ in range(gateways):
        gateway = Gateway(world, accelerator, planning(times, rule), load, rule.ahead)
        for _ in range(load.callers):
            world.at(0.01 * world.random.random(), gateway.asked)
    world.run(seconds / 5)
    tally = world.tally = Tally()
    world.run(1.2 * seconds)
    waits = sorted(tally.waits)
    return Outcome(
        per_second=tally.texts / seconds,
        p50=1000 * waits[len(waits) // 2],
        p99=1000 * waits[int(0.99 * len(waits))],
        texts_a_message=tally.texts / tally.messages,
        messages_a_run=tally.messages / tally.runs,
        busy=min(1.0, tally.computed / seconds),
        idle=tally.idle / seconds,
    )


def lengths() -> list[int]:
    """Tokens of the example's texts."""
    encoded = corpus.tokenizer().encode_batch(corpus.replay())
    return [min(MAX_TOKENS, len(each.ids)) for each in encoded]

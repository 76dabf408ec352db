"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless, unless an operator allows batches of some time at any moment:

- Each endpoint's p99 without bulk batches is estimated, from what each request took less what a
  bulk batch may have delayed it. As long as fewer than one request in 100 is slower than a little
  above that, whatever slows them, batches of about half of it may begin.
- Several gateways take turns of a second by their clocks, as none knows when others' batches run:
  those that have bulk requests, and now and then nobody, if others have callers. Longer batches
  begin in one's own turn, and estimates are made from what comes then or in nobody's. Each tells
  the others what it knows of each endpoint, so that all go by all callers' requests, wherever these
  are. A gateway that has not heard from each of the others lately begins no longer batch.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, log

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests without bulk ones:
_PAID_SHARE = 0.55  # a batch: shorter ones hold few texts, longer ones delay more requests
_SLOW = 1.07  # a request that is charged for;
_SLOW_OF_SEVERAL = 1.05  # behind several gateways, which estimate from fewer requests each
_SLOW_SHARE = 0.0097  # of requests that may be so slow
_EVERY_SECONDS = 60.0  # one more, of all gateways together
# Requests that may be slow at once, if none was for long, of all gateways together: more behind
# several, which know later of each other's.
_MOST_ROOM = 1.0
_MOST_ROOM_OF_SEVERAL = 6.0
_MOST_OWED = 30.0  # requests beyond these bounds; of more, not all are held against bulk requests
LONG_SECONDS = 0.01  # of a batch if nobody has to be spared
TURN_SECONDS = 1.0
_GUARD_SECONDS = 0.1  # of a turn, at its beginning: clocks may be apart, and batches end
_TURNS = 3  # of those with bulk requests at least, for one of nobody
HEARD_SECONDS = 2.0  # for how long what another gateway said holds
_WANTED_SECONDS = 1.0  # for how long a gateway has turns after its last bulk request
_MERGED_SECONDS = 0.05  # for how long what all have said is not looked at again
_MEASURED_SECONDS = 30.0  # for how long requests are measured after anybody wanted to know
_KNOWN_SECONDS = 1.0  # of measuring, before others believe a gateway that nobody has to be spared
# The estimate of a p99 rises by the first factor with a slower request, faster at first, and falls
# with others by so much that it stays where one in 100 is slower.
_RISE = 1.01
_LEAST_SECONDS = 1e-4  # of a request: an estimate of nothing would not rise
_SURE_ALONE = 100  # requests; before, what is slow by itself is not charged for
_SURE = 1000  # of several gateways; before, little can be owed
_UNSURE_OWED = 1.0
_UNSURE_SECONDS = 60.0  # of measuring: until then gateways that are not sure begin none
_MOST_WEIGHT = 1500  # requests that an estimate rests on
_FORGOTTEN_SECONDS = 60.0  # an endpoint without requests for so long need not be spared


@dataclass(slots=True)
class Delay:
    """By which bulk batches may hold up requests: from the first one's arrival to their end."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """What a gateway knows of an endpoint's interactive requests.

    Attributes:
        p99: seconds that they take without bulk batches.
        seen: requests that this rests on.
        room: how many more may be slow.
    """

    p99: float
    seen: int
    room: float

    def with_that_of(self, other: "EndpointReport") -> "EndpointReport":
        """What two gateways know together: a mean of p99s by the requests that they rest on."""
        weight, others = (min(each.seen, _MOST_WEIGHT) for each in (self, other))
        share = weight / (weight + others) if weight + others else 0.5
        p99 = exp(share * log(self.p99) + (1.0 - share) * log(other.p99))
        return EndpointReport(p99, self.seen + other.seen, self.room + other.room)


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What a gateway knows.

    Attributes:
        endpoints: that have callers there, by name.
        known: whether it has measured for long enough to say so.
        rank: its place among the gateways.
        wants: whether it has bulk requests, and so has turns.
    """

    endpoints: Mapping[str, EndpointReport]
    known: bool = True
    rank: int = 0
    wants: bool = False


@dataclass(slots=True)
class _Endpoint:
    """What its interactive requests take without bulk ones, and how many may still be slow."""

    p99: float
    at: float  # when it last answered
    refilled: float
    room: float
    seen: int = 0
    others: EndpointReport | None = None  # what all other gateways say

    def learn(self, seconds: float) -> None:
        self.seen += 1
        rise = max(_RISE, 1 + 5 / (self.seen + 10))
        self.p99 *= rise if seconds > self.p99 else rise ** (-1 / 99)

    def own(self) -> EndpointReport:
        """What this gateway knows."""
        return EndpointReport(self.p99, self.seen, self.room)

    def of_all(self) -> EndpointReport:
        """What all gateways know together."""
        return self.own() if self.others is None else self.own().with_that_of(self.others)


class BulkShare:
    """What bulk batches of one gateway may take.

    Args:
        short_seconds: a batch that is over within this time counts as short whatever interactive
            requests take.
        wall_clock: unix time, for turns.

    Attributes:
        jobs: bulk calls that wait or run; nothing is measured while there are none.
        gateways: how many there are.
        rank: of this one among them, from 0; None: not known, so that it has no turn.
        yields: to mirrored requests, which wait for an idle instance or have begun.
        waiting: is called once it yields no more.
    """

    def __init__(
        self, short_seconds: float = 0.0, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self.jobs = 0
        self.gateways = 1
        self.rank: int | None = 0
        self._wall_clock = wall_clock
        self._heard: dict[Hashable, tuple[float, GatewayReport]] = {}  # when, and what
        self._measured_since = self._measured_until = self._merged_until = -inf
        self._wanted_until = -inf
        self._turns: tuple[int | None, ...] = (None,)  # whose, in rotation; None: nobody's
        self._unsure = False
        self._least_room, self._p99 = 1.0, inf
        self._delays: dict[Hashable, Delay] = {}  # of packages, until an instance is free for one
        self._yields = False
        self.waiting: set[Callable[[], None]] = set()
        self._short_seconds = short_seconds
        self._endpoints: dict[str, _Endpoint] = {}

    @property
    def yields(self) -> bool:
        """See the class."""
        return self._yields

    @yields.setter
    def yields(self, yields: bool) -> None:
        ends, self._yields = self._yields and not yields, yields
        if ends and self.waiting:
            waiting, self.waiting = self.waiting, set()
            for call in waiting:
                call()

    def drop_job(self, _: object) -> None:
        """A bulk call was answered, or has failed."""
        self.jobs -= 1
        if not self.jobs:
            self._delays.clear()

    def note_arrival(
        self, now: float, package: Hashable, until: float | None, *, waits: bool
    ) -> Delay | None:
        """An interactive request for a package came; ``waits``: no instance is free for it.

        The bulk batches at that package's Tritons, if any run, are expected to end at ``until``.
        Gives what delays it, for ``note_answer``; more may come to be known of it until then.
        """
        if not waits:
            self._delays.pop(package, None)
        elif until is not None and package not in self._delays:
            self._delays[package] = Delay(now, until)
        return self._delays.get(package)

    def note_begin(self, now: float) -> None:
        """A bulk batch begins; an instance idled, so nobody waits there for an earlier one."""
        self._delays = {key: each for key, each in self._delays.items() if each.until > now}

    def note_end(self, now: float) -> None:
        """A bulk batch has ended."""
        for delay in self._delays.values():
            delay.until = max(delay.until, now)

    def measures(self, now: float) -> bool:
        """Whether ``note_answer`` is to be told of interactive requests."""
        return self.jobs > 0 or now < self._measured_until

    def report(self, now: float) -> GatewayReport:
        """What another gateway is told that asks; requests are measured from now on."""
        self._room(now)
        found = {name: each.own() for name, each in self._endpoints.items()}
        known = self.rank is not None and now - self._measured_since >= _KNOWN_SECONDS
        return GatewayReport(found, known, self.rank or 0, now < self._wanted_until)

    def hear(self, now: float, name: Hashable, report: GatewayReport) -> None:
        """What another gateway says."""
        self._heard[name] = now, report

    def forget(self, left: Iterable[Hashable]) -> None:
        """What gateways said that have left."""
        for name in left:
            self._heard.pop(name, None)

    def _whose_turn(self, wall_seconds: float) -> tuple[int | None, float]:
        """Which gateway's turn it is, None for nobody's, and the seconds of it that have passed."""
        turn, passed = divmod(wall_seconds, TURN_SECONDS)
        return self._turns[int(turn) % len(self._turns)], passed

    def _learns(self, wall_seconds: float) -> bool:
        """Whether no other gateway's bulk batches delay a request that came then."""
        if self.gateways == 1:
            return True
        turn, passed = self._whose_turn(wall_seconds)
        return turn in (None, self.rank) and (passed >= _GUARD_SECONDS or len(self._turns) == 1)

    def _turn_seconds(self) -> float:
        """How long this gateway still has its turn; 0: it has none."""
        if self.gateways == 1 or (self._turns == (self.rank,) and self.rank is not None):
            return inf
        turn, passed = self._whose_turn(self._wall_clock())
        if turn is None or turn != self.rank or passed < _GUARD_SECONDS:
            return 0.0
        return TURN_SECONDS - passed + _GUARD_SECONDS

    def note_answer(
        self, now: float, endpoint: str, seconds: float, delay: Delay | None = None
    ) -> None:
        """An interactive request was answered, so long after it came."""
        delayed = 0.0 if delay is None else max(0.0, delay.until - delay.since)
        own = max(_LEAST_SECONDS, seconds - delayed)
        found = self._endpoints.get(endpoint)
        if found is None:
            found = self._endpoints[endpoint] = _Endpoint(own, now, now, 1.0 / self.gateways)
        if self.gateways == 1:
            slow = seconds > _SLOW * found.p99
            charged = slow and (found.seen >= _SURE_ALONE or own <= _SLOW * found.p99)
            owed = _MOST_OWED
        else:
            of_all = found.of_all()
            p99 = found.p99 if found.seen >= _SURE else max(found.p99, of_all.p99)
            charged = seconds > _SLOW_OF_SEVERAL * p99 and not self._unsure
            # What one owes is more than what all others may be slow by.
            owed = (_MOST_OWED if of_all.seen >= _SURE else _UNSURE_OWED) / self.gateways
            owed += self._most_room * (self.gateways - 1)
        found.room = max(-owed, min(self._most_room, found.room + _SLOW_SHARE) - charged)
        found.at = now
        if self._learns(self._wall_clock() - seconds):
            found.learn(own)

    @property
    def _most_room(self) -> float:
        return _MOST_ROOM if self.gateways == 1 else _MOST_ROOM_OF_SEVERAL / self.gateways

    @property
    def short_seconds(self) -> float:
        """Within what time a batch has to be over to be short."""
        return self._short_seconds / self.gateways

    def most_tritons(self, now: float, tritons: int) -> int:
        """How many Tritons of all may run bulk batches; one is left to interactive requests."""
        return max(1, ceil(min(1.0, self._room(now)) * (tritons - 1)))

    def most_seconds(self, now: float, least_seconds: float) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
        """
        if self._yields:
            return None
        self._wanted_until = now + _WANTED_SECONDS
        room, seconds = self._room(now), self._turn_seconds()
        if room > 0 and seconds > 0:
            paid = LONG_SECONDS if self._p99 == inf else _PAID_SHARE * self._p99
            return max(min(paid, seconds), least_seconds, self.short_seconds)
        return self.short_seconds if least_seconds <= self.short_seconds else None

    def _room(self, now: float) -> float:
        """How many more requests may be slow, of the endpoint that has the fewest left."""
        if self.gateways == 1 or now >= self._merged_until:
            self._merged_until = now + _MERGED_SECONDS
            self._merge(now)
        return self._least_room

    def _merge(self, now: float) -> None:
        """Looks at what all gateways know; requests are measured from now on."""
        if now >= self._measured_until:
            self._measured_since = now
        self._measured_until = now + _MEASURED_SECONDS
        self._refill(now)
        self.forget([name for name, (at, _) in self._heard.items() if now - at > HEARD_SECONDS])
        reports = [report for _, report in self._heard.values()]
        others: dict[str, EndpointReport] = {}
        for report in reports:
            for name, each in report.endpoints.items():
                others[name] = each.with_that_of(others[name]) if name in others else each
        for name, own in self._endpoints.items():
            own.others = others.pop(name, None)
        found = [*(each.of_all() for each in self._endpoints.values()), *others.values()]
        self._p99 = min((each.p99 for each in found), default=inf)
        self._least_room = min((each.room for each in found), default=1.0)
        if self.gateways == 1:
            self._unsure = False
            return
        unsure = any(each.seen < _SURE for each in found)
        self._unsure = unsure and now - self._measured_since < _UNSURE_SECONDS
        if self._unsure or sum(report.known for report in reports) < self.gateways - 1:
            self._least_room = 0.0
        self._turns = self._list_turns(now, reports)

    def _list_turns(self, now: float, reports: Sequence[GatewayReport]) -> tuple[int | None, ...]:
        wants = now < self._wanted_until
        ranks = sorted({report.rank for report in reports if report.wants})
        if wants and self.rank is not None:
            ranks = sorted({*ranks, self.rank})
        # Who has callers and no turn learns in nobody's.
        learn = any(not report.wants and report.endpoints for report in reports)
        if not ranks:
            return (None,)
        if learn or (not wants and self._endpoints):
            return (*(ranks * -(-_TURNS // len(ranks))), None)
        return tuple(ranks)

    def _refill(self, now: float) -> None:
        for name, each in [*self._endpoints.items()]:
            if now - each.at > _FORGOTTEN_SECONDS:
                del self._endpoints[name]
            passed = max(0.0, now - each.refilled) / (_EVERY_SECONDS * self.gateways)
            each.room, each.refilled = min(self._most_room, each.room + passed), now

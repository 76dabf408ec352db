"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless, unless an operator allows batches of some time at any moment:

- Behind one gateway, which sees all that the Tritons do, each endpoint's p99 without bulk batches
  is estimated, from what each request took less what a bulk batch may have delayed it. As long as
  fewer than one request in 100 is slower than a little above that, whatever slows them, batches of
  about half of it may begin. If Tritons are nearly idle, it learns from too few, and goes by the
  other rule.
- Of several gateways none knows what the others' batches delay. While any of them has callers,
  wherever these are, bulk batches of all gateways together take a small share of each Triton's
  time, the smaller the longer a batch is beside the least p99 that any gateway sees. Each tells the
  others whether it has callers, their p99, how busy they keep Tritons, and whether it has bulk
  requests, which share that. One that says nothing counts as one with bulk requests, and callers of
  an unknown p99.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, inf

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests without bulk ones:
_PAID_SHARE = 0.55  # a batch: shorter ones hold few texts, longer ones delay more requests
_PAID_SHARE_OF_SEVERAL = 0.6
_SLOW = 1.07  # a request that is charged for
_SLOW_SHARE = 0.0097  # of requests that may be so slow, behind one gateway
_EVERY_SECONDS = 60.0  # one more
_MOST_OWED = 10.0  # requests beyond these bounds; of more, not all are held against bulk requests
# Of several gateways, or if Tritons are nearly idle: of the time that interactive batches leave of
# each Triton while any has callers: the first share, divided by how many p99s long a batch is,
# within the others. If Tritons idle, few requests wait for others, and every delay is seen: then
# there is less at most. If requests are rare, one more a minute may be delayed.
_TIME = 0.015
_MOST_TIME = 0.04
_LEAST_TIME = 0.0025
_IDLE_TIME = 0.001
_BUSY_TIME = 0.08  # times the share of the time that interactive batches take
# Below this share of the time fewer than one request in 100 waits for others, so that some may wait
# for bulk batches too: so much of what is left until then.
_SEEN_BUSY = 0.01
_UNSEEN_TIME = 0.6
_RARE = 0.1  # requests a second
_RARE_SECONDS = (60.0, 2.0)  # over which they are counted; the greater rate is believed
_QUIET = 0.05  # so little that a lone gateway goes by that too, as it learns from too few
_LEAST_IDLE = 0.1  # share of the time that counts as left at least
_BUSY_SECONDS = 1.0  # over which it is averaged how busy Tritons are
_MOST_SAVED_SECONDS = 0.5  # of time in which nothing ran
_MOST_OWED_SECONDS = 600.0
_LOOK_SECONDS = 0.02  # between two looks whether a Triton of which nothing is saved may run one
_WAITED_SECONDS = 0.3  # for what others say, before the first batch
_MEASURED_SECONDS = 30.0  # for how long requests are measured after another gateway has asked
HEARD_SECONDS = 2.0  # for how long what another gateway said holds
_WANTED_SECONDS = 1.0  # for how long a gateway has a share after its last bulk request
LONG_SECONDS = 0.01  # of a batch if nobody has to be spared
# The estimate of a p99 rises by the first factor with a slower request, faster at first, and falls
# with others by so much that it stays where one in 100 is slower.
_RISE = 1.01
_LEAST_SECONDS = 1e-4  # of a request: an estimate of nothing would not rise
_SURE = 100  # requests; before, what is slow by itself is not charged for
_COLD = 3  # of the slowest of these the first ones are not believed
_FORGOTTEN_SECONDS = 60.0  # an endpoint without requests for so long need not be spared


@dataclass(slots=True)
class Delay:
    """By which bulk batches may hold up requests: from the first one's arrival to their end."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What a gateway tells the others.

    Attributes:
        spared: whether it has callers.
        p99: seconds that their requests take, the least of its endpoints'; None: not known yet.
        wants: whether it has bulk requests.
        busy: engine seconds of interactive batches a second, by the Tritons' addresses.
        rate: interactive requests a second.
    """

    spared: bool
    p99: float | None = None
    wants: bool = False
    busy: Mapping[str, float] = field(default_factory=dict)
    rate: float = 0.0


@dataclass(slots=True)
class _Endpoint:
    """What its interactive requests take without bulk ones, and how many may still be slow."""

    p99: float
    at: float  # when it last answered
    room: float = 1.0
    seen: int = 0
    refilled: float = -inf
    first: list[float] = field(default_factory=list)  # seconds

    @property
    def careful(self) -> float:
        """The p99, or less if it rests on few requests."""
        return self.p99 if self.seen >= _SURE else min(self.p99, LONG_SECONDS)

    def learn(self, seconds: float) -> None:
        self.seen += 1
        rise = max(_RISE, 1 + 5 / (self.seen + 10))
        self.p99 *= rise if seconds > self.p99 else rise ** (-1 / 99)
        if self.seen < _SURE:
            self.first.append(seconds)
        elif self.first:  # a cold model may have been slow: the estimate would fall for hours
            self.p99, self.first = min(self.p99, sorted(self.first)[-_COLD]), []


@dataclass(slots=True)
class _Average:
    """An amount a second, averaged over about these seconds."""

    seconds: float
    value: float = 0.0
    at: float = 0.0

    def add(self, now: float, amount: float) -> None:
        self.value, self.at = self.get(now) + amount / self.seconds, now

    def get(self, now: float) -> float:
        return self.value * exp(min(0.0, self.at - now) / self.seconds)


@dataclass(slots=True)
class _SavedTime:
    """Time of a Triton that is saved for bulk batches."""

    saved: float = _MOST_SAVED_SECONDS
    at: float = -inf
    p99: float = inf  # of callers of any gateway; 0: not known
    idle: float = 1.0
    most_time: float = _MOST_TIME
    rare_time: float = 0.0

    def refill(self, now: float, p99: float, load: tuple[float, float], wanting: int) -> None:
        """Takes what is known of callers; ``load``: the time that they take, and their rate."""
        passed, self.at, self.p99 = now - self.at, now, p99
        self.saved = min(_MOST_SAVED_SECONDS, self.saved + passed / wanting)
        busy, rate = min(load[0], 1.0 - _LEAST_IDLE), load[1]
        self.idle = 1.0 - busy
        unseen = _UNSEEN_TIME * (_SEEN_BUSY - busy)
        self.most_time = min(_MOST_TIME, max(_IDLE_TIME, unseen, _BUSY_TIME * busy))
        self.rare_time = _rareness(rate) / (_EVERY_SECONDS * max(rate, 1e-3))

    def most_seconds(self, least_seconds: float) -> float:
        """Of a batch that may begin; 0.0: none may."""
        if self.saved <= 0 and self.p99 < inf:
            return 0.0
        if self.p99 in (0.0, inf) or self.rare_time > self.most_time:
            return LONG_SECONDS
        paid = self.p99 * max(_PAID_SHARE_OF_SEVERAL, _TIME / self.most_time)
        return max(min(paid, LONG_SECONDS), least_seconds)

    def begin(self, seconds: float) -> None:
        if self.p99 < inf:
            paid = min(self.most_time, max(_LEAST_TIME, _TIME * self.p99 / seconds))
            share = min(1.0, paid * self.idle + self.rare_time)
            self.saved = max(self.saved - seconds / share, -_MOST_OWED_SECONDS)


def _rareness(rate: float) -> float:
    """How much of one request a minute may be slow: 1.0 if few come, next to nothing else."""
    return min(1.0, _RARE / max(rate, 1e-3)) ** 2


class BulkShare:
    """What bulk batches of one gateway may take.

    Args:
        short_seconds: a batch that is over within this time counts as short whatever interactive
            requests take.

    Attributes:
        jobs: bulk calls that wait or run.
        gateways: how many there are.
        tell: is called if an interactive request has come, and none had for long.
        yields: to mirrored requests, which wait for an idle instance or have begun.
        waiting: is called once it yields no more.
    """

    def __init__(self, short_seconds: float = 0.0) -> None:
        self.jobs = 0
        self.gateways = 1
        self.tell: Callable[[], None] | None = None
        self._asked_at = -inf  # when the last interactive request came
        self._heard: dict[Hashable, tuple[float, GatewayReport]] = {}  # when, and what
        self._measured_until = self._wanted_until = -inf
        self._wanted_since = -inf
        self._busy: dict[str, _Average] = {}  # by the Tritons' addresses, as what is saved
        self._saved: dict[str, _SavedTime] = {}
        self._rates = [_Average(seconds) for seconds in _RARE_SECONDS]
        self._saves = False  # whether bulk batches go by the time that is saved for them
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

    def note_asked(self, now: float) -> None:
        """An interactive request has come."""
        since, self._asked_at = now - self._asked_at, now
        if self.measures(now):
            for rate in self._rates:
                rate.add(now, 1.0)
        if since > _FORGOTTEN_SECONDS and self.tell is not None:
            self.tell()

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

    def note_begin(self, now: float, seconds: float, triton: str = "") -> None:
        """A bulk batch begins that takes these engine seconds of a Triton.

        An instance idled, so nobody waits there for an earlier one.
        """
        self._delays = {key: each for key, each in self._delays.items() if each.until > now}
        if self._saves and seconds > self.short_seconds:
            self._saved_of(triton).begin(seconds)

    def _saved_of(self, triton: str) -> _SavedTime:
        found = self._saved.get(triton)
        if found is None:
            found = self._saved[triton] = _SavedTime()
        return found

    def note_work(self, now: float, seconds: float, triton: str = "") -> None:
        """A batch of interactive requests begins that takes these engine seconds."""
        if triton not in self._busy:
            self._busy[triton] = _Average(_BUSY_SECONDS)
        self._busy[triton].add(now, seconds)

    def note_end(self, now: float) -> None:
        """A bulk batch has ended."""
        for delay in self._delays.values():
            delay.until = max(delay.until, now)

    def measures(self, now: float) -> bool:
        """Whether ``note_answer`` is to be told of interactive requests."""
        return self.jobs > 0 or now < self._measured_until

    def report(self, now: float) -> GatewayReport:
        """What another gateway is told that asks; requests are measured from now on."""
        self._measured_until = now + _MEASURED_SECONDS
        return self._own(now)

    def _own(self, now: float) -> GatewayReport:
        self._forget_idle(now)
        p99 = min((each.careful for each in self._endpoints.values()), default=None)
        spared = now - self._asked_at < _FORGOTTEN_SECONDS
        busy = {triton: average.get(now) for triton, average in self._busy.items()}
        return GatewayReport(spared, p99, now < self._wanted_until, busy, self._rate(now))

    def _forget_idle(self, now: float) -> None:
        """Drops what is known of endpoints without requests, and of Tritons that have left."""
        for name, each in [*self._endpoints.items()]:
            if now - each.at > _FORGOTTEN_SECONDS:
                del self._endpoints[name]
        for triton, average in [*self._busy.items()]:
            if now - average.at > _FORGOTTEN_SECONDS:
                del self._busy[triton]
        for triton, time in [*self._saved.items()]:
            if now - time.at > 2 * _MOST_OWED_SECONDS:
                del self._saved[triton]

    def _rate(self, now: float) -> float:
        return max(each.get(now) for each in self._rates)

    def hear(self, now: float, name: Hashable, report: GatewayReport) -> None:
        """What another gateway says."""
        self._heard[name] = now, report

    def forget(self, left: Iterable[Hashable]) -> None:
        """What gateways said that have left."""
        for name in left:
            self._heard.pop(name, None)

    def note_answer(
        self, now: float, endpoint: str, seconds: float, delay: Delay | None = None
    ) -> None:
        """An interactive request was answered, so long after it came."""
        delayed = 0.0 if delay is None else max(0.0, delay.until - delay.since)
        own = max(_LEAST_SECONDS, seconds - delayed)
        found = self._endpoints.get(endpoint)
        if found is None:
            found = self._endpoints[endpoint] = _Endpoint(own, now, refilled=now)
        slow = _SLOW * found.p99
        charged = seconds > slow and (found.seen >= _SURE or own <= slow)
        found.room = max(-_MOST_OWED, min(1.0, found.room + _SLOW_SHARE) - charged)
        found.at = now
        found.learn(own)

    @property
    def short_seconds(self) -> float:
        """Within what time a batch has to be over to be short."""
        return self._short_seconds / self.gateways

    def most_tritons(self, now: float, tritons: int) -> int:
        """How many Tritons of all may run bulk batches; one is left to interactive requests."""
        room = self._room(now) if self.gateways == 1 else 1.0
        return max(1, ceil(room * (tritons - 1)))

    def most_seconds(
        self, now: float, least_seconds: float, triton: str = "", instances: int = 1
    ) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
            triton: the address of whose instance it is.
            instances: that it has.
        """
        if self._yields:
            return None
        if now > self._wanted_until:
            self._wanted_since = now
        self._wanted_until = now + _WANTED_SECONDS
        self._saves = self.gateways > 1
        if not self._saves:
            busy = self._busy.get(triton)
            self._saves = busy is None or busy.get(now) < _QUIET * instances
        if self._saves:
            most = self._most_of_saved(now, least_seconds, triton, instances)
        elif self._room(now) > 0:
            least = min([each.careful for each in self._endpoints.values()], default=inf)
            most = LONG_SECONDS if least == inf else _PAID_SHARE * least
        else:
            most = 0.0
        if most:
            return max(most, self.short_seconds)
        return self.short_seconds if least_seconds <= self.short_seconds else None

    def _most_of_saved(
        self, now: float, least_seconds: float, triton: str, instances: int
    ) -> float:
        """Of a batch that time is saved for; 0.0: it is not, for none but short ones."""
        last = self._saved_of(triton)
        if last.saved <= 0 and last.p99 < inf and now - last.at < _LOOK_SECONDS:
            return 0.0
        reports = [self._own(now)]
        reports += [each for at, each in self._heard.values() if now - at <= HEARD_SECONDS]
        silent = max(0, self.gateways - len(reports))
        p99s = [each.p99 or 0.0 for each in reports if each.spared] + [0.0] * silent
        rate = inf if silent else sum(each.rate for each in reports)
        busy = sum(each.busy.get(triton, 0.0) for each in reports) / instances
        wanting = silent + sum(each.wants for each in reports)
        found = self._saved_of(triton)  # the last one may just have been forgotten
        found.refill(now, min(p99s, default=inf), (busy, rate), wanting)
        if silent and now - self._wanted_since < _WAITED_SECONDS:
            return 0.0
        return found.most_seconds(least_seconds)

    def _room(self, now: float) -> float:
        """How many more requests may be slow, of the endpoint that has the fewest left."""
        self._forget_idle(now)
        rareness = _rareness(self._rate(now))
        for each in self._endpoints.values():
            passed = max(0.0, now - each.refilled) * rareness / _EVERY_SECONDS
            each.room, each.refilled = min(1.0, each.room + passed), now
        return min((each.room for each in self._endpoints.values()), default=1.0)

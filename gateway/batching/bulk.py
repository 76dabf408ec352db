"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless, unless an operator allows batches of some time at any moment:

- Behind one gateway, which sees all that the Tritons do, each endpoint's p99 without bulk batches
  is estimated, from what each request took less what a bulk batch may have delayed it. As long as
  fewer than one request in 100 is slower than a little above that, whatever slows them, batches of
  about half of it may begin.
- Of several gateways none knows what the others' batches delay. While any of them has callers,
  wherever these are, bulk batches of all gateways together take a small share of each Triton's
  time, the smaller the longer a batch is beside the least p99 that any gateway sees. Each tells the
  others whether it has callers, their p99, and whether it has bulk requests, which share that. One
  that says nothing counts as one with bulk requests, and callers of an unknown p99.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from math import ceil, exp, inf

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests without bulk ones:
_PAID_SHARE = 0.55  # a batch: shorter ones hold few texts, longer ones delay more requests
_PAID_SHARE_OF_SEVERAL = 0.6
_SLOW = 1.07  # a request that is charged for
_SLOW_SHARE = 0.0097  # of requests that may be so slow, behind one gateway
_EVERY_SECONDS = 60.0  # one more
_MOST_OWED = 10.0  # requests beyond these bounds; of more, not all are held against bulk requests
# Of several gateways, of the time that interactive batches leave of each Triton while any has
# callers: the first share, divided by how many p99s long a batch is, within the others.
TIME = 0.015
MOST_TIME = 0.04
LEAST_TIME = 0.0025
_LEAST_IDLE = 0.05  # share of the time that counts as left at least
_BUSY_SECONDS = 1.0  # over which it is averaged how busy Tritons are
_MOST_SAVED_SECONDS = 0.5  # of time in which nothing ran
_MOST_OWED_SECONDS = 60.0
_MEASURED_SECONDS = 30.0  # for how long requests are measured after another gateway has asked
HEARD_SECONDS = 2.0  # for how long what another gateway said holds
_WANTED_SECONDS = 1.0  # for how long a gateway has a share after its last bulk request
LONG_SECONDS = 0.01  # of a batch if nobody has to be spared
# The estimate of a p99 rises by the first factor with a slower request, faster at first, and falls
# with others by so much that it stays where one in 100 is slower.
_RISE = 1.01
_LEAST_SECONDS = 1e-4  # of a request: an estimate of nothing would not rise
_SURE = 100  # requests; before, what is slow by itself is not charged for
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
        busy: engine seconds of interactive batches a second, of all Tritons.
    """

    spared: bool
    p99: float | None = None
    wants: bool = False
    busy: float = 0.0


@dataclass(slots=True)
class _Endpoint:
    """What its interactive requests take without bulk ones, and how many may still be slow."""

    p99: float
    at: float  # when it last answered
    room: float = 1.0
    seen: int = 0
    refilled: float = -inf

    @property
    def careful(self) -> float:
        """The p99, or less if it rests on few requests."""
        return self.p99 if self.seen >= _SURE else min(self.p99, LONG_SECONDS)

    def learn(self, seconds: float) -> None:
        self.seen += 1
        rise = max(_RISE, 1 + 5 / (self.seen + 10))
        self.p99 *= rise if seconds > self.p99 else rise ** (-1 / 99)


class BulkShare:
    """What bulk batches of one gateway may take.

    Args:
        short_seconds: a batch that is over within this time counts as short whatever interactive
            requests take.

    Attributes:
        jobs: bulk calls that wait or run; nothing is measured while there are none.
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
        self._saved, self._saved_at = _MOST_SAVED_SECONDS, 0.0
        self._spared_p99 = inf  # of callers of any gateway; 0: not known
        self._tritons, self._idle = 1, 1.0
        self._busy = self._busy_since = 0.0
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

    def note_begin(self, now: float, seconds: float) -> None:
        """A bulk batch begins that takes these engine seconds.

        An instance idled, so nobody waits there for an earlier one.
        """
        self._delays = {key: each for key, each in self._delays.items() if each.until > now}
        if self.gateways > 1 and self._spared_p99 < inf and seconds > self.short_seconds:
            share = min(MOST_TIME, max(LEAST_TIME, TIME * self._spared_p99 / seconds)) * self._idle
            self._saved = max(self._saved - seconds / share, -_MOST_OWED_SECONDS)

    def note_work(self, now: float, seconds: float) -> None:
        """A batch of interactive requests begins that takes these engine seconds."""
        self._busy = self._busy_at(now) + seconds / _BUSY_SECONDS
        self._busy_since = now

    def _busy_at(self, now: float) -> float:
        return self._busy * exp((self._busy_since - now) / _BUSY_SECONDS)

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
        for name, each in [*self._endpoints.items()]:
            if now - each.at > _FORGOTTEN_SECONDS:
                del self._endpoints[name]
        p99 = min((each.careful for each in self._endpoints.values()), default=None)
        spared = now - self._asked_at < _FORGOTTEN_SECONDS
        return GatewayReport(spared, p99, now < self._wanted_until, self._busy_at(now))

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
        self._tritons = tritons
        room = self._room(now) if self.gateways == 1 else 1.0
        return max(1, ceil(room * (tritons - 1)))

    def most_seconds(self, now: float, least_seconds: float) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
        """
        if self._yields:
            return None
        self._wanted_until = now + _WANTED_SECONDS
        if self.gateways > 1:
            most = self._most_of_several(now, least_seconds)
        elif self._room(now) > 0:
            least = min([each.p99 for each in self._endpoints.values()], default=inf)
            most = LONG_SECONDS if least == inf else _PAID_SHARE * least
        else:
            most = 0.0
        if most:
            return max(most, self.short_seconds)
        return self.short_seconds if least_seconds <= self.short_seconds else None

    def _most_of_several(self, now: float, least_seconds: float) -> float:
        """The same as ``most_seconds``, but 0.0 if no longer batch than a short one may begin."""
        reports = [self._own(now)]
        reports += [each for at, each in self._heard.values() if now - at <= HEARD_SECONDS]
        silent = max(0, self.gateways - len(reports))
        wanting = silent + sum(each.wants for each in reports)
        passed, self._saved_at = now - self._saved_at, now
        self._saved = min(_MOST_SAVED_SECONDS, self._saved + passed * self._tritons / wanting)
        p99s = [each.p99 or 0.0 for each in reports if each.spared] + [0.0] * silent
        self._spared_p99 = min(p99s, default=inf)
        busy = sum(each.busy for each in reports) / self._tritons
        self._idle = max(_LEAST_IDLE, 1.0 - busy)
        if self._saved <= 0 and p99s:
            return 0.0
        if self._spared_p99 in (0.0, inf):
            return LONG_SECONDS
        return max(min(LONG_SECONDS, _PAID_SHARE_OF_SEVERAL * self._spared_p99), least_seconds)

    def _room(self, now: float) -> float:
        """How many more requests may be slow, of the endpoint that has the fewest left."""
        for name, each in [*self._endpoints.items()]:
            if now - each.at > _FORGOTTEN_SECONDS:
                del self._endpoints[name]
            passed = max(0.0, now - each.refilled) / _EVERY_SECONDS
            each.room, each.refilled = min(1.0, each.room + passed), now
        return min((each.room for each in self._endpoints.values()), default=1.0)

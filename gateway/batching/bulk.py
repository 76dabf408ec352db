"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless, unless an operator allows batches of some time at any moment:

- Behind one gateway, which sees all that the Tritons do, each endpoint's p99 without bulk batches
  is estimated, from what each request took less what a bulk batch may have delayed it. As long as
  fewer than one request in 100 is slower than a little above that, whatever slows them, batches of
  about half of it may begin.
- Of several gateways none knows what others delay. There so few batches begin that they delay one
  interactive request in 400, and one a minute, of all gateways together, if callers are spread over
  them evenly. What others have at a Triton shows by batches that take longer than expected: then
  there is a pause of many times that.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil, inf

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests without bulk ones:
_PAID_SHARE = 0.55  # a batch: shorter ones hold few texts, longer ones delay more requests
_SLOW = 1.07  # a request that is charged for
_SLOW_SHARE = 0.0097  # of requests that may be so slow, behind one gateway
_DELAYED_SHARE = 0.0025  # of requests that may be delayed at all, behind several
_EVERY_SECONDS = 60.0  # one more
_MOST_OWED = 10.0  # requests beyond these bounds; of more, not all are held against bulk requests
# A batch that is late by so much, and by this share of what was expected, waited for others'.
_LEAST_LATE_SECONDS = 0.001  # the event loop itself may be as late
_CONTENDED = 0.5
_PAUSE = 20.0  # times by how much it was late
_MOST_PAUSE_SECONDS = 5.0  # a Triton that hung is no reason for more
LONG_SECONDS = 0.01  # of a batch if nobody has to be spared, or behind several gateways
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


@dataclass(slots=True)
class _Endpoint:
    """What its interactive requests take without bulk ones, and how many may still be slow."""

    p99: float
    at: float  # when it last answered
    room: float = 1.0
    seen: int = 0
    refilled: float = -inf

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
        gateways: among which the bounds are shared.
        yields: to mirrored requests, which wait for an idle instance or have begun.
        waiting: is called once it yields no more.
    """

    def __init__(self, short_seconds: float = 0.0) -> None:
        self.jobs = 0
        self.gateways = 1
        self._paused_until = -inf
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

    def note_end(self, now: float, late: float, expected: float) -> None:
        """A bulk batch has ended, so much later than after the engine seconds expected of it."""
        if self.gateways > 1 and late > max(_LEAST_LATE_SECONDS, _CONTENDED * expected):
            pause = min(_PAUSE * late, _MOST_PAUSE_SECONDS)
            self._paused_until = max(self._paused_until, now + pause)
        for delay in self._delays.values():
            delay.until = max(delay.until, now)

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
        if self.gateways > 1:
            share, charged = _DELAYED_SHARE / self.gateways, delayed > self.short_seconds
        else:
            share, charged = _SLOW_SHARE, seconds > slow and (found.seen >= _SURE or own <= slow)
        found.room = max(-_MOST_OWED, min(1.0, found.room + share) - charged)
        found.at = now
        found.learn(own)

    @property
    def short_seconds(self) -> float:
        """Within what time a batch has to be over to be short."""
        return self._short_seconds / self.gateways

    def most_tritons(self, now: float, tritons: int) -> int:
        """How many Tritons of all may run bulk batches; one is left to interactive requests."""
        return max(1, ceil(self._room(now) * (tritons - 1)))

    def most_seconds(self, now: float, least_seconds: float) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
        """
        if self._yields or now < self._paused_until:
            return None
        if self._room(now) > 0:
            least = min([each.p99 for each in self._endpoints.values()], default=inf)
            paid = LONG_SECONDS if self.gateways > 1 or least == inf else _PAID_SHARE * least
            return max(paid, self.short_seconds)
        return self.short_seconds if least_seconds <= self.short_seconds else None

    def _room(self, now: float) -> float:
        """How many more requests may be slow, of the endpoint that has the fewest left."""
        for name, each in [*self._endpoints.items()]:
            if now - each.at > _FORGOTTEN_SECONDS:
                del self._endpoints[name]
            passed = max(0.0, now - each.refilled) / (_EVERY_SECONDS * self.gateways)
            each.room, each.refilled = min(1.0, each.room + passed), now
        return min((each.room for each in self._endpoints.values()), default=1.0)

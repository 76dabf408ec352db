"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless. A batch is *short* if it is over within what an operator allows
or a small share of the p99, and may begin at any time. Others have to pay:

- Behind one gateway, which sees all that the Tritons do, each endpoint's p99 without bulk batches
  is estimated, from what each request took less what a bulk batch may have delayed it. As long as
  fewer than one request in 100 is slower than a little above that, whatever slows them, batches of
  about half of it may begin.
- Of several gateways none knows what others delay. There so few longer batches begin that they
  delay one interactive request in 400, and one a minute, of all gateways together. What others have
  at a Triton shows by bulk batches that take longer than expected: then there is a pause of many
  times the delay.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import ceil, inf, sqrt

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests without bulk ones:
_SHORT_SHARE = 0.08  # a batch that is short
_PAID_SHARE = 0.55  # one that is not: shorter ones hold few texts, longer ones delay more requests
_SLOW = 1.08  # a request that is charged for
_SLOW_SHARE = 0.0097  # of requests that may be so slow, behind one gateway
_DELAYED_SHARE = 0.0025  # of requests that may be delayed at all, behind several
_EVERY_SECONDS = 60.0  # one more
_MOST_OWED = 10.0  # requests beyond these bounds; of more, not all are held against bulk requests
LONG_SECONDS = 0.01  # of a batch if nobody has to be spared, or behind several gateways
# The estimate of a p99 rises by the first factor with a slower request, faster at first, and falls
# with others by so much that it stays where one in 100 is slower.
_RISE = 1.02
_LEAST_SECONDS = 1e-4  # of a request: an estimate of nothing would not rise
_SURE = 100  # requests; before, what is slow by itself is not charged for
_FORGOTTEN_SECONDS = 60.0  # an endpoint without requests for so long need not be spared
_CONTENDED = 1.5  # times the expected seconds, of a batch that waited for other gateways'
_LEAST_DELAY_SECONDS = 0.001  # the event loop itself may be as late
_PAUSE = 20.0  # times the delay
_MOST_PAUSE_SECONDS = 2.0  # a Triton that was away has delayed nobody's requests by bulk batches


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
        rise = max(_RISE, 1 + 0.5 / sqrt(self.seen)) if self.seen < _SURE else _RISE
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
        paused_until: no batch begins before.
        ends: when each batch in flight is expected to end.
    """

    def __init__(self, short_seconds: float = 0.0) -> None:
        self.jobs = 0
        self.gateways = 1
        self.ends: dict[Hashable, float] = {}
        self._delay: Delay | None = None  # until an instance is free for the request that comes
        self._yields = False
        self.waiting: set[Callable[[], None]] = set()
        self.paused_until = -inf
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

    def note_arrival(self, now: float, *, waits: bool) -> Delay | None:
        """An interactive request came; ``waits``: no instance is free of bulk batches for it.

        Returns:
            What delays it, for ``note_answer``; more may come to be known of it until then.
        """
        if not waits:
            self._delay = None
        elif self._delay is None and self.ends:
            self._delay = Delay(now, max(self.ends.values()))
        return self._delay

    def note_begin(self, now: float, batch: Hashable, expected: float) -> None:
        """A bulk batch begins, of this many engine seconds; an instance idled, so nobody waits."""
        self._delay = None
        self.ends[batch] = now + expected

    def note_end(self, now: float, batch: Hashable, expected: float, seconds: float) -> None:
        """It has ended, after this many seconds."""
        self.ends.pop(batch, None)
        if self._delay is not None:
            self._delay.until = max(self._delay.until, now)
        delay = seconds - expected
        if self.gateways > 1 and seconds > _CONTENDED * expected and delay > _LEAST_DELAY_SECONDS:
            self.pause(now + min(_MOST_PAUSE_SECONDS, _PAUSE * delay))

    def pause(self, until: float) -> None:
        """No batch begins before."""
        self.paused_until = max(self.paused_until, until)

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
            share, charged = _DELAYED_SHARE / self.gateways, delayed > self.short_seconds(now)
        else:
            share, charged = _SLOW_SHARE, seconds > slow and (found.seen >= _SURE or own <= slow)
        found.room = max(-_MOST_OWED, min(1.0, found.room + share) - charged)
        found.at = now
        found.learn(own)

    def short_seconds(self, now: float) -> float:
        """Within what time a batch has to be over to be short."""
        # The queues of other gateways at a Triton are seen by nobody here.
        least = self._least_p99(now) if self.gateways == 1 else inf
        return max(self._short_seconds, 0.0 if least == inf else _SHORT_SHARE * least) / self.gateways

    def most_tritons(self, now: float, tritons: int) -> int:
        """How many Tritons of all may run bulk batches; one is left to interactive requests."""
        return max(1, ceil(self._room(now) * (tritons - 1)))

    def most_seconds(self, now: float, least_seconds: float) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
        """
        if self._yields or now < self.paused_until:
            return None
        if self._room(now) > 0:
            least = self._least_p99(now)
            paid = LONG_SECONDS if self.gateways > 1 or least == inf else _PAID_SHARE * least
            return max(paid, self.short_seconds(now))
        short = self.short_seconds(now)
        return short if least_seconds <= short else None

    def _least_p99(self, now: float) -> float:
        """Of all endpoints; infinite if there is none to spare."""
        gone = [n for n, each in self._endpoints.items() if now - each.at > _FORGOTTEN_SECONDS]
        for name in gone:
            del self._endpoints[name]
        return min((each.p99 for each in self._endpoints.values()), default=inf)

    def _room(self, now: float) -> float:
        """How many more requests may be slow, of the endpoint that has the fewest left."""
        for each in self._endpoints.values():
            passed = max(0.0, now - each.refilled) / (_EVERY_SECONDS * self.gateways)
            each.room, each.refilled = min(1.0, each.room + passed), now
        return min((each.room for each in self._endpoints.values()), default=1.0)

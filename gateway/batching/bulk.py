"""Decides when a batch of bulk requests may begin. Pure, with the time passed in.

Requests of the class ``bulk`` take idle capacity only. A batch that has begun can't be stopped, so
the interactive request that comes next may have to wait for it. The p99 of interactive requests
stays within a tenth nevertheless, because a bulk batch is one of two kinds:

- A *short* one is over within a share of what interactive requests take now, at their p99; or, as
  always with several gateways, within what an operator allows.
- Of longer ones, so few begin that they delay one in 400 interactive requests, and one a minute.

The gateways of an installation share these bounds; callers are spread over them evenly. What other
gateways have at a Triton shows by bulk batches that take longer than expected: then there is a
pause of many times the delay.
"""

from collections.abc import Callable, Hashable
from math import ceil, inf

CLASS = "bulk"

# Of the p99 of an endpoint's interactive requests. The p99 is measured with bulk requests beside
# it, so a share s moves it by s / (1 - s).
_SHORT_SHARE = 0.08
_DELAYED_SHARE = 0.0025
_DELAYED_EVERY_SECONDS = 60.0
_MOST_OWED = 10.0  # requests that were delayed beyond the bounds: ten minutes at most
LONG_SECONDS = 0.01  # of a batch that is not short, unless its first row takes longer
# The estimate of a p99 rises by the first factor with a slower request, and falls with others by so
# much that it stays where one in 100 is slower.
_RISE = 1.1
_FALL = _RISE ** (-1 / 99)
_FORGOTTEN_SECONDS = 60.0  # an endpoint without requests for so long need not be spared
_CONTENDED = 1.5  # times the expected seconds, of a batch that waited for other gateways'
_LEAST_DELAY_SECONDS = 0.001  # the event loop itself may be as late
_PAUSE = 20.0  # times the delay


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
        long: when each batch in flight that is not short is expected to end.
    """

    def __init__(self, short_seconds: float = 0.0) -> None:
        self.jobs = 0
        self.gateways = 1
        self.long: dict[Hashable, float] = {}
        self._trails = False  # no instance was free since a long batch: requests wait for its sake
        self._yields = False
        self.waiting: set[Callable[[], None]] = set()
        self.paused_until = -inf
        self._short_seconds = short_seconds
        self._room = 1.0  # interactive requests that long batches may still delay
        self._at = -inf
        self._p99s: dict[str, tuple[float, float]] = {}  # by endpoint, and when it last answered

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

    def note_arrival(self, now: float, *, waits: bool) -> None:
        """An interactive request came; ``waits``: no instance is free for it."""
        self._refill(now)
        self._room = min(1.0, self._room + _DELAYED_SHARE / self.gateways)
        self._trails = self._trails and waits
        left = max(self.long.values(), default=now) - now
        if waits and (self._trails or left > self.short_seconds(now)):
            self._room = max(-_MOST_OWED, self._room - 1)

    def note_begin(self, now: float, batch: Hashable, expected: float) -> None:
        """A bulk batch begins, of this many engine seconds."""
        if expected > self.short_seconds(now):
            self.long[batch] = now + expected

    def note_end(self, now: float, batch: Hashable, expected: float, seconds: float) -> None:
        """It has ended, after this many seconds."""
        if self.long.pop(batch, None) is not None:
            self._trails = True
        delay = seconds - expected
        if self.gateways > 1 and seconds > _CONTENDED * expected and delay > _LEAST_DELAY_SECONDS:
            self.pause(now + _PAUSE * delay)

    def pause(self, until: float) -> None:
        """No batch begins before."""
        self.paused_until = max(self.paused_until, until)

    def note_answer(self, now: float, endpoint: str, seconds: float) -> None:
        """An interactive request was answered, so long after it came."""
        p99, _ = self._p99s.get(endpoint, (seconds, now))
        self._p99s[endpoint] = p99 * (_RISE if seconds > p99 else _FALL), now

    def short_seconds(self, now: float) -> float:
        """Within what time a batch has to be over to be short."""
        gone = [name for name, (_, at) in self._p99s.items() if now - at > _FORGOTTEN_SECONDS]
        for name in gone:
            del self._p99s[name]
        least = min((p99 for p99, _ in self._p99s.values()), default=0.0)
        if self.gateways > 1:  # whose queues at a Triton nobody here sees
            least = 0.0
        return max(self._short_seconds, _SHORT_SHARE * least) / self.gateways

    def most_tritons(self, now: float, tritons: int) -> int:
        """How many Tritons of all may run bulk batches; one is left to interactive requests."""
        self._refill(now)
        return max(1, ceil(self._room * (tritons - 1)))

    def most_seconds(self, now: float, least_seconds: float) -> float | None:
        """Engine seconds of a batch that may begin at an idle instance; None: none may.

        Args:
            now: the event loop's clock, seconds.
            least_seconds: of the smallest batch, which holds one row.
        """
        if self._yields or now < self.paused_until:
            return None
        short = self.short_seconds(now)
        if least_seconds <= short:
            return short
        self._refill(now)
        return LONG_SECONDS if self._room > 0 else None

    def _refill(self, now: float) -> None:
        if now > self._at > -inf:
            passed = (now - self._at) / (_DELAYED_EVERY_SECONDS * self.gateways)
            self._room = min(1.0, self._room + passed)
        self._at = now

"""Rate limits of API keys: token buckets with this gateway's share of each limit.

A key's own limit is one bucket over all endpoints; an endpoint's limit for each key is one bucket
for each (key, endpoint). Several gateways share a limit in equal parts. Pure: the time is passed
in. The number of buckets is bounded.

Two names stand for requests whose endpoint is not known, as their bodies name it: ``UNNAMED`` for
predictions and ``FEEDBACK``, which a key's own limit counts apart from predictions.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import RateLimitedError

# After a pause, a caller may send the requests of this many seconds at once.
BURST_SECONDS = 1.0
# No endpoint has one of these names.
_ALL_ENDPOINTS = ""
UNNAMED, FEEDBACK = "/", "/feedback"
_ROUNDING = 1e-9  # seconds; sums of 1/share are not exact


@dataclass(slots=True)
class _TokenBucket:
    """A bucket in the form of GCRA, which stores only the time when it will be full again."""

    full_at: float
    limit: float | None  # None: it refuses nobody, until it is full
    sent_away: bool = (
        False  # whether a caller was sent to another gateway since the last admitted request
    )


class RateLimits:
    """The buckets of this gateway.

    A bucket holds ``BURST_SECONDS`` of the gateway's share, at least one request. All callers
    without an API key share one bucket an endpoint.

    Args:
        own_limit: a caller's own requests a second over all endpoints, which replace the
            endpoints' limits; None if the key has none.
        max_buckets: above it, the least recently used bucket is dropped, and counts as full.
    """

    def __init__(
        self,
        own_limit: Callable[[str], float | None] | None = None,
        *,
        max_buckets: int = 65_536,
    ) -> None:
        self._own_limit = own_limit
        self._max_buckets = max_buckets
        self._gateways = 1
        self._buckets: OrderedDict[tuple[str | None, str], _TokenBucket] = OrderedDict()

    @property
    def gateways(self) -> int:
        """How many gateways share each limit."""
        return self._gateways

    def share(self, gateways: int) -> None:
        """Sets how many gateways share each limit, this one included."""
        self._gateways = max(1, gateways)

    def check(
        self, caller: str | None, endpoint: str, per_second: float | None, now: float
    ) -> None:
        """Counts a request, or refuses it; a refused one is not counted.

        Raises:
            RateLimitedError: with the time until this gateway admits the next request.
        """
        # As ``_own`` has it: this runs for every request.
        own = self._own_limit(caller) if self._own_limit is not None and caller else None
        limit = per_second if own is None else own
        if limit is None:
            return
        key = _key(caller, endpoint, own)
        bucket = self._buckets.get(key)
        if bucket is not None:
            self._check_room(bucket, limit, now)
        self._take(key, bucket, limit, 1, now)

    def look(self, caller: str | None, name: str, now: float) -> None:
        """Refuses a request of ``UNNAMED`` or ``FEEDBACK`` as ``check`` does, and counts none.

        Raises:
            RateLimitedError: the caller has sent too many of them.
        """
        own = self._own(caller)
        bucket = self._buckets.get(_key(caller, name, own))
        if bucket is not None:
            limit = bucket.limit if own is None else own
            if limit is not None:
                self._check_room(bucket, limit, now)

    def charge(
        self,
        caller: str | None,
        endpoint: str,
        per_second: Callable[[], float | None],
        requests: int,
        now: float,
    ) -> None:
        """Counts requests that were not refused, even if they are more than the bucket holds.

        Args:
            caller: the key's name.
            endpoint: the endpoint, or ``UNNAMED`` or ``FEEDBACK``.
            per_second: the limit, where the key has none of its own. It may take long: it is asked
                for when the bucket is full, so about once a second.
            requests: how many.
            now: the time.
        """
        own = self._own(caller)
        key = _key(caller, endpoint, own)
        bucket = self._buckets.get(key)
        if own is not None:
            limit: float | None = own
        elif bucket is None or bucket.full_at <= now:
            limit = per_second()
        else:
            limit = bucket.limit
        self._take(key, bucket, limit, requests, now)

    def _own(self, caller: str | None) -> float | None:
        return self._own_limit(caller) if self._own_limit is not None and caller else None

    def _check_room(self, bucket: _TokenBucket, limit: float, now: float) -> None:
        """Refuses a request that the bucket has no room for; one without a bucket has room."""
        each = self._gateways / limit
        excess = max(0.0, bucket.full_at - now) + each - max(BURST_SECONDS, each)
        if excess > _ROUNDING:
            raise self._refused(bucket, limit, excess)

    def _take(
        self,
        key: tuple[str | None, str],
        bucket: _TokenBucket | None,
        limit: float | None,
        requests: int,
        now: float,
    ) -> None:
        begin = now if bucket is None else max(now, bucket.full_at)
        if limit is None:
            full_at = begin if begin > now else now + BURST_SECONDS
        else:
            full_at = begin + requests * self._gateways / limit
        self._buckets[key] = _TokenBucket(full_at, limit)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)

    def _refused(self, bucket: _TokenBucket, limit: float, excess: float) -> RateLimitedError:
        # Once after each admitted request: under overload, a new connection for each refusal would
        # cost more than the refusals.
        elsewhere = self._gateways > 1 and not bucket.sent_away
        bucket.sent_away = bucket.sent_away or elsewhere
        shared = f" in equal parts over {self._gateways} gateways" if self._gateways > 1 else ""
        # More than one request's worth is missing only after requests that counted several times.
        more = excess > self._gateways / limit + _ROUNDING
        several = ", and one that takes long to read counts as several" if more else ""
        return RateLimitedError(
            f"More than {limit:g} requests a second{shared}{several}; try again in {excess:.3g} s.",
            retry_after_seconds=excess,
            elsewhere=elsewhere,
        )

    def __len__(self) -> int:
        """Buckets held."""
        return len(self._buckets)


def _key(caller: str | None, endpoint: str, own: float | None) -> tuple[str | None, str]:
    """Which bucket counts a request; ``own`` is the key's own limit."""
    return (caller, endpoint if own is None or endpoint == FEEDBACK else _ALL_ENDPOINTS)

"""Rate limits of API keys: token buckets with this gateway's share of each limit.

A key's own limit is one bucket over all endpoints; an endpoint's limit for each key is one bucket
for each (key, endpoint). Several gateways share a limit in equal parts. Pure: the time is passed
in. The number of buckets is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import RateLimitedError

# After a pause, a caller may send the requests of so many seconds at once.
BURST_SECONDS = 1.0
_ALL_ENDPOINTS = ""  # no endpoint has this name


@dataclass(slots=True)
class _TokenBucket:
    """A bucket in the form of GCRA, which stores only the time when it will be full again."""

    full_at: float
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
        own = self._own_limit(caller) if self._own_limit is not None and caller else None
        limit = per_second if own is None else own
        if limit is None:
            return
        key = (caller, endpoint if own is None else _ALL_ENDPOINTS)
        bucket = self._buckets.get(key)
        share = limit / self._gateways
        full_at = max(now, now if bucket is None else bucket.full_at) + 1.0 / share
        excess = full_at - now - max(BURST_SECONDS, 1.0 / share)
        if excess > 1e-9 and bucket is not None:  # sums of 1/share are not exact
            raise self._refused(bucket, limit, excess)
        self._buckets[key] = _TokenBucket(full_at)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)

    def _refused(self, bucket: _TokenBucket, limit: float, excess: float) -> RateLimitedError:
        # Once after each admitted request: under overload, a new connection for each refusal would
        # cost more than the refusals.
        elsewhere = self._gateways > 1 and not bucket.sent_away
        bucket.sent_away = bucket.sent_away or elsewhere
        shared = f" in equal parts over {self._gateways} gateways" if self._gateways > 1 else ""
        return RateLimitedError(
            f"More than {limit:g} requests a second{shared}; try again in {excess:.3g} s.",
            retry_after_seconds=excess,
            elsewhere=elsewhere,
        )

    def __len__(self) -> int:
        """Buckets held."""
        return len(self._buckets)

"""Requests a second: a token bucket for each (caller, endpoint).

Called by the handler as it admits a request. Pure: the time is passed in. It waits for nothing and
never holds more than a fixed number of buckets.
"""

from collections import OrderedDict
from collections.abc import Callable

from gateway.errors import RateLimitedError

# A caller may be idle and then ask a second's worth at once.
BURST_SECONDS = 1.0


class RateLimits:
    """Buckets in the form of GCRA: of each, only the time at which it will be full again.

    A bucket holds ``BURST_SECONDS`` of the rate, at least one request. All callers without a key
    share one bucket an endpoint.

    Args:
        own_limit: a caller's own requests a second, which go before the endpoint's; None where the
            key sets none.
        max_buckets: beyond it the bucket not asked for longest is forgotten, that is: full.
    """

    def __init__(
        self,
        own_limit: Callable[[str], float | None] | None = None,
        *,
        max_buckets: int = 65_536,
    ) -> None:
        self._own_limit = own_limit
        self._max_buckets = max_buckets
        self._full_at: OrderedDict[tuple[str | None, str], float] = OrderedDict()

    def check(
        self, caller: str | None, endpoint: str, per_second: float | None, now: float
    ) -> None:
        """Counts a request, unless it is one too many: a refused one costs its caller nothing.

        Args:
            caller: name of the API key, None without keys.
            endpoint: the endpoint's name.
            per_second: the endpoint's limit for each key, None for no limit.
            now: seconds of any clock that only goes forward.

        Raises:
            RateLimitedError: says when the next request will be taken.
        """
        own = self._own_limit(caller) if self._own_limit is not None and caller else None
        rate = per_second if own is None else own
        if rate is None:
            return
        key = (caller, endpoint)
        full_at = max(self._full_at.get(key, now), now) + 1.0 / rate
        excess = full_at - now - max(BURST_SECONDS, 1.0 / rate)
        if excess > 1e-9:  # sums of 1/rate are not exact
            raise RateLimitedError(
                f"More than {rate:g} requests a second; try again in {excess:.3g} s.",
                retry_after_seconds=excess,
            )
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._max_buckets:
            self._full_at.popitem(last=False)

    def __len__(self) -> int:
        """Buckets held."""
        return len(self._full_at)

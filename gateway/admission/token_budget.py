"""Bounds the tokens in flight, for the process and, by a fair share of that, for each endpoint.

A request is checked three times, from its arrival until its tokens are counted. Each check keeps a
smaller safety margin free than the one before, so that an admitted request is nearly always
answered. No request waits here.
"""

from gateway.errors import RETRY_AFTER_SECONDS, OverloadedError, TooLargeError

# An endpoint may hold this many times what is left of the common budget: one busy endpoint gets
# 80 %, two 44 % each, and an endpoint that was idle always has room (Choudhury and Hahne,
# "Dynamic queue length thresholds for shared-memory packet switches", 1998).
_SHARE_OF_FREE = 4.0

# Share of its room that an endpoint may fill on arrival, when only the number of requests is known.
# The rest is for requests that turn out longer than usual.
_SHARE_ON_ARRIVAL = 0.85
# How much longer than estimated a request may turn out, before its tokens are counted.
_ESTIMATE_MARGIN = 1.1
_TYPICAL_RATE = 0.05  # weight of a new request in the moving average of their lengths


class TokenBudget:
    """Tokens in flight, of all endpoints together and of each."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._by_endpoint: dict[str, int] = {}
        self._typical: dict[str, float] = {}  # tokens of a request, for each endpoint ever asked

    def part(self, share: float) -> "TokenBudget":
        """A budget of its own, of a share of this one's tokens."""
        return TokenBudget(int(share * self._total))

    @property
    def half_empty(self) -> bool:
        """Whether at most half of the budget is in use."""
        return 2 * self._used <= self._total

    def by_endpoint(self) -> dict[str, int]:
        """Tokens in flight of each endpoint that has any."""
        return dict(self._by_endpoint)

    def of(self, endpoint: str) -> int:
        """Tokens that an endpoint has in flight."""
        return self._by_endpoint.get(endpoint, 0)

    def reserve(self, endpoint: str, tokens: int, limit: int) -> None:
        """Takes tokens for a request; ``release`` gives them back.

        Raises:
            TooLargeError: more than the endpoint ever takes.
            OverloadedError: no room now.
        """
        if tokens > limit or tokens > self._total:
            raise TooLargeError(
                f"The request has {tokens} tokens; this endpoint takes {min(limit, self._total)} "
                "at once."
            )
        typical = self._typical.get(endpoint, tokens)
        self._typical[endpoint] = typical + _TYPICAL_RATE * (tokens - typical)
        mine, free = self.of(endpoint), self._total - self._used
        if tokens > free or (mine and mine + tokens > self._room(mine, limit)):
            raise _too_many_tokens()
        self._used += tokens
        self._by_endpoint[endpoint] = mine + tokens

    def check_arrival(self, endpoint: str, ahead: int, limit: int) -> None:
        """Refuses a request of unknown length that ``reserve`` would probably refuse.

        ``ahead`` requests of the endpoint were admitted and have no tokens reserved yet.

        Raises:
            OverloadedError: those ahead and this one, all of the usual length, have no room.
        """
        mine = self.of(endpoint)
        if mine or ahead:
            likely = self._typical.get(endpoint, 0.0) * (ahead + 1)
            if mine + likely > _SHARE_ON_ARRIVAL * self._room(mine, limit):
                raise _too_many_tokens()

    def check_estimate(self, endpoint: str, tokens: float, limit: int) -> None:
        """Refuses a request of roughly this many tokens that ``reserve`` would refuse.

        Raises:
            OverloadedError: no room now. An endpoint with nothing in flight always has room.
        """
        mine = self.of(endpoint)
        if mine and mine + _ESTIMATE_MARGIN * tokens > self._room(mine, limit):
            raise _too_many_tokens()

    def _room(self, mine: int, limit: int) -> float:
        """Tokens that an endpoint with ``mine`` in flight may hold as things are."""
        free = self._total - self._used
        return min(limit, mine + free, _SHARE_OF_FREE * free)

    def release(self, endpoint: str, tokens: int) -> None:
        """Returns tokens."""
        self._used -= tokens
        left = self.of(endpoint) - tokens
        if left:
            self._by_endpoint[endpoint] = left
        else:
            self._by_endpoint.pop(endpoint, None)


def _too_many_tokens() -> OverloadedError:
    return OverloadedError(
        "Too many tokens are in flight for this endpoint.", retry_after_seconds=RETRY_AFTER_SECONDS
    )

"""Bounds the bytes that callers hold of one process: from a body's first byte to an answer's last.

There is one budget, for HTTP and gRPC. A request holds its body while that is read, then its texts
or rows, and then its answer; of each as much as it takes of memory. What callers do not take of
their answers counts too. Like tokens in flight, bytes are shared fairly: no endpoint and no key may
hold more than some times of what is left.

Nothing waits here. A request that finds no room is refused; its caller may try again.
"""

from collections.abc import Callable

from gateway.errors import RETRY_AFTER_SECONDS, OverloadedError

# As of ``TokenBudget``: one busy endpoint or key gets 80 % of all, two 44 % each.
_SHARE_OF_FREE = 4


class ByteBudget:
    """The bytes of one process. For its event loop only.

    Args:
        most_bytes: of all callers together.

    Attributes:
        held: bytes that they hold now.
        on_release: is called when some have become free; for who waits for them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.held = 0
        self.on_release: list[Callable[[], None]] = []
        self._by_endpoint: dict[str, int] = {}
        self._by_key: dict[str, int] = {}

    def holding(self) -> "Holding":
        """What one request holds: nothing yet."""
        return Holding(self)

    def of_endpoint(self, endpoint: str) -> int:
        """Bytes that requests of an endpoint hold."""
        return self._by_endpoint.get(endpoint, 0)

    def of_key(self, key: str) -> int:
        """Bytes that requests of a key hold, by its name."""
        return self._by_key.get(key, 0)

    def fits(self, size: int) -> bool:
        """Whether this many more bytes have room, whosever they are."""
        return self.held + size <= self._most_bytes

    def add(self, size: int) -> None:
        """Counts bytes of nobody in particular, or no longer if below 0. Refuses nothing."""
        self.held += size
        if size < 0:
            self._release()

    def move(self, size: int, endpoint: str | None, key: str | None) -> None:
        """Counts bytes, or no longer if below 0; what has no name yet is counted in all alone.

        Raises:
            OverloadedError: they are more, and have no room.
        """
        mine = theirs = 0
        if endpoint is not None:
            mine = self._by_endpoint.get(endpoint, 0)
        if key is not None:
            theirs = self._by_key.get(key, 0)
        if size > 0:
            free = self._most_bytes - self.held
            share = _SHARE_OF_FREE * free
            if size > free or (mine and mine + size > share) or (theirs and theirs + size > share):
                raise OverloadedError(
                    "Requests and answers hold too much memory at this moment; try again.",
                    retry_after_seconds=RETRY_AFTER_SECONDS,
                )
        self.held += size
        if endpoint is not None:
            _set(self._by_endpoint, endpoint, mine + size)
        if key is not None:
            _set(self._by_key, key, theirs + size)
        if size < 0:
            self._release()

    def _release(self) -> None:
        for call in self.on_release:
            call()


class Holding:
    """The bytes that one request holds. It has to be ended.

    Attributes:
        size: bytes.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._endpoint: str | None = None
        self._key: str | None = None
        self.size = 0

    def belongs(self, endpoint: str | None, key: str | None) -> None:
        """The request is for an endpoint, by a caller with a key: it is their bytes from now on."""
        if endpoint != self._endpoint or key != self._key:
            size = self.size
            self.resize(0)
            self._endpoint, self._key = endpoint, key
            self.resize(size)

    def resize(self, size: int) -> None:
        """The request holds this many bytes from now on.

        Raises:
            OverloadedError: they are more than before, and there is no room.
        """
        if size != self.size:
            self._budget.move(size - self.size, self._endpoint, self._key)
            self.size = size

    def end(self) -> None:
        """It holds nothing any more."""
        self.resize(0)


def _set(counts: dict[str, int], name: str, count: int) -> None:
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)

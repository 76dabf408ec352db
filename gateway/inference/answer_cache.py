"""Answers kept for texts that come again, for endpoints that ask for it.

Exact: an answer is kept by all that it depends on, which is the package and the token ids of its
text, and a batch changes no answer. Texts that are asked for at the same time are inferred once.
Never shared between versions; between API keys only where the endpoint says so, since the time of
an answer tells whether somebody has asked for the text before.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from gateway.errors import too_late
from preprocess.encoder import EncodedTexts

Values = NDArray[np.float32]
Key = tuple[str, str, bytes, bytes]

_ENTRY_BYTES = 400  # of an entry beside its ids and values: objects and their places in a table


class AnswerCache:
    """The answers of one endpoint; the one that was not used for longest is dropped first.

    Args:
        most_bytes: of all entries.
        shared: between API keys.

    Attributes:
        hits: texts whose answer was kept.
        joined: texts whose answer was on its way for another request.
        misses: texts that were inferred.
        bytes: of all entries.
    """

    def __init__(self, most_bytes: int, *, shared: bool) -> None:
        self.hits = self.joined = self.misses = 0
        self.bytes = 0
        self._most_bytes = most_bytes
        self._shared = shared
        self._entries: OrderedDict[Key, Values] = OrderedDict()
        # Texts that are inferred now, with a future where somebody waits. It holds None if the
        # inference has failed.
        self._flights: dict[Key, asyncio.Future[Values | None] | None] = {}

    def limit(self, most_bytes: int, *, shared: bool) -> None:
        """Takes other limits. Entries are dropped where they no longer fit."""
        if shared != self._shared:
            self._entries.clear()
            self.bytes = 0
        self._most_bytes, self._shared = most_bytes, shared
        self._evict()

    async def answer(
        self,
        package: str,
        caller: str | None,
        encoded: EncodedTexts,
        infer: Callable[[EncodedTexts], Awaitable[Values]],
        deadline: float,
        *,
        sizes: Callable[[Sequence[int]], Sequence[int]],
    ) -> tuple[Values, int]:
        """The values of all rows in their order, and how many of them were not inferred for it.

        Args:
            package: what answers.
            caller: the name of the API key.
            encoded: at least one row.
            infer: the values of some rows, joined.
            deadline: by the event loop's clock, seconds; ``infer`` keeps it by itself.
            sizes: how many rows of values rows of this many tokens have: ``Head.sizes``.

        Raises:
            DeadlineExceededError: another request's inference took until the deadline.
            Exception: what ``infer`` raises.
        """
        keys = self._keys(package, "" if self._shared else caller or "", encoded)
        rows: list[Values | None] = []
        own: list[int] = []
        joined: list[int] = []
        for at, key in enumerate(keys):
            row = self._entries.get(key)
            rows.append(row)
            if row is not None:
                self._entries.move_to_end(key)
            elif key in self._flights:
                joined.append(at)
                self._flights[key] = (
                    self._flights[key] or asyncio.get_running_loop().create_future()
                )
            else:
                self._flights[key] = None
                own.append(at)
        if len(own) == len(keys):
            return await self._infer(keys, encoded, infer, sizes), 0
        self.hits += len(keys) - len(own) - len(joined)
        flights = [self._flights[keys[at]] for at in joined]
        if own:
            part = encoded.part(own)
            values = await self._infer([keys[at] for at in own], part, infer, sizes)
            for at, found in zip(own, _split(values, sizes(part.tokens)), strict=True):
                rows[at] = found
        for at, flight in zip(joined, flights, strict=True):
            rows[at] = None if flight is None else await _landed(flight, deadline)
        failed = [at for at, row in enumerate(rows) if row is None]
        self.joined += len(joined) - len(failed)
        if failed:
            self.misses += len(failed)
            part = encoded.part(failed)
            values = await infer(part)
            for at, found in zip(failed, _split(values, sizes(part.tokens)), strict=True):
                rows[at] = found
        cached = len(keys) - len(own) - len(failed)
        return np.concatenate([row for row in rows if row is not None]), cached

    async def _infer(
        self,
        keys: Sequence[Key],
        encoded: EncodedTexts,
        infer: Callable[[EncodedTexts], Awaitable[Values]],
        sizes: Callable[[Sequence[int]], Sequence[int]],
    ) -> Values:
        """Infers rows, keeps their answers, and tells those who wait for them."""
        self.misses += len(keys)
        rows: list[Values | None] = [None] * len(keys)
        try:
            values = await infer(encoded)
            # Copies: a row of a batch's array would keep all of it in memory.
            rows = [each.copy() for each in _split(values, sizes(encoded.tokens))]
        finally:
            for key, row in zip(keys, rows, strict=True):
                flight = self._flights.pop(key)
                if flight is not None and not flight.done():
                    flight.set_result(row)
                if row is not None:
                    self._entries[key] = row
                    self.bytes += _size(key, row)
            self._evict()
        return values

    def _evict(self) -> None:
        while self.bytes > self._most_bytes:
            key, values = self._entries.popitem(last=False)
            self.bytes -= _size(key, values)

    def _keys(self, package: str, scope: str, encoded: EncodedTexts) -> list[Key]:
        types = encoded.type_ids
        return [
            (
                package,
                scope,
                array("I", ids).tobytes(),
                b"" if types is None else array("i", types[at]).tobytes(),
            )
            for at, ids in enumerate(encoded.ids)
        ]


def _split(values: Values, sizes: Sequence[int]) -> list[Values]:
    """The values of each row, of an array that holds those of all rows."""
    ends = list(accumulate(sizes))
    return [values[end - size : end] for size, end in zip(sizes, ends, strict=True)]


async def _landed(flight: "asyncio.Future[Values | None]", deadline: float) -> Values | None:
    """What another request's inference came to; None if it failed."""
    await asyncio.wait([flight], timeout=max(0.0, deadline - monotonic()))
    if not flight.done():
        raise too_late()
    return flight.result()


def _size(key: Key, values: Values) -> int:
    return _ENTRY_BYTES + len(key[2]) + len(key[3]) + values.nbytes

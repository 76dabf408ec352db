"""Encodes a call's texts into a version's tokens: short ones at once, long ones in a thread.

It never keeps a text.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from gateway.calls import Call
from gateway.errors import RETRY_AFTER_SECONDS, InvalidInputError, OverloadedError, too_late
from gateway.packages import ServedModel
from preprocess.encoder import Encoded
from preprocess.errors import InvalidTextError

# Characters of a request above which tokenising leaves the event loop. For fewer, the way to a
# thread and back costs more time than the other requests gain.
INLINE_CHARACTERS = 8_192
_MOST_THREADED_CHARACTERS = 32 * 1024 * 1024  # that wait for the thread or are in it


class Encoding:
    """All tokenising of one process, with one thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._characters = 0

    def close(self) -> None:
        """Ends the thread; what waits for it is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def here(self, model: ServedModel, call: Call) -> tuple[Encoded, float] | None:
        """The call's tokens and the seconds that it took; None if its texts are too long for here.

        Raises:
            InvalidInputError: a text that no tokeniser can read.
        """
        characters = sum(map(len, call.texts))
        if characters > INLINE_CHARACTERS or call.pairs is not None:
            characters += sum(map(len, call.pairs or ()))
            if characters > INLINE_CHARACTERS:
                return None
        start = monotonic()
        try:
            encoded = model.encoder.encode(call.texts, call.pairs)
        except InvalidTextError as error:
            raise InvalidInputError(f"{error}.") from error
        return encoded, monotonic() - start

    async def in_thread(self, model: ServedModel, call: Call) -> tuple[Encoded, float]:
        """The same for long texts, which leave the event loop to the others.

        Raises:
            InvalidInputError: a text that no tokeniser can read.
            OverloadedError: too many characters wait already.
            DeadlineExceededError: it was not done in time.
        """
        characters = sum(map(len, call.texts)) + sum(map(len, call.pairs or ()))
        if self._characters + characters > _MOST_THREADED_CHARACTERS:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        start = monotonic()
        self._characters += characters
        work = self._threads.submit(model.encoder.encode, call.texts, call.pairs)
        # Counted until the thread is done with it, even if the caller does not wait so long.
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._thread_done, characters))
        try:
            async with asyncio.timeout(max(0.0, call.deadline - start)):
                encoded = await asyncio.wrap_future(work)
        except TimeoutError as error:
            raise too_late() from error
        except InvalidTextError as error:
            raise InvalidInputError(f"{error}.") from error
        return encoded, monotonic() - start

    def _thread_done(self, characters: int) -> None:
        self._characters -= characters

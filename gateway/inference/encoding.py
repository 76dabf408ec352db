"""Encodes a call's texts with a version's tokeniser: on the event loop, or if long, in a thread.

No text is kept once it is encoded.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from gateway.calls import Call
from gateway.errors import RETRY_AFTER_SECONDS, InvalidInputError, OverloadedError, too_late
from gateway.packages import ServedModel
from preprocess.encoder import Encoded
from preprocess.errors import InvalidRowError, InvalidTextError, UnknownPromptError
from preprocess.table import Encoder

# A call with more characters than this, in all its texts, is tokenised in the thread. For fewer,
# switching threads costs more time than it saves the other calls.
INLINE_CHARACTERS = 8_192
_MOST_THREADED_CHARACTERS = 32 * 1024 * 1024  # in the thread or in its queue


def encode(encoder: Encoder, call: Call) -> Encoded:
    """A call's texts, with the prompt that it names before each.

    Raises:
        InvalidInputError: a text that no tokeniser can read, a row of a table that the model can't
            read, or a prompt that the version lacks.
    """
    try:
        return encoder.encode(encoder.prompted(call.texts, call.prompt_name), call.pairs)
    except (InvalidTextError, InvalidRowError, UnknownPromptError) as error:
        raise InvalidInputError(f"{error}.") from error


class Encoding:
    """Tokenises for one process, with one thread for long texts."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._characters = 0

    def close(self) -> None:
        """Ends the thread and cancels what is in its queue."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def encode_inline(self, model: ServedModel, call: Call) -> tuple[Encoded, float] | None:
        """Encodes on the event loop. Returns None, and does nothing, if the texts are too long.

        Returns:
            The call's tokens, and the seconds that this took.

        Raises:
            InvalidInputError: a text that no tokeniser can read, or a prompt that this version
                lacks.
        """
        if call.characters() > INLINE_CHARACTERS:
            return None
        start = monotonic()
        return encode(model.encoder, call), monotonic() - start

    async def encode_in_thread(self, model: ServedModel, call: Call) -> tuple[Encoded, float]:
        """Encodes in the thread, so that other requests' tasks can run meanwhile.

        Returns:
            The call's tokens, and the seconds that this took, waiting for the thread included.

        Raises:
            InvalidInputError: a text that no tokeniser can read, or a prompt that this version
                lacks.
            OverloadedError: too many characters wait for the thread already.
            DeadlineExceededError: the call's deadline passed first.
        """
        characters = call.characters()
        if self._characters + characters > _MOST_THREADED_CHARACTERS:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        start = monotonic()
        self._characters += characters
        work = self._threads.submit(encode, model.encoder, call)
        # Counted until the thread is done with it, even if the caller does not wait so long.
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._thread_done, characters))
        try:
            async with asyncio.timeout(max(0.0, call.deadline - start)):
                encoded = await asyncio.wrap_future(work)
        except TimeoutError as late:
            raise too_late() from late
        return encoded, monotonic() - start

    def _thread_done(self, characters: int) -> None:
        self._characters -= characters

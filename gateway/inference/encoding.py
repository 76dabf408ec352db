"""Encodes a call's texts with a version's tokeniser: on the event loop, or if long, in a thread.

A tokeniser that has a process of its own is asked there (``gateway.tokenising``).

A tokeniser with regular expressions of its author's never runs on the event loop, and has a thread
apart from that of long texts: what one of them takes, at worst, others of its kind wait for, and
no other tenant (``docs/decisions/0051-expressions-of-tokenisers.md``).

No text is kept once it is encoded.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import TypeVar

from gateway.calls import Call
from gateway.errors import RETRY_AFTER_SECONDS, InvalidInputError, OverloadedError, too_late
from gateway.packages import ServedModel
from gateway.tokenising.on_demand import OnDemand
from preprocess.encoder import EncodedTexts
from preprocess.errors import (
    InvalidRowError,
    InvalidTextError,
    ParameterError,
    UnknownPromptError,
)
from preprocess.expressions import is_panic
from preprocess.table import Encoder
from preprocess.tokeniser_process import messages
from preprocess.tokeniser_process.serving import GIVES_UP

T = TypeVar("T")

# A call with more characters than this, in all its texts, is tokenised in the thread. For fewer,
# switching threads costs more time than it saves the other calls.
INLINE_CHARACTERS = 8_192
_MOST_THREADED_CHARACTERS = 32 * 1024 * 1024  # in the thread or in its queue
_MOST_OWN_CHARACTERS = 1024 * 1024  # the same, of tokenisers with expressions of their own


def encode(encoder: Encoder, call: Call) -> EncodedTexts:
    """A call's texts, with the prompt that it names before each.

    Raises:
        InvalidInputError: a text that no tokeniser can read, or that this one gives up on, a row
            of a table that the model can't read, labels that leave no room for a text, or a prompt
            that the version lacks.
    """
    try:
        return encoder.encode_prompted(call.texts, call.pairs, call.prompt_name)
    except (InvalidTextError, InvalidRowError, ParameterError, UnknownPromptError) as error:
        raise InvalidInputError(f"{error}.") from error
    except BaseException as panic:
        if not is_panic(panic):
            raise
        raise InvalidInputError(GIVES_UP) from None


def cut(texts: list[str], lengths: Sequence[int]) -> None:
    """Shortens texts where they are, to this many characters each.

    Successive texts that are one object, and are cut to one length, stay one object.
    """
    last: tuple[str, int] | None = None
    for at, length in enumerate(lengths):
        text = texts[at]
        if last is None or text is not last[0] or length != last[1]:
            last, shorter = (text, length), text[:length]
        texts[at] = shorter


def encodes_inline(model: ServedModel, call: Call) -> bool:
    """Whether a call is encoded on the event loop."""
    if model.opened is None:
        return False
    return call.characters() <= INLINE_CHARACTERS and not model.opened.own_expressions


class _Thread:
    """A thread, and the characters in it and in its queue."""

    def __init__(self, name: str, most_characters: int) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.most_characters = most_characters
        self.characters = 0

    def submit(self, characters: int, work: Callable[[], T]) -> "Future[T]":
        """Does work on this many characters there.

        Raises:
            OverloadedError: too much waits already.
        """
        if self.characters and self.characters + characters > self.most_characters:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        self.characters += characters
        future = self.executor.submit(work)
        # Counted until the thread is done with it, even if the caller does not wait so long.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done, characters))
        return future

    def _done(self, characters: int) -> None:
        self.characters -= characters


class Encoding:
    """Tokenises for one process, with a thread for long texts and one for own expressions.

    Args:
        on_demand: the tokenisers that have a process of their own; None if none has.
    """

    def __init__(self, on_demand: OnDemand | None = None) -> None:
        self._on_demand = on_demand
        self._long = _Thread("tokenise", _MOST_THREADED_CHARACTERS)
        self._own = _Thread("tokenise-own", _MOST_OWN_CHARACTERS)

    def close(self) -> None:
        """Ends the threads and cancels what is in their queues."""
        for thread in (self._long, self._own):
            thread.executor.shutdown(wait=False, cancel_futures=True)

    def encode_inline(self, model: ServedModel, call: Call) -> tuple[EncodedTexts, float] | None:
        """Encodes on the event loop. Returns None, and does nothing, where a thread should.

        Returns:
            The call's tokens, and the seconds that this took.

        Raises:
            InvalidInputError: a text that no tokeniser can read, or a prompt that this version
                lacks.
        """
        if not encodes_inline(model, call):
            return None
        start = monotonic()
        return encode(model.encoder, call), monotonic() - start

    async def encode_in_thread(self, model: ServedModel, call: Call) -> tuple[EncodedTexts, float]:
        """Encodes in a thread or process, so that other requests' tasks can run meanwhile.

        Returns:
            The call's tokens, and the seconds that this took, waiting for the thread included.

        Raises:
            InvalidInputError: a text that no tokeniser can read, or a prompt that this version
                lacks.
            GatewayError: see ``in_thread`` and ``ask_process``.
        """
        start = monotonic()
        if model.opened is None:
            question = messages.Encode(
                call.texts, call.pairs, call.prompt_name, wants_unknown=call.unk_words
            )
            said = await self.ask_process(model, question, call.characters(), call.deadline)
            if not isinstance(said, messages.Rows):
                raise TypeError(f"no rows of texts: {type(said)}")
            return messages.encoded_of(said, call.texts, call.pairs), monotonic() - start
        encoded = await self.in_thread(
            model, call.characters(), call.deadline, lambda: encode(model.encoder, call)
        )
        return encoded, monotonic() - start

    async def ask_process(
        self, model: ServedModel, question: messages.Question, characters: int, deadline: float
    ) -> messages.Rows | messages.TokenLists | messages.Texts:
        """Asks a tokeniser that has a process of its own a question about these characters.

        Raises:
            InvalidInputError: it can't be answered with these texts or ids.
            ModelUnavailableError: the tokeniser can't be opened now.
            OverloadedError: too much waits already.
            DeadlineExceededError: the deadline, by the event loop's clock, passed first.
        """
        if self._on_demand is None:
            raise RuntimeError(f"nothing opens the tokeniser of {model.name}")
        answer = await self._on_demand.ask(model, question, characters, deadline)
        said = answer.said
        if isinstance(said, messages.RefusalReply):
            raise InvalidInputError(said.sentence)
        if isinstance(said, messages.FaultReply):
            raise RuntimeError(f"a tokeniser's process failed at its texts: {said.what}")
        return said

    async def in_thread(
        self, model: ServedModel, characters: int, deadline: float, work: Callable[[], T]
    ) -> T:
        """Does work of a model's tokeniser, on this many characters, in the thread for its kind.

        Raises:
            OverloadedError: too many characters wait for the thread already.
            DeadlineExceededError: the deadline, by the event loop's clock, passed first.
        """
        thread = self._own if model.encoder.own_expressions else self._long
        future = thread.submit(characters, work)
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                return await asyncio.wrap_future(future)
        except TimeoutError as late:
            raise too_late() from late

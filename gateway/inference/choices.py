"""The texts of one request that asks for several, which are written at the same time.

Each is a part of the request: it takes a row in Triton, is recorded as an event of its own, and
goes to the version of the others. They begin and end together: where one fails, the others are
closed. The caller's rate limit counts the request once.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.calls import Call, Sampling
from gateway.inference.generation import Generation, Text

_SEED_BYTES = 8


class Choices:
    """Texts that are being written. They have to be closed, or read to their end.

    Attributes:
        texts: at least one, in the order of their indexes.
    """

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = tuple(texts)
        self._waiting = list(range(len(texts)))  # that go on, and whose next piece nobody reads yet
        self._reading: dict[asyncio.Task[str | None], int] = {}

    @property
    def prompt_tokens(self) -> int:
        """Of the prompt, which they have in common."""
        return self.texts[0].prompt_tokens

    @property
    def generated(self) -> int:
        """Tokens that were written so far, of all texts."""
        return sum(text.generated for text in self.texts)

    async def next(self) -> tuple[int, str | None] | None:
        """The next piece of any text, with its index; None in its place is the text's end.

        None if all texts have ended.

        Raises:
            GatewayError: one of them broke off.
        """
        for index in self._waiting:
            task = asyncio.create_task(_piece(self.texts[index]), name=f"choice {index}")
            task.add_done_callback(_seen)
            self._reading[task] = index
        self._waiting = []
        if not self._reading:
            return None
        done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
        # In turn: the one whose last piece was longest ago.
        task = next(each for each in self._reading if each in done)
        index = self._reading.pop(task)
        piece = task.result()
        if piece is not None:
            self._waiting.append(index)
        return index, piece

    async def whole(self) -> list[str]:
        """The complete texts; raises ``GatewayError`` where one breaks off."""
        pieces: list[list[str]] = [[] for _ in self.texts]
        try:
            while (part := await self.next()) is not None:
                index, piece = part
                pieces[index].append(piece or "")
        finally:
            self.close()
        return ["".join(each) for each in pieces]

    def close(self) -> None:
        """Ends those that nobody reads on: as their caller's wish, where they have not ended."""
        for task in self._reading:
            task.cancel()
        self._reading.clear()
        self._waiting = []
        for text in self.texts:
            text.close()


async def begin_choices(
    generation: Generation, call_of: Callable[[int, Sampling], Call], sampling: Sampling, count: int
) -> Choices:
    """Begins to write this many texts; returns with the first token of each.

    Args:
        generation: writes each.
        call_of: the call of the text with an index, and how its tokens are chosen.
        sampling: of the request. The first text is the one that a request for one would get.
        count: texts, at least 1.

    Raises:
        GatewayError: refused, or one of them was not begun.
    """
    # Alone at first: what is refused, or what the model fails on, is so once.
    texts = [await generation.begin(call_of(0, sampling))]
    others = [
        asyncio.create_task(generation.begin(call_of(index, _of_choice(sampling, index))))
        for index in range(1, count)
    ]
    try:
        texts += await asyncio.gather(*others)
    except BaseException:
        for task in others:
            task.cancel()
        ended = await asyncio.gather(*others, return_exceptions=True)
        for text in [*texts, *(each for each in ended if isinstance(each, Text))]:
            text.close()
        raise
    return Choices(texts)


def _of_choice(sampling: Sampling, index: int) -> Sampling:
    """The same with a seed of its own, where the caller sent one; without, each text draws its."""
    if sampling.seed is None:
        return sampling
    digest = hashlib.blake2b(f"{sampling.seed}/{index}".encode(), digest_size=_SEED_BYTES).digest()
    return replace(sampling, seed=int.from_bytes(digest) >> 1)


async def _piece(text: Text) -> str | None:
    return await anext(text, None)


def _seen(task: asyncio.Task[str | None]) -> None:
    """An error of a text that was closed is nobody's: it has been recorded."""
    if not task.cancelled():
        task.exception()

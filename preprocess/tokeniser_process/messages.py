"""What a gateway asks the process of a tokeniser, and what that answers: frames of msgpack.

A frame is its length in four bytes and a message. Answers come in the order of the questions.
"""

import struct
from collections.abc import Sequence

import msgspec

from preprocess.encoder import (
    EncodedTexts,
    Offsets,
    Sides,
    Statistics,
    Windows,
    refuse_surrogates,
)
from preprocess.tokens import Token

LENGTH = struct.Struct("<I")


class Open(msgspec.Struct, frozen=True):
    """The first message: which tokeniser. ``spec`` is the manifest's, as JSON."""

    path: str
    sha256: str
    task: str
    spec: str


class OpenReply(msgspec.Struct, frozen=True):
    """The answer to it. ``error``: why it can't be opened; ``bytes``: of memory of its own."""

    pid: int
    bytes: int = 0
    own_expressions: tuple[str, ...] = ()
    error: str = ""


class Encode(msgspec.Struct, frozen=True, tag=True):
    """Texts for the model. ``wants_unknown``: the words too that are unknown to it."""

    texts: list[str]
    pairs: list[str] | None = None
    prompt_name: str | None = None
    wants_unknown: bool = False


class ReadTokens(msgspec.Struct, frozen=True, tag=True):
    """The tokens of texts, whole; ``special``: with those that the model wants around them."""

    texts: list[str]
    prompt_name: str | None = None
    special: bool = True


class ReadTexts(msgspec.Struct, frozen=True, tag=True):
    """The text of each list of ids."""

    ids: list[list[int]]
    skip_special: bool = True


Question = Encode | ReadTokens | ReadTexts


class WindowRows(msgspec.Struct, frozen=True):
    """``Windows`` without texts and tokeniser, which stay where they are."""

    text_of: list[int]
    starts: list[int]
    before: list[int]
    offsets: list[Offsets]
    statistics: list[Statistics]
    words: list[list[int | None]]
    special_first: bool


class Rows(msgspec.Struct, frozen=True, tag=True):
    """An ``EncodedTexts``."""

    ids: list[list[int]]
    type_ids: list[list[int]] | None
    tokens: list[int]
    words: list[int]
    unk: list[int]
    truncated: list[bool]
    special: frozenset[int]
    windows: WindowRows | None = None
    unknown: list[str] | None = None
    seen: tuple[list[int], list[int]] | None = None
    sides: Sides | None = None


class TokenLists(msgspec.Struct, frozen=True, tag=True):
    """Of each text."""

    tokens: list[list[Token]]


class Texts(msgspec.Struct, frozen=True, tag=True):
    """Of each list of ids."""

    texts: list[str]


class RefusalReply(msgspec.Struct, frozen=True, tag=True):
    """A question that the tokeniser can't answer, in a sentence for the caller."""

    sentence: str


class FaultReply(msgspec.Struct, frozen=True, tag=True):
    """A mistake of ours, for the log."""

    what: str


class Answer(msgspec.Struct, frozen=True):
    """What came of a question; ``bytes``: of memory of its own, when that was last looked at."""

    said: Rows | TokenLists | Texts | RefusalReply | FaultReply
    bytes: int


def framed(message: msgspec.Struct) -> bytes:
    """A message with its length."""
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def question_framed(question: Question) -> bytes:
    """A question with its length.

    Raises:
        InvalidTextError: a text with a lone surrogate, which no UTF-8 can hold.
    """
    try:
        return framed(question)
    except UnicodeEncodeError:
        if not isinstance(question, ReadTexts):
            for index, text in enumerate(question.texts):
                refuse_surrogates(index, text, pair=False)
        if isinstance(question, Encode):
            for index, text in enumerate(question.pairs or ()):
                refuse_surrogates(index, text, pair=True)
        raise


class NoReader:
    """Stands in for the tokeniser of ``Windows``, for tasks that read no single tokens."""

    marks_subwords = False

    def token(self, token_id: int) -> str:
        """Never called."""
        raise NotImplementedError(f"token {token_id} is read in another process")

    def is_unknown(self, token_id: int) -> bool:
        """Never called."""
        raise NotImplementedError(f"token {token_id} is read in another process")

    def joined(self, tokens: list[str]) -> str:
        """Never called."""
        raise NotImplementedError(f"{len(tokens)} tokens are joined in another process")


_NO_READER = NoReader()


def rows_of(encoded: EncodedTexts, unknown: list[str] | None) -> Rows:
    """What is sent of the rows."""
    windows = encoded.windows
    return Rows(
        encoded.ids,
        encoded.type_ids,
        encoded.tokens,
        encoded.words,
        encoded.unk,
        encoded.truncated,
        encoded.special,
        None
        if windows is None
        else WindowRows(
            windows.text_of,
            windows.starts,
            windows.before,
            windows.offsets,
            windows.statistics,
            windows.words,
            windows.special_first,
        ),
        unknown,
        encoded.seen,
        encoded.sides,
    )


def encoded_of(rows: Rows, texts: Sequence[str], pairs: Sequence[str] | None) -> EncodedTexts:
    """The rows of texts, as they were where they were made."""
    sent = rows.windows
    windows = None
    if sent is not None:
        windows = Windows(
            _NO_READER,
            texts if pairs is None else pairs,
            sent.text_of,
            sent.starts,
            sent.before,
            sent.offsets,
            sent.statistics,
            sent.words,
            sent.special_first,
        )
    return EncodedTexts(
        rows.ids,
        rows.type_ids,
        rows.tokens,
        rows.words,
        rows.unk,
        rows.truncated,
        windows,
        rows.special,
        unknown=rows.unknown,
        seen=rows.seen,
        sides=_sides_of(rows.sides),
    )


def _sides_of(sent: Sides | None) -> Sides | None:
    """With tuples of statistics: of a compiled class msgspec does not know what its lists hold."""
    if sent is None:
        return None
    statistics = [(tokens, words, unk, cut) for tokens, words, unk, cut in sent.statistics]
    return Sides(sent.queries, sent.left_out, statistics, sent.mean)

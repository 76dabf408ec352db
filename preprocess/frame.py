"""Special tokens around one text or a pair, and how the room between them is shared.

What the special tokens are is found out from the tokeniser itself, once; after that a row is put
together without it. It never tokenises a text of a caller's.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from preprocess.errors import TokenizerFileError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_PROBE = "a"
_MOST_PROBES = 10_000  # of a vocabulary that has no such letter


@dataclass(frozen=True)
class Frame:
    """The ids before, between and after the text or texts, with the token types of each part.

    ``types`` holds one type for each special token, in the order of the row; ``text_types`` those
    of the tokens of the first and of the second text.
    """

    before: list[int]
    between: list[int]
    after: list[int]
    types: list[int]
    text_types: tuple[int, int]

    @cached_property
    def size(self) -> int:
        """Number of special tokens."""
        return len(self.types)

    @cached_property
    def typed(self) -> bool:
        """Whether any token type but 0 occurs."""
        return any(self.types) or any(self.text_types)

    def type_ids(self, first: int, second: int = 0) -> list[int]:
        """Token types of a row with this many tokens of the first and second text."""
        end = len(self.before)
        return [
            *self.types[:end],
            *[self.text_types[0]] * first,
            *self.types[end : end + len(self.between)],
            *[self.text_types[1]] * second,
            *self.types[end + len(self.between) :],
        ]


def frame_of(tokenizer: "Tokenizer", *, pair: bool) -> Frame:
    """What the tokeniser puts around a text, or around the two of a pair.

    Raises:
        TokenizerFileError: its post-processor does more than to put special tokens before, between
            and after the texts, in that order.
    """
    encoding = _encoding(tokenizer, pair=pair)
    owners: list[int | None] = encoding.sequence_ids
    expected = [0, 1] if pair else [0]
    runs = [owner for i, owner in enumerate(owners) if i == 0 or owner != owners[i - 1]]
    if [owner for owner in runs if owner is not None] != expected:
        raise TokenizerFileError(
            "the post-processor does not put each text into the row once, in order"
        )
    ids, types = encoding.ids, encoding.type_ids
    first = owners.index(0)
    first_end = first + owners.count(0)
    second = owners.index(1) if pair else first_end
    second_end = second + owners.count(1)
    return Frame(
        before=ids[:first],
        between=ids[first_end:second],
        after=ids[second_end:],
        types=[*types[:first], *types[first_end:second], *types[second_end:]],
        text_types=(types[first], types[second] if pair else 0),
    )


def _encoding(tokenizer: "Tokenizer", *, pair: bool) -> "Encoding":
    """Of a text that has tokens: a letter, or the first token of the vocabulary that is one."""
    letter = _encode(tokenizer, _PROBE, pair=pair)
    if letter is not None and 0 in letter.sequence_ids:
        return letter
    for token_id in range(min(tokenizer.get_vocab_size(), _MOST_PROBES)):
        encoding = _encode(tokenizer, tokenizer.decode([token_id]).strip(), pair=pair)
        if encoding is not None and 0 in encoding.sequence_ids:
            return encoding
    if letter is None:
        raise TokenizerFileError("the tokeniser fails on every text that was tried")
    return letter


def _encode(tokenizer: "Tokenizer", text: str, *, pair: bool) -> "Encoding | None":
    try:
        return tokenizer.encode(text, text if pair else None)
    except Exception:  # noqa: BLE001  # the library raises no narrower kind for unknown letters
        return None


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each of two texts stay, by the rule of ``transformers``.

    Only the longer one is cut while it stays the longer one; then both get half, the longer one the
    odd token.
    """
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    long = room - short
    return (long, short) if first > second else (short, long)

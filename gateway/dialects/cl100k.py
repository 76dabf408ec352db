"""Text of token ids of cl100k_base, OpenAI's vocabulary of embeddings.

LangChain's ``OpenAIEmbeddings`` sends these ids instead of text, to whatever server it is given
the address of. ``cl100k_base.xz`` holds the 100,256 tokens in the order of their ids, each after a
byte with its length; a test holds it to the checksum of the published file. It is read when the
first ids arrive, and takes 5 MB of memory from then on.
"""

import functools
import lzma
from collections.abc import Sequence
from pathlib import Path

NAME = "cl100k_base"
_STEP_IDS = 8192  # that are looked at without a pause
_FILE = Path(__file__).with_name(f"{NAME}.xz")
# Tokens that no text is made into, unless its author asks for them by name.
_SPECIAL = {
    100257: b"<|endoftext|>",
    100258: b"<|fim_prefix|>",
    100259: b"<|fim_middle|>",
    100260: b"<|fim_suffix|>",
    100276: b"<|endofprompt|>",
}


class UnknownTokenError(ValueError):
    """An id that the vocabulary does not have."""

    def __init__(self, token: int) -> None:
        super().__init__(f"{token} is no token of {NAME}")


@functools.cache
def tokens() -> tuple[bytes, ...]:
    """The bytes of each token, by id, without the special ones."""
    content = lzma.decompress(_FILE.read_bytes())
    found: list[bytes] = []
    at = 0
    while at < len(content):
        end = at + 1 + content[at]
        found.append(content[at + 1 : end])
        at = end
    return tuple(found)


@functools.cache
def _lengths() -> bytes:
    """Bytes of each token, by id; 0 for ids that are none."""
    special = bytes(len(_SPECIAL.get(one, b"")) for one in range(len(tokens()), max(_SPECIAL) + 1))
    return bytes(map(len, tokens())) + special


def size_of(ids: Sequence[int]) -> int:
    """The bytes of the text of ids, of which none is made; an id that is none has none.

    Raises:
        UnknownTokenError: an id beyond all.
    """
    lengths = _lengths()
    try:
        steps = range(0, len(ids), _STEP_IDS)
        return sum(sum(map(lengths.__getitem__, ids[at : at + _STEP_IDS])) for at in steps)
    except IndexError:
        raise UnknownTokenError(next(one for one in ids if one >= len(lengths))) from None


def text_of(ids: Sequence[int]) -> str:
    """The text of ids, which are 0 or more; a part of a character becomes U+FFFD.

    Clients cut long texts between two tokens, and so now and then within a character.

    Raises:
        UnknownTokenError: an id beyond the vocabulary.
    """
    known = tokens()
    content = bytearray()
    try:
        for start in range(0, len(ids), _STEP_IDS):
            step = ids[start : start + _STEP_IDS]
            content += b"".join([known[one] if one < len(known) else _SPECIAL[one] for one in step])
    except KeyError as error:
        raise UnknownTokenError(error.args[0]) from None
    return content.decode(errors="replace")

"""Regular expressions that a model's author has put into its tokeniser, and how long they may take.

A tokeniser's file may hold expressions of its own, and the engine behind them goes back and tries
again: on the texts that fit it worst an expression can take time that grows as the square or the
power of their length. Those of the well-known tokenisers are known not to. Any other is tried on
texts made from it, of doubled lengths, and is refused where one of them takes too long
(``docs/decisions/0051-expressions-of-tokenisers.md``).
"""

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from preprocess.errors import TokenizerFileError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TIKTOKEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# GPT-2 (RoBERTa, ModernBERT), GPT-4 (Llama 3), Qwen 2; what XLM-R and T5 make of spaces.
STANDARD = frozenset(
    (_GPT2, _TIKTOKEN % r"\p{N}{1,3}", _TIKTOKEN % r"\p{N}", r" {2,}", r"\s+", r"\s")
)

LONGEST = 2048  # characters of the longest text that is tried
LIMIT_SECONDS = 0.05  # of processor time, for one text; usual ones take 2 ms
_FIRST = 8
_USUAL = ("a", "A", "0", " ", "\n", "-", "'", ".", "é", "中")
_SIGNS = "_-'.,:;/@#\"<>&=%"
_SYNTAX = re.compile(r"\\[pP]\{[^}]*\}|\\[A-Za-z]|\(\?[a-z:=!<]*")
_MOST_CHARACTERS, _MOST_PAIRED, _MOST_WORDS = 10, 5, 6


def own_expressions(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The expressions of a ``tokenizer.json`` that are no well-known tokeniser's."""
    parts = [definition.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    found = dict.fromkeys(_expressions(parts))
    return tuple(each for each in found if each not in STANDARD)


def refuse_slow_expressions(
    tokenizer: "Tokenizer",
    expressions: tuple[str, ...],
    clock: Callable[[], float] = time.thread_time,
) -> None:
    """Tries a tokeniser on texts that its own expressions fit worst.

    Raises:
        TokenizerFileError: a text takes too long, or the engine gives up on it.
    """
    for expression in expressions:
        for piece, end in itertools.product(_pieces(expression), _ends(expression)):
            length = _FIRST
            while length <= LONGEST:
                text = (piece * (length // len(piece) + 1))[:length] + end
                began = clock()
                try:
                    tokenizer.encode_batch_fast([text], add_special_tokens=False)
                    if tokenizer.decoder is not None:
                        tokenizer.decoder.decode([text])
                except BaseException as error:
                    if not is_panic(error):
                        raise
                    raise _slow(expression, piece, length, f"ends with: {error}") from None
                seconds = clock() - began
                if seconds > LIMIT_SECONDS:
                    raise _slow(expression, piece, length, f"take {seconds:.1f} s")
                length *= 2


def is_panic(error: BaseException) -> bool:
    """Whether the tokenisers' library broke off; it derives such an error from no other class."""
    return type(error).__name__ == "PanicException"


def _slow(expression: str, piece: str, length: int, what: str) -> TokenizerFileError:
    return TokenizerFileError(
        f"its expression {expression[:200]!r} takes too long on some texts: {length} characters of "
        f"{piece!r} {what}; write it so that no part of a text can match in two ways"
    )


def _expressions(part: object) -> Iterator[str]:
    """All that stands in a ``{"Regex": ...}``."""
    if isinstance(part, Mapping):
        for name, value in part.items():
            if name == "Regex" and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(part, list):
        for each in part:
            yield from _expressions(each)


def _characters(expression: str) -> list[str]:
    plain = _SYNTAX.sub(" ", expression)
    return [each for each in dict.fromkeys(plain) if each.isalnum() or each in _SIGNS]


def _pieces(expression: str) -> Iterator[str]:
    """What long texts are made of: characters, pairs of them, and words of the expression."""
    own = _characters(expression)
    characters = list(dict.fromkeys((*own[:_MOST_CHARACTERS], *_USUAL)))
    yield from characters
    for one, other in itertools.combinations(characters[:_MOST_PAIRED], 2):
        yield one + other
    words = re.findall(r"\w{2,}", _SYNTAX.sub(" ", expression))
    yield from list(dict.fromkeys(words))[:_MOST_WORDS]


def _ends(expression: str) -> tuple[str, ...]:
    """How texts end: as they began, with what does not match, and with all of the expression.

    The engine does not even begin where a text lacks a character that every match must have.
    """
    return "", "!", "! " + "".join(_characters(expression))

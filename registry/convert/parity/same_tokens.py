"""Proves that the tokeniser which will be served makes the original's tokens, before any number.

Texts that few people write and every tokeniser takes apart differently: spaces of all kinds, marks,
scripts, the vocabulary's own special tokens as text, and texts beyond the longest row. It changes
nothing: one text that differs refuses the version, and is named.
"""

import json
import random
from collections.abc import Callable, Sequence
from importlib.resources import files

from tokenizers import Tokenizer

from preprocess.encoder import EncodedTexts, TextEncoder
from registry.convert.errors import VersionError
from registry.convert.flavours.original import Reader, TokenisedRow

_SHOWN = 60  # characters of a text, and
_SHOWN_IDS = 12
_SPECIAL = 24  # tokens, of a vocabulary that may have thousands
_MIXED = 150
_SEED = 7
_BEYOND = 20  # words more than the longest row has tokens

# Of which mixtures are made.
_PIECES = (
    *("a", "B", "word", "\u00dcber", "\u00e9", "e\u0301", "\u00df", "\u044f", "\u4e2d", "\u5b57"),
    *("\u0639", "\u0915\u094d", "\ud55c", "\U0001f642", "\u2603", "\ua66e", "\u00a0", "\u200b"),
    *(" ", "  ", "\n", "\t", ".", "..", ",", "'", "-", "_", "/", "#", "7", "42"),
)


Encode = Callable[[Sequence[str], Sequence[str] | None], EncodedTexts]


def require_same_tokens(
    encoder: TextEncoder,
    read: Reader,
    *,
    max_tokens: int,
    pairs: bool,
    original: str,
    special: Sequence[str] = (),
    encode: Encode | None = None,
) -> None:
    """Compares over hostile texts, and pairs of them.

    Args:
        encoder: that will be served.
        read: the original's, cut to ``max_tokens``.
        max_tokens: of the longest row.
        pairs: whether the model reads pairs as well.
        original: what the other one is, in words.
        special: the special tokens of the other one: files beside the vocabulary may name further.
        encode: what the encoder makes of texts, if that is not its usual way.

    Raises:
        VersionError: the first text that differs.
    """
    encode = encode or encoder.encode
    texts = (*hostile_texts(encoder.tokenizer, max_tokens), *_texts_of(_some_of(special)))
    for text in texts:
        _compare(encode, read, text, None, original)
    if pairs:
        for text, pair in zip(texts, (*texts[1:], texts[0]), strict=True):
            _compare(encode, read, text, pair, original)


def hostile_texts(tokenizer: Tokenizer, max_tokens: int) -> tuple[str, ...]:
    """The texts that one vocabulary is tried on: always the same."""
    special = special_texts(tokenizer)
    picked = random.Random(_SEED)  # noqa: S311  # texts, and no secrets
    pieces = (*_PIECES, *special_tokens(tokenizer))
    mixed = ["".join(picked.choices(pieces, k=picked.randint(2, 14))) for _ in range(_MIXED)]
    words = max_tokens + _BEYOND
    long = (" ".join(["yes"] * words), " ".join([*["a"] * (words // 2), *["no."] * words]))
    return (*_odd_texts(), *special, *mixed, *long)


def _odd_texts() -> list[str]:
    content = files("registry.convert.parity").joinpath("hostile_texts.json").read_bytes()
    return list(json.loads(content))


def special_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Texts that hold the special tokens of a vocabulary, one or more each."""
    return _texts_of(special_tokens(tokenizer))


def _texts_of(tokens: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        text
        for token in tokens
        for text in (token, f"a {token} film", f"{token}{token} good", f"soup{token}cold")
    )


def special_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Some of the tokens that are found in a text before anything else, the first and last ones."""
    added = json.loads(tokenizer.to_str()).get("added_tokens") or ()
    return _some_of([each["content"] for each in added])


def _some_of(tokens: Sequence[str]) -> tuple[str, ...]:
    if len(tokens) <= _SPECIAL:
        return tuple(tokens)
    return (*tokens[: _SPECIAL // 2], *tokens[-_SPECIAL // 2 :])


def of_file(tokenizer: Tokenizer, max_tokens: int) -> Reader:
    """What the library of tokenisers itself makes of a version's file."""
    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_padding()
    own.enable_truncation(max_tokens)

    def read(text: str, pair: str | None) -> TokenisedRow:
        encoding = own.encode(text, pair)
        return TokenisedRow(encoding.ids, encoding.type_ids)

    return read


def _compare(encode: Encode, read: Reader, text: str, pair: str | None, original: str) -> None:
    theirs = read(text, pair)
    if not theirs.ids:
        return  # a row that nothing can attend to: ours holds one token in its place
    encoded = encode([text], None if pair is None else [pair])
    types = None if encoded.type_ids is None else encoded.type_ids[0]
    ours = TokenisedRow(encoded.ids[0], types)
    what = _first_difference(ours.ids, theirs.ids)
    kind = "tokens"
    if not what and theirs.types is not None:
        what = _first_difference(ours.types or [0] * len(ours.ids), theirs.types)
        kind = "token types"
    if what:
        shown = repr(text[:_SHOWN]) + ("" if pair is None else f" with {pair[:_SHOWN]!r}")
        raise VersionError(
            f"{original} and the tokeniser that would be served make different {kind} of {shown}: "
            f"{what}. Save the version again with its tokeniser (save_pretrained), so that "
            "tokenizer.json and tokenizer_config.json are of one make"
        )


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """Where two rows part, in words; empty if they are equal."""
    if ours == theirs:
        return ""
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((place for place, (one, two) in pairs if one != two), min(len(ours), len(theirs)))
    begin = max(0, at - 2)
    one, two = (list(each[begin : begin + _SHOWN_IDS]) for each in (theirs, ours))
    return f"from token {begin} on {one} against {two}"

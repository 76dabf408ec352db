"""Tokens of a text as its model's tokeniser makes them, and the text of tokens."""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

from preprocess.encoder import refuse_surrogates
from preprocess.errors import InvalidTextError


class Token(NamedTuple):
    """A token, and which characters of the text it is of; of a special one, which is of none.

    ``text`` is as in the text, or of a special token its name.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


def tokens_of(tokenizer: Tokenizer, texts: Sequence[str], *, special: bool) -> list[list[Token]]:
    """The tokens of each text, whole, however long.

    Args:
        tokenizer: without truncation and padding.
        texts: any strings, with their prompts.
        special: whether those that the model wants around a text are among them.

    Raises:
        InvalidTextError: a text with a lone surrogate.
    """
    for index, text in enumerate(texts):
        refuse_surrogates(index, text, pair=False)
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=special)
    return [
        [
            Token(one, name, True, None, None)
            if is_special
            else Token(one, text[start:stop], False, start, stop)
            for one, name, is_special, (start, stop) in zip(
                encoding.ids,
                encoding.tokens,
                encoding.special_tokens_mask,
                encoding.offsets,
                strict=True,
            )
        ]
        for text, encoding in zip(texts, encodings, strict=True)
    ]


def texts_of(
    tokenizer: Tokenizer, ids: Sequence[Sequence[int]], *, skip_special: bool
) -> list[str]:
    """The text of each list of ids.

    Raises:
        InvalidTextError: an id that the vocabulary does not have.
    """
    most = tokenizer.get_vocab_size()
    for index, each in enumerate(ids):
        for one in each:
            if one >= most and tokenizer.id_to_token(one) is None:
                raise InvalidTextError(
                    index,
                    f"has the id {one}, which is no token of the model's vocabulary of {most}",
                )
    return tokenizer.decode_batch([list(each) for each in ids], skip_special_tokens=skip_special)

"""Which pieces of a text became the unknown token, by the tokeniser's own offsets.

It never keeps a text.
"""

from tokenizers import Tokenizer


def pieces_of(tokenizer: Tokenizer, text: str, unk_id: int, tokens: int) -> list[str]:
    """The pieces behind the unknown ones among the first tokens of a text, as they were written.

    What a piece is, is the tokeniser's matter: of WordPiece a word or a sign of its own, of a
    tokeniser by characters a run of characters.

    Args:
        tokenizer: without padding and truncation.
        text: any.
        unk_id: the id of the unknown token.
        tokens: how many of the text's tokens count, special ones apart.
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    pieces = (
        text[begin:end].strip()
        for token, (begin, end) in zip(encoding.ids[:tokens], encoding.offsets, strict=False)
        if token == unk_id
    )
    return [piece for piece in pieces if piece]

"""The texts that load is made of: the example's real reviews, whole or cut to one length.

It reads the committed files and makes nothing up.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from headrace.stack import example


def folder() -> Path:
    """The example's folder, in a checkout or an installed wheel."""
    return example.script().parent


def tokenizer() -> Tokenizer:
    """The example's tokeniser."""
    return Tokenizer.from_file(str(folder() / "model" / "tokenizer.json"))


def replay() -> list[str]:
    """2,000 texts of mixed lengths: 10 % under 15 tokens, median 41, 10 % over 111, mean 54."""
    return (folder() / "texts" / "replay.txt").read_text(encoding="utf-8").splitlines()


def of_length(tokens: int, count: int, known: Tokenizer | None = None) -> list[str]:
    """Beginnings of real texts that come to exactly ``tokens`` tokens, special ones included.

    They are those of the example's tokeniser, if none is given.
    """
    known = known or tokenizer()
    found: list[str] = []
    for text in replay():
        encoding = known.encode(text)
        if len(encoding.ids) < tokens:
            continue
        # The closing token is put on after the cut, so the text ends one token earlier.
        beginning = text[: encoding.offsets[tokens - 2][1]]
        if len(known.encode(beginning).ids) == tokens:
            found.append(beginning)
        if len(found) == count:
            break
    return found


def bodies(texts: Sequence[str], texts_a_request: int = 1) -> list[str]:
    """Hugging Face style request bodies, as JSON."""
    if texts_a_request == 1:
        return [json.dumps({"inputs": text}) for text in texts]
    return [
        json.dumps({"inputs": list(texts[at : at + texts_a_request])})
        for at in range(0, len(texts) - texts_a_request + 1, texts_a_request)
    ]

"""Texts in the JSON dialects: a string, or ``{"text", "text_pair"}``."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gateway.calls import Query
from gateway.errors import InvalidInputError


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, alone or with the second one that is read with it."""

    text: str
    text_pair: str | None = None


TextOrPair = str | Pair
Texts = Annotated[list[TextOrPair], msgspec.Meta(min_length=1)]


def query(field: str, items: Sequence[TextOrPair]) -> Query:
    """The texts of a body's field.

    Raises:
        InvalidInputError: some texts have a pair and others none.
    """
    texts: list[str] = []
    pairs: list[str] = []
    for item in items:
        if isinstance(item, str):
            texts.append(item)
            continue
        texts.append(item.text)
        if item.text_pair is not None:
            pairs.append(item.text_pair)
    if pairs and len(pairs) != len(texts):
        raise InvalidInputError(f"{field}: either every text has a text_pair or none has.")
    return Query(texts, pairs or None)

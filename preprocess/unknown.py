"""Some of the words of a request that are unknown to the tokeniser."""

from collections.abc import Sequence

from preprocess.encoder import EncodedTexts
from preprocess.table import Encoder

# Bounds on the unknown words of one event, so that no request delays the event loop. A sample of
# the words is enough for statistics of the most frequent ones.
MOST_WORDS = 32
MOST_CHARACTERS = 8_192  # in all texts that are searched: those with an unknown word
LONGEST_WORD = 40  # characters; the rest of a word is cut off


def unknown_words_of(
    encoder: Encoder, texts: Sequence[str], pairs: Sequence[str] | None, encoded: EncodedTexts
) -> list[str]:
    """At most ``MOST_WORDS``, each cut to ``LONGEST_WORD``.

    Args:
        encoder: that made ``encoded``. One with regular expressions of its author's is not asked:
            that would run them twice.
        texts: of the request, as they came.
        pairs: the second text of each, or None.
        encoded: of the texts.
    """
    if encoder.own_expressions:
        return []
    found: list[str] = []
    left = MOST_CHARACTERS
    for row, (_, _, unk, _) in enumerate(encoded.statistics()):
        if len(found) >= MOST_WORDS:
            break
        text, pair = texts[row], None if pairs is None else pairs[row]
        characters = len(text) + len(pair or "")
        if unk and characters <= left:
            left -= characters
            found += encoder.unknown_words(text, pair)
    return [word[:LONGEST_WORD] for word in found[:MOST_WORDS]]

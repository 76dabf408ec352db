"""The words of a request that became UNK, for endpoints that ask which they were.

Other endpoints pay one look. What is looked at is bounded, so that no request can make the loop
wait: a list of the most frequent words needs a sample, not each.
"""

from gateway.calls import Call
from gateway.packages import ServedModel
from preprocess.encoder import Encoded

MOST_WORDS = 32  # of one request
MOST_CHARACTERS = 8_192  # of one request's texts, those without an unknown word not counted
LONGEST_WORD = 40  # characters; what is longer is cut


def words_of(call: Call, model: ServedModel, encoded: Encoded) -> list[str]:
    """Some of the words that are unknown to a model, as they were written.

    Args:
        call: says whether its endpoint asks for them.
        model: whose tokeniser made ``encoded``.
        encoded: the call's texts.
    """
    if not call.unk_words:
        return []
    found: list[str] = []
    left = MOST_CHARACTERS
    for row, unk in enumerate(encoded.unk):
        if len(found) >= MOST_WORDS:
            break
        text, pair = call.texts[row], None if call.pairs is None else call.pairs[row]
        characters = len(text) + len(pair or "")
        if unk and characters <= left:
            left -= characters
            found += model.encoder.unknown_words(text, pair)
    return [word[:LONGEST_WORD] for word in found[:MOST_WORDS]]

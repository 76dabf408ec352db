"""A bounded memory of words and their token ids, for tokenisers that take each word by itself.

In a BERT-like tokeniser the tokens of ``"a b"`` are those of ``"a"`` followed by those of ``"b"``.
Since most words of most texts were seen before, looking each up costs an eighth of tokenising the
text again (12 us against 89 us for 60 tokens). Anyone who measures with a handful of repeated texts
sees only the first figure.

It never answers for a tokeniser or a text where that rule might not hold.
"""

from collections.abc import Callable
from typing import Any

# Two generations of at most this many words each. Full of usual words both take about 15 MB, of the
# worst that the two limits below let in 50 MB.
WORDS_A_GENERATION = 32_768
# Words of more characters or tokens are links and noise that will not come again.
LONGEST_WORD = 32
MOST_TOKENS = 12
# Learning a word costs 5 us: more in one text, and tokenising it whole is cheaper.
LEARNED_A_TEXT = 8

_LOCAL_NORMALIZERS = {
    "BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"
}  # fmt: skip
_SPACE_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_LOCAL_SPLITTERS = _SPACE_SPLITTERS | {"Punctuation", "Digits"}
_LOCAL_MODELS = {"WordPiece", "WordLevel"}

Tokens = tuple[int, ...]
Tokenise = Callable[[list[str]], list[Tokens]]


def words_are_independent(definition: dict[str, Any]) -> bool:
    """Whether the ids of a text are those of its words, one after the other.

    True only for what is known to be so: normalisers that work on single characters or on a
    character with its marks, a pre-tokeniser that splits at white space before anything else, a
    model that looks at one such piece at a time, and no added token that holds or eats a space.
    """
    normalizers = _flatten(definition.get("normalizer"), "normalizers")
    splitters = _flatten(definition.get("pre_tokenizer"), "pretokenizers")
    return (
        all(part["type"] in _LOCAL_NORMALIZERS for part in normalizers)
        and bool(splitters)
        and splitters[0]["type"] in _SPACE_SPLITTERS
        and all(part["type"] in _LOCAL_SPLITTERS for part in splitters)
        and definition["model"].get("type") in _LOCAL_MODELS
        and all(_stays_in_a_word(token) for token in definition.get("added_tokens", ()))
    )


def _flatten(part: dict[str, Any] | None, children: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [leaf for child in part[children] for leaf in _flatten(child, children)]
    return [part]


def _stays_in_a_word(token: dict[str, Any]) -> bool:
    content = token["content"]
    return (
        not (token["single_word"] or token["lstrip"] or token["rstrip"])
        and content.isascii()
        and content.isprintable()
        and " " not in content
    )


def split(text: str) -> list[str] | None:
    """The words of a text, or None if Python and the tokeniser may see different white space.

    Both agree on the space, and on tab and line ends. Any other invisible character (a no-break
    space, a control character, a zero-width joiner, a lone surrogate) makes the text unprintable:
    such a text is left to the tokeniser.
    """
    if not text.isprintable():
        text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ")
        if not text.isprintable():
            return None
    return text.split()


class WordTable:
    """Words to token ids, learned as they come; bounded, safe from any thread."""

    def __init__(self, tokenise: Tokenise) -> None:
        """Takes the tokeniser itself: ids, without special tokens, of each of some words."""
        self._tokenise = tokenise
        # Every change is one dictionary operation or a swap of references: a thread that loses a
        # race tokenises a word once more, to the same ids.
        self._young: dict[str, Tokens] = {}
        self._old: dict[str, Tokens] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def ids(self, words: list[str]) -> list[Tokens] | None:
        """The ids of each word, or None if too many words are new."""
        try:
            return list(map(self._young.__getitem__, words))
        except KeyError:
            return self._learn(words)

    def _learn(self, words: list[str]) -> list[Tokens] | None:
        young, old = self._young, self._old
        fresh: dict[str, Tokens] = {}
        new: list[str] = []
        for word in dict.fromkeys(words):
            known = young.get(word)
            if known is None and (known := old.get(word)) is not None:
                self._keep(word, known)
            if known is None:
                new.append(word)
            else:
                fresh[word] = known
        for word, ids in zip(
            new[:LEARNED_A_TEXT], self._tokenise(new[:LEARNED_A_TEXT]), strict=True
        ):
            fresh[word] = ids
            self._keep(word, ids)
        if len(new) > LEARNED_A_TEXT:
            return None
        return [fresh[word] for word in words]

    def _keep(self, word: str, ids: Tokens) -> None:
        if len(word) > LONGEST_WORD or len(ids) > MOST_TOKENS:
            return
        if len(self._young) >= WORDS_A_GENERATION:
            self._old, self._young = self._young, {}
        self._young[word] = ids

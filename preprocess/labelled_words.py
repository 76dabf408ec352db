"""Texts with their caller's labels -> rows of a model that finds entities by labels (GLiNER).

A row is a mark and a label for each label, another mark, and the words of the text, each taken to
tokens by itself, as the ``gliner`` package does it. The graph is told where words and marks are by
the token types, which such a model does not read itself: a word's number (from 1) at its first
token, minus a label's number at its mark, and at the other mark minus ``LENGTH_BASE`` and the
number of words. A text is one row: what does not fit is cut. A word without any token (a zero-width
space) is none; the package counts it, and gives the places of all words behind it one word too
early. It knows no transport.
"""

import json
import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

from contracts.manifest import SpanSpec, TokenizerSpec
from preprocess.encoder import (
    CHARACTERS_A_TOKEN,
    GROWTH,
    MARGIN_TOKENS,
    EncodedTexts,
    Offsets,
    Statistics,
    Windows,
    head_of,
    refuse_surrogates,
)
from preprocess.errors import ParameterError
from preprocess.windows import WindowEncoder, count_words_seen, encoded_windows

LENGTH_BASE = 1 << 20
LABELS_PLACE = "parameters.labels"
# What texts are read with that come without labels: those of conversions.
USUAL_LABELS = ("person", "organization", "location", "date", "email address")
_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")  # gliner's "whitespace" splitter


def joined_labels(labels: Sequence[str], named: Collection[str] = ()) -> str:
    """Labels as the one second text that ``EntityEncoder`` takes them from.

    ``named`` are those that the endpoint names, too.
    """
    both = [label for label in labels if label in named]
    return json.dumps([list(labels), both], ensure_ascii=False)


class _Prompt(NamedTuple):
    """What is before the words of a text; ``types`` has no number of words yet."""

    labels: tuple[str, ...]
    ids: list[int]
    types: list[int]
    end: int  # where the mark of the text is


class _Words(NamedTuple):
    """The first words of a text that a row has room for."""

    places: Offsets
    ids: list[int]
    types: list[int]
    truncated: bool


class EntityEncoder(WindowEncoder):
    """The tokeniser of one package that finds entities by labels."""

    def __init__(self, tokenizer_json: bytes, spec: TokenizerSpec) -> None:
        super().__init__(tokenizer_json, spec)
        self._spans = spec.spans or SpanSpec()

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """A row for each text, in their order.

        Args:
            texts: any strings.
            pairs: for each text the same ``joined_labels``; None for the usual ones.

        Raises:
            InvalidTextError: a text with a lone surrogate, which no UTF-8 can hold.
            ParameterError: more labels than the model takes, labels that leave a row no room for a
                text, or one that holds a mark.
        """
        labels: tuple[str, ...] = USUAL_LABELS[: self._spans.most_labels]
        named: tuple[str, ...] = ()
        if pairs:
            asked, chosen = json.loads(pairs[0])
            labels, named = tuple(asked), tuple(chosen)
        prompt = self._prompt(labels)
        frame, unk_id = self._single, self._spec.unk_id
        rows: list[list[int]] = []
        types: list[list[int]] = []
        offsets: list[Offsets] = []
        statistics: list[Statistics] = []
        for index, text in enumerate(texts):
            refuse_surrogates(index, text, pair=False)
            words = self._words(text, len(prompt.ids))
            row = [*frame.before, *prompt.ids, *words.ids, *frame.after]
            laid = [*[0] * len(frame.before), *prompt.types, *words.types, *[0] * len(frame.after)]
            laid[len(frame.before) + prompt.end] = -LENGTH_BASE - len(words.places)
            rows.append(row)
            types.append(laid)
            offsets.append(words.places)
            seen = count_words_seen(text, words.places, cut=words.truncated)
            unk = 0 if unk_id is None else words.ids.count(unk_id)
            statistics.append((len(row), seen, unk, words.truncated))
        before = len(frame.before) + len(prompt.ids)
        return encoded_windows(
            rows,
            types,
            unk_id,
            Windows(
                reader=self,
                texts=texts,
                text_of=list(range(len(rows))),
                starts=[0] * len(rows),
                before=[before] * len(rows),
                offsets=offsets,
                statistics=statistics,
                labels=labels,
                named=named,
                widest=self._spans.widest,
            ),
        )

    def unknown_words(self, text: str, pair: str | None = None) -> list[str]:  # noqa: ARG002
        """Of the text only: labels are their caller's words, which no event holds."""
        return super().unknown_words(text)

    def _prompt(self, labels: tuple[str, ...]) -> _Prompt:
        spans = self._spans
        if len(labels) > spans.most_labels:
            raise ParameterError(
                LABELS_PLACE,
                f"there are {len(labels)}, and the model takes {spans.most_labels} at most",
            )
        pieces = [piece for label in labels for piece in (spans.label_mark, label)]
        ids, words = self._pieces([*pieces, spans.text_mark])
        marks = [self._tokenizer.token_to_id(mark) for mark in (spans.label_mark, spans.text_mark)]
        wanted = [len(labels), 1]
        for mark, count in zip(marks, wanted, strict=True):
            if mark is not None and ids.count(mark) != count:
                raise ParameterError(LABELS_PLACE, "a label holds one of the model's own marks")
        room = self._spec.max_tokens - self._single.size - len(ids)
        if room < 1:
            raise ParameterError(
                LABELS_PLACE,
                f"they take {len(ids)} of the {self._spec.max_tokens} tokens of a row, which "
                "leaves none to a text",
            )
        types = [0] * len(ids)
        for number in range(len(labels)):
            types[words.index(2 * number)] = -1 - number
        return _Prompt(labels, ids, types, words.index(2 * len(labels)))

    def _words(self, text: str, prompt: int) -> _Words:
        """What a row of this many tokens of a prompt has room for; as in ``WindowEncoder``."""
        room = self._spec.max_tokens - self._single.size - prompt
        most = self._spans.most_words
        characters = CHARACTERS_A_TOKEN * self._spec.max_tokens
        while True:
            head = head_of(text, characters)
            found = list(islice(_WORD.finditer(head), most + 1))
            ids, word_of = self._pieces([word.group() for word in found])
            whole = len(head) == len(text)
            if whole or len(found) > most or len(ids) >= room + MARGIN_TOKENS:
                break
            characters *= GROWTH
        kept = next((at for at, word in enumerate(word_of) if word >= most), len(ids))
        cut = min(kept, room)
        places: Offsets = []
        types: list[int] = []
        last = -1
        for word in word_of[:cut]:
            types.append(0 if word == last else len(places) + 1)
            if word != last:
                places.append(found[word].span())
            last = word
        truncated = cut < len(ids) or len(found) > most or not whole
        return _Words(places, ids[:cut], types, truncated)

    def _pieces(self, pieces: list[str]) -> tuple[list[int], list[int]]:
        """The tokens of pieces, each by itself, and which piece each token is of."""
        if not pieces:
            return [], []
        encoding = self._tokenizer.encode_batch(
            [pieces], is_pretokenized=True, add_special_tokens=False
        )[0]
        # No token is a special one of a row here, so that each is of a piece.
        return encoding.ids, [word for word in encoding.word_ids if word is not None]

"""Texts in overlapping windows, each token with its place in the text: for answers about tokens.

A text that fits into one row is one row, as anywhere else. A longer one becomes several rows that
overlap, as ``transformers``' tokenisers make them with a ``stride``. The rows go their own ways
through the batcher; ``Windows`` says afterwards what they are parts of. Offsets need the
tokeniser's slower way: a text is never taken word by word here.
"""

from collections.abc import Sequence

from contracts.manifest import TokenizerSpec
from preprocess.encoder import (
    CHARACTERS_A_TOKEN,
    GROWTH,
    MARGIN_TOKENS,
    EncodedTexts,
    Offsets,
    Statistics,
    TextEncoder,
    Windows,
    encoding_of,
    head_of,
    refuse_surrogates,
)

MOST_STRIDE = 128  # tokens that two windows share
# Of a text: what is longer is cut, and said to be. 32 windows of 512 tokens are about 50 kB, whose
# entities take some 10 ms of the event loop.
MOST_WINDOWS = 32


class WindowEncoder(TextEncoder):
    """The tokeniser of one package whose model labels tokens. Its rows are windows.

    Attributes:
        stride: tokens that a window shares with the one before it.
    """

    def __init__(self, tokenizer_json: bytes, spec: TokenizerSpec) -> None:
        super().__init__(tokenizer_json, spec)
        self._room = spec.max_tokens - self._single.size
        self.stride = min(MOST_STRIDE, self._room // 4)
        self._most_tokens = self._room + (MOST_WINDOWS - 1) * (self._room - self.stride)
        prefix = getattr(self._tokenizer.model, "continuing_subword_prefix", None)
        self.marks_subwords = bool(prefix)
        self._tokens_by_id: dict[int, str] = {}  # those that were asked for

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """The texts' rows: one or more of each, in the order of the texts.

        Args:
            texts: any strings.
            pairs: must be None.

        Raises:
            InvalidTextError: a text with a lone surrogate, which no UTF-8 can hold.
            ValueError: second texts were given.
        """
        if pairs is not None:
            raise ValueError("tokens of pairs are not labelled")
        frame = self._single
        rows: list[list[int]] = []
        types: list[list[int]] = []
        text_of: list[int] = []
        starts: list[int] = []
        offsets: list[Offsets] = []
        statistics: list[Statistics] = []
        for index, text in enumerate(texts):
            ids, places, _, truncated = self._tokens(index, text, self._most_tokens)
            unk = 0 if self._spec.unk_id is None else ids.count(self._spec.unk_id)
            words = count_words_seen(text, places, cut=truncated)
            statistics.append((max(1, len(ids) + frame.size), words, unk, truncated))
            for start in _starts(len(ids), self._room, self.stride):
                part = ids[start : start + self._room]
                row = [*frame.before, *part, *frame.after]
                rows.append(row or [self._stand_in])
                if frame.typed:
                    types.append(frame.type_ids(len(part)))
                text_of.append(index)
                starts.append(start)
                offsets.append(places[start : start + self._room])
        return encoded_windows(
            rows,
            types,
            self._spec.unk_id,
            Windows(
                reader=self,
                texts=texts,
                text_of=text_of,
                starts=starts,
                before=[len(frame.before)] * len(rows),
                offsets=offsets,
                statistics=statistics,
            ),
        )

    def token(self, token_id: int) -> str:
        """A token as the vocabulary has it, with its mark of a continued word."""
        known = self._tokens_by_id.get(token_id)
        if known is None:
            known = self._tokens_by_id[token_id] = self._tokenizer.id_to_token(token_id) or ""
        return known

    def is_unknown(self, token_id: int) -> bool:
        """Whether it is the unknown token."""
        return token_id == self._spec.unk_id

    def joined(self, tokens: list[str]) -> str:
        """Tokens as text, by the tokeniser's own decoder."""
        decoder = self._tokenizer.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(tokens))

    @property
    def _stand_in(self) -> int:
        """The one token of a row that would be empty: see ``TextEncoder.encode``."""
        unk_id = self._spec.unk_id
        return self._spec.pad_id if unk_id is None else unk_id

    def _tokens(
        self, index: int, text: str, most: int, *, pair: bool = False
    ) -> tuple[list[int], Offsets, list[int | None], bool]:
        """Ids, offsets in characters, and words of the first tokens; whether there are more."""
        characters = CHARACTERS_A_TOKEN * most
        refuse_surrogates(index, text, pair=pair)
        while True:
            head = head_of(text, characters)
            encoding = encoding_of(self._tokenizer, head)
            whole = len(head) == len(text)
            if whole or len(encoding.ids) >= most + MARGIN_TOKENS:
                cut = len(encoding.ids) > most or not whole
                words: list[int | None] = encoding.word_ids[:most]
                return encoding.ids[:most], encoding.offsets[:most], words, cut
            characters *= GROWTH


class ContextEncoder(WindowEncoder):
    """The tokeniser of one package that answers questions. Its rows are windows of contexts.

    Each row is the question and a window of its context. A question may have half of a row. The
    share that two windows have in common is that of ``stride_beside``.
    """

    def stride_beside(self, question: int) -> int:
        """Tokens that a window shares with the one before it, beside this many of a question."""
        return min(MOST_STRIDE, (self._spec.max_tokens - self._pair.size - question) // 4)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """The rows of each question with its context: one or more, in the order of the questions.

        Args:
            texts: questions.
            pairs: the context of each.

        Raises:
            InvalidTextError: a text with a lone surrogate, which no UTF-8 can hold.
            ValueError: there are not as many contexts.
        """
        if pairs is None:
            raise ValueError("a question needs a context")
        frame = self._pair
        most_asked = (self._spec.max_tokens - frame.size) // 2
        rows: list[list[int]] = []
        types: list[list[int]] = []
        text_of: list[int] = []
        starts: list[int] = []
        before: list[int] = []
        offsets: list[Offsets] = []
        words: list[list[int | None]] = []
        statistics: list[Statistics] = []
        last: str | None = None
        asked: list[int] = []
        asked_words = 0
        cut = False
        for index, (question, context) in enumerate(zip(texts, pairs, strict=True)):
            if question is not last:  # the same object where one question has many contexts
                last = question
                asked, asked_places, _, cut = self._tokens(index, question, most_asked)
                asked_words = count_words_seen(question, asked_places, cut=cut)
            room = self._spec.max_tokens - frame.size - len(asked)
            stride = self.stride_beside(len(asked))
            most = room + (MOST_WINDOWS - 1) * (room - stride)
            ids, places, word_of, truncated = self._tokens(index, context, most, pair=True)
            unk_id = self._spec.unk_id
            unk = 0 if unk_id is None else asked.count(unk_id) + ids.count(unk_id)
            seen = asked_words + count_words_seen(context, places, cut=truncated)
            size = len(asked) + len(ids) + frame.size
            statistics.append((max(1, size), seen, unk, cut or truncated))
            for start in _starts(len(ids), room, stride):
                part = ids[start : start + room]
                row = [*frame.before, *asked, *frame.between, *part, *frame.after]
                rows.append(row or [self._stand_in])
                if frame.typed:
                    types.append(frame.type_ids(len(asked), len(part)))
                text_of.append(index)
                starts.append(start)
                before.append(len(frame.before) + len(asked) + len(frame.between))
                offsets.append(places[start : start + room])
                words.append(word_of[start : start + room])
        return encoded_windows(
            rows,
            types,
            self._spec.unk_id,
            Windows(
                reader=self,
                texts=pairs,
                text_of=text_of,
                starts=starts,
                before=before,
                offsets=offsets,
                statistics=statistics,
                words=words,
                special_first=bool(frame.before),
            ),
        )


def _starts(tokens: int, room: int, stride: int) -> range:
    """The first token of each window: the last one reaches the end."""
    return range(0, max(1, tokens - stride), room - stride)


def count_words_seen(text: str, places: Offsets, *, cut: bool) -> int:
    """Pieces between white space, up to the last place if the text was cut."""
    seen = text[: places[-1][1]] if cut and places else text
    return len(seen.split())


def encoded_windows(
    rows: list[list[int]], types: list[list[int]], unk_id: int | None, windows: Windows
) -> EncodedTexts:
    """Rows that are windows of texts, with their token types, which may be none."""
    return EncodedTexts(
        ids=rows,
        type_ids=types or None,
        tokens=[len(row) for row in rows],
        words=[0] * len(rows),
        unk=[0] * len(rows) if unk_id is None else [row.count(unk_id) for row in rows],
        truncated=[False] * len(rows),
        windows=windows,
    )

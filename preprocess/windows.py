"""Texts in overlapping windows, each token with its place in the text: for labels of tokens.

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
    Encoded,
    Offsets,
    Statistics,
    TextEncoder,
    Windows,
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

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Encoded:
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
            ids, places, truncated = self._tokens(index, text)
            unk = 0 if self._spec.unk_id is None else ids.count(self._spec.unk_id)
            seen = text[: places[-1][1]] if truncated and places else text
            words = len(seen.split())
            statistics.append((max(1, len(ids) + frame.size), words, unk, truncated))
            for start in self._starts(len(ids)):
                part = ids[start : start + self._room]
                row = [*frame.before, *part, *frame.after]
                rows.append(row or [self._stand_in])
                if frame.typed:
                    types.append(frame.type_ids(len(part)))
                text_of.append(index)
                starts.append(start)
                offsets.append(places[start : start + self._room])
        unk_id = self._spec.unk_id
        return Encoded(
            ids=rows,
            type_ids=types or None,
            tokens=[len(row) for row in rows],
            words=[0] * len(rows),
            unk=[0] * len(rows) if unk_id is None else [row.count(unk_id) for row in rows],
            truncated=[False] * len(rows),
            windows=Windows(
                reader=self,
                texts=texts,
                text_of=text_of,
                starts=starts,
                before=len(frame.before),
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

    def _starts(self, tokens: int) -> range:
        """The first token of each window: the last one reaches the end."""
        step = self._room - self.stride
        return range(0, max(1, tokens - self.stride), step)

    def _tokens(self, index: int, text: str) -> tuple[list[int], Offsets, bool]:
        """Ids, offsets in characters, and whether there would be more."""
        most = self._most_tokens
        characters = CHARACTERS_A_TOKEN * most
        refuse_surrogates(index, text, pair=False)
        while True:
            head = head_of(text, characters)
            encoding = self._tokenizer.encode(head, add_special_tokens=False)
            whole = len(head) == len(text)
            if whole or len(encoding.ids) >= most + MARGIN_TOKENS:
                cut = len(encoding.ids) > most or not whole
                return encoding.ids[:most], encoding.offsets[:most], cut
            characters *= GROWTH

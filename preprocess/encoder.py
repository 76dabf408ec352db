"""Texts -> token ids with statistics, by the Rust tokenisers and nothing of transformers.

It never pads, never sends a text anywhere, and never reads a file: ``tokenizer.json`` comes as
bytes.

Threads: one ``TextEncoder`` may be used from any number of threads. The Rust library would spread a
batch over one thread per core. That only costs time in a gateway, which runs one process per core:
its ``main`` sets ``TOKENIZERS_PARALLELISM=false`` in the environment before the first encoding.
Texts are encoded one by one here, so that the library has nothing to spread without the setting.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from contracts.manifest import TokenizerSpec
from preprocess.errors import InvalidTextError, TokenizerFileError, UnknownPromptError
from preprocess.expressions import own_expressions
from preprocess.frame import Frame, frame_of, longest_first
from preprocess.words import Tokens, WordTable, split, words_are_independent

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# A text of more characters a token of the limit is first cut to that. Tokenising 100,000 words
# takes a quarter of a second, to throw all but a few hundred tokens away.
CHARACTERS_A_TOKEN = 16
# This many tokens beyond the limit show that what was cut off has no part in what stays.
MARGIN_TOKENS = 64
_ALL = 2**62  # characters
GROWTH = 4  # of the beginning that is looked at, where it has too few tokens

# If a tokeniser's words depend on each other in spite of its definition, these tell.
_PROBES = ("", "a", "Hello, world!", "It's 2024 -- naïve café 中文 [MASK] [x]", "a\nb\tc  d")


Offsets = list[tuple[int, int]]
Statistics = tuple[int, int, int, bool]  # tokens, words, unknown tokens, truncated


class TokenReader(Protocol):
    """Tells what tokens are, for answers about single tokens.

    Attributes:
        marks_subwords: the vocabulary marks tokens that continue a word.
    """

    marks_subwords: bool

    def token(self, token_id: int) -> str:
        """A token as the vocabulary has it."""

    def is_unknown(self, token_id: int) -> bool:
        """Whether it is the unknown token."""

    def joined(self, tokens: list[str]) -> str:
        """Tokens as text."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Which rows are parts of which texts, and where their tokens are in them.

    Attributes:
        reader: the tokeniser.
        texts: what was encoded; of questions, the contexts.
        text_of: for each row, the place of its text.
        starts: for each row, which token of the text is its first.
        before: for each row, how many tokens are before those of its text: special ones, and a
            question.
        offsets: for each row, first and behind the last character of each of its text's tokens.
        statistics: of each text as a whole; every token counts once.
        words: for each row, which word of the text each of these tokens belongs to, None if the
            tokeniser does not say; empty where nobody asks.
        special_first: whether rows begin with a special token.
        labels: that the texts were read with, of a task whose callers name them.
        named: of these, those that the endpoint names too.
        widest: words that a span may have; then ``offsets`` are those of words.
    """

    reader: TokenReader
    texts: Sequence[str]
    text_of: list[int]
    starts: list[int]
    before: list[int]
    offsets: list[Offsets]
    statistics: list[Statistics]
    words: list[list[int | None]] = field(default_factory=list)
    special_first: bool = True
    labels: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    widest: int = 0


@dataclass(frozen=True, slots=True)
class Sides:
    """Which rows are queries and which documents, for late interaction.

    Attributes:
        queries: for each row, whether it is a query. Of pairs, a query is a row before those of its
            documents.
        left_out: for each row, the places of tokens whose vectors are no part of an answer.
        statistics: of each text, or of both of a pair.
        mean: whether a score is a mean over the query's tokens, and no sum.
    """

    queries: list[bool]
    left_out: list[list[int]]
    statistics: list[Statistics]
    mean: bool


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Some texts as the model will see them, a column a statistic, a row a text.

    Where there are ``windows``, a row is a window of a text instead; only ``ids``, ``type_ids``,
    ``tokens`` and ``unk`` say something of a row then.

    Attributes:
        ids: token ids, special tokens included, cut to the model's limit, not padded.
        type_ids: token type ids of the same lengths, or None if all are 0.
        tokens: number of ids.
        words: pieces between white space (by ``str.split``) in the part of the text that the model
            sees, a word cut in two included; of both texts of a pair.
        unk: how many of the ids are the unknown token; 0 for vocabularies that have none.
        truncated: whether the model sees less than the whole text.
        windows: of an encoder that makes windows of texts, else None.
        special: ids of the tokenisers' own tokens and of the unknown one, which are of no word.
        observed: of rows of a table, whose ``ids`` are the words of their numbers: values that are
            counted, by feature. None for texts.
        unknown: words that are unknown to a tokeniser in another process; None if it is here.
        seen: of how many characters each text, and each second one, was read: what is behind them
            changes nothing. None if that was not looked at, or nothing is behind them.
        sides: of an encoder that reads queries and documents apart, else None.
    """

    ids: list[list[int]]
    type_ids: list[list[int]] | None
    tokens: list[int]
    words: list[int]
    unk: list[int]
    truncated: list[bool]
    windows: Windows | None = None
    special: frozenset[int] = frozenset()
    observed: dict[str, list[float | str]] | None = None
    unknown: list[str] | None = None
    seen: tuple[list[int], list[int]] | None = None
    sides: Sides | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def statistics(self) -> Sequence[Statistics]:
        """Tokens, words, unknown tokens and truncation of each text."""
        if self.windows is not None:
            return self.windows.statistics
        if self.sides is not None:
            return self.sides.statistics
        return list(zip(self.tokens, self.words, self.unk, self.truncated, strict=True))

    def truncated_texts(self) -> list[bool]:
        """Of which texts the model sees less than the whole."""
        if self.windows is None and self.sides is None:
            return self.truncated
        return [truncated for *_, truncated in self.statistics()]

    def part(self, rows: Sequence[int]) -> "EncodedTexts":
        """Some of the rows, by their places."""
        return EncodedTexts(
            ids=[self.ids[at] for at in rows],
            type_ids=None if self.type_ids is None else [self.type_ids[at] for at in rows],
            tokens=[self.tokens[at] for at in rows],
            words=[self.words[at] for at in rows],
            unk=[self.unk[at] for at in rows],
            truncated=[self.truncated[at] for at in rows],
            special=self.special,
        )


class _Content(NamedTuple):
    """A text's own tokens, or those of a beginning of it that is certainly long enough."""

    ids: list[int]
    words: int
    whole: bool  # not only a beginning
    text: str  # what was tokenised
    by_word: list[Tokens] | None  # the ids of each word, where they are known


class _Row(NamedTuple):
    ids: list[int]
    type_ids: list[int] | None
    words: int
    truncated: bool
    seen: tuple[int, int] | None = None  # characters of a text, and of its second one


class TextEncoder:
    """The tokeniser of one package.

    Truncation is that of ``transformers``: from the right, of a pair the longer text first, special
    tokens kept. Padding and truncation that ``tokenizer.json`` asks for are overridden. Of a pair
    of texts of more than ``16 * max_tokens`` characters each, which one keeps an odd last token may
    differ from ``transformers``; nothing else does.
    """

    def __init__(self, tokenizer_json: bytes, spec: TokenizerSpec) -> None:
        """Reads the tokeniser.

        Raises:
            TokenizerFileError: not a tokeniser, one whose rows are not texts between special
                tokens, or no room for a token beside the special ones.
        """
        self._spec = spec
        self._tokenizer, definition = _read(tokenizer_json)
        self._own_expressions = own_expressions(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._single = frame_of(self._tokenizer, pair=False)
        self._pair = frame_of(self._tokenizer, pair=True)
        pair = self._pair
        own = (*self._single.before, *self._single.after, *pair.before, *pair.between, *pair.after)
        unk = () if spec.unk_id is None else (spec.unk_id,)
        self._special = frozenset((*own, spec.pad_id, *unk))
        special = max(self._single.size, self._pair.size)
        if spec.max_tokens <= special:
            raise TokenizerFileError(
                f"rows of {spec.max_tokens} tokens have no room beside {special} special ones"
            )
        self._head_characters = CHARACTERS_A_TOKEN * spec.max_tokens
        self._table: WordTable | None = None
        if words_are_independent(definition):
            self._table = self._prove(WordTable(self._ids_of_words))

    @property
    def learns_words(self) -> bool:
        """Whether this tokeniser allows the fast way, word by word."""
        return self._table is not None

    @property
    def own_expressions(self) -> tuple[str, ...]:
        """Regular expressions of the model's author, which may take long on some texts."""
        return self._own_expressions

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokeniser itself, to make text of tokens."""
        return self._tokenizer

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """The texts' ids and statistics, in their order.

        An empty string is a valid text. Where even the special tokens leave a row empty, it holds
        one unknown token (padding, in a vocabulary without one): an engine can't attend to nothing.

        Args:
            texts: any strings; those far too long cost little more than their beginning.
            pairs: the second text of each, or None.

        Raises:
            InvalidTextError: a text with a lone surrogate, which no UTF-8 can hold.
            ValueError: not as many pairs as texts.
        """
        if pairs is not None:
            return self._gather(self._pair_rows(texts, pairs))
        most = self._spec.max_tokens
        return self._gather([self._row(index, text, most) for index, text in enumerate(texts)])

    def encode_prompted(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> EncodedTexts:
        """The same with a prompt before each text; raises what ``prompted`` and ``encode`` do."""
        return self.encode(self.prompted(texts, prompt_name), pairs)

    def _gather(self, rows: list[_Row], sides: Sides | None = None) -> EncodedTexts:
        unk_id = self._spec.unk_id
        ids = [row.ids for row in rows]
        types = [row.type_ids for row in rows if row.type_ids is not None]
        return EncodedTexts(
            ids=ids,
            type_ids=types or None,
            tokens=[len(row) for row in ids],
            words=[row.words for row in rows],
            unk=[0] * len(ids) if unk_id is None else [row.count(unk_id) for row in ids],
            truncated=[row.truncated for row in rows],
            special=self._special,
            seen=_list_seen([row.seen for row in rows]),
            sides=sides,
        )

    def prompted(self, texts: Sequence[str], name: str | None = None) -> Sequence[str]:
        """The texts with a prompt of the model's before each: what ``encode`` is then given.

        Args:
            texts: any strings.
            name: of the prompt, as the model's own files have it; None for the usual one, if any.

        Raises:
            UnknownPromptError: the model has none of this name.
        """
        prompts = self._spec.prompts
        used = self._spec.default_prompt if name is None else name
        if used is None:
            return texts
        prompt = prompts.get(used)
        if prompt is None:
            raise UnknownPromptError(used, tuple(prompts))
        if not prompt:
            return texts
        made: list[str] = []
        last: str | None = None
        for text in texts:
            # The same object where a text is that again: a query would be copied for each document.
            made.append(made[-1] if text is last else prompt + text)
            last = text
        return made

    def unknown_words(self, text: str, pair: str | None = None) -> list[str]:
        """What of a text, or of a pair, became the unknown token: as it was written, in order.

        What was cut off is left out. It takes as long as tokenising again: ask only for texts that
        ``encode`` took and whose ``unk`` is not 0.
        """
        unk_id = self._spec.unk_id
        if unk_id is None:
            return []
        contents = [self._content(0, text)]
        kept: tuple[int, ...] = (self._spec.max_tokens - self._single.size,)
        if pair is not None:
            contents.append(self._content(0, pair, pair=True))
            one, other = (len(content.ids) for content in contents)
            kept = longest_first(one, other, self._spec.max_tokens - self._pair.size)
        return [
            word
            for content, tokens in zip(contents, kept, strict=True)
            for word in self._find_unknown(content, tokens, unk_id)
        ]

    def _find_unknown(self, content: _Content, tokens: int, unk_id: int) -> list[str]:
        """The same of the first ``tokens`` ids of one text."""
        if content.by_word is None:
            return _unknown_pieces(self._tokenizer, content.text, unk_id, tokens)
        found: list[str] = []
        left = tokens
        for word, ids in zip(split(content.text) or (), content.by_word, strict=True):
            if left <= 0:
                break
            if unk_id in ids:
                found += _unknown_pieces(self._tokenizer, word, unk_id, left)
            left -= len(ids)
        return found

    def _row(self, index: int, text: str, most: int) -> _Row:
        """A text of at most this many tokens, special ones included."""
        frame = self._single
        room = most - frame.size
        # Nearly every text has known words and room for them all: its row is made at once.
        if self._table is not None and len(text) <= self._head_characters:
            seen = split(text)
            found = None if seen is None else self._table.ids(seen)
            if seen and found is not None:
                row = [*frame.before, *chain.from_iterable(found), *frame.after]
                if len(row) <= most:
                    types = frame.type_ids(len(row) - frame.size) if frame.typed else None
                    return _Row(row, types, len(seen), False)
        content = self._content(index, text)
        ids, words = content.ids, content.words
        truncated = len(ids) > room
        if truncated:
            ids, words = ids[:room], self._words_seen(content, room)
        row = [*frame.before, *ids, *frame.after]
        types = frame.type_ids(len(ids)) if frame.typed else None
        read = None if content.whole else (len(content.text), 0)
        return self._never_empty(_Row(row, types, words, truncated, read), frame)

    def _pair_rows(self, texts: Sequence[str], pairs: Sequence[str]) -> list[_Row]:
        """A row a pair. A first text that comes again is tokenised once, as a query is."""
        rows: list[_Row] = []
        last: tuple[str, _Content] | None = None
        for index, (text, pair) in enumerate(zip(texts, pairs, strict=True)):
            if last is None or last[0] is not text:
                last = text, self._content(index, text)
            rows.append(self._pair_row(index, last[1], pair))
        return rows

    def _pair_row(self, index: int, one: _Content, pair: str) -> _Row:
        other = self._content(index, pair, pair=True)
        frame = self._pair
        room = self._spec.max_tokens - frame.size
        first, second = longest_first(len(one.ids), len(other.ids), room)
        row = [
            *frame.before,
            *one.ids[:first],
            *frame.between,
            *other.ids[:second],
            *frame.after,
        ]
        types = frame.type_ids(first, second) if frame.typed else None
        words = self._words_seen(one, first) + self._words_seen(other, second)
        truncated = first + second < len(one.ids) + len(other.ids)
        is_whole = one.whole and other.whole
        read = None if is_whole else (len(one.text), len(other.text))
        return self._never_empty(_Row(row, types, words, truncated, read), frame)

    def _never_empty(self, row: _Row, frame: Frame) -> _Row:
        if row.ids:
            return row
        unk_id = self._spec.unk_id
        stand_in = self._spec.pad_id if unk_id is None else unk_id
        return row._replace(ids=[stand_in], type_ids=[0] if frame.typed else None)

    def _content(self, index: int, text: str, *, pair: bool = False) -> _Content:
        characters = self._head_characters
        if len(text) > characters:
            refuse_surrogates(index, text, pair=pair)
        while True:
            head = head_of(text, characters)
            content = self._by_words(head) if self._table is not None else None
            if content is None:
                refuse_surrogates(index, head, pair=pair)
                content = self._by_tokenizer(head)
            if len(head) == len(text):
                return content
            if len(content.ids) >= self._spec.max_tokens + MARGIN_TOKENS:
                return content._replace(whole=False)
            characters *= GROWTH

    def _by_words(self, text: str) -> _Content | None:
        words = split(text)
        if words is None or self._table is None:
            return None
        found = self._table.ids(words)
        if found is None:
            return None
        return _Content(list(chain.from_iterable(found)), len(words), True, text, found)

    def _by_tokenizer(self, text: str) -> _Content:
        # The fast kind has no offsets and takes two thirds of the time of the other.
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        return _Content(encoding.ids, len(text.split()), True, text, None)

    def _words_seen(self, content: _Content, tokens: int) -> int:
        """How many of the words the first ``tokens`` ids come from, a part of a word included."""
        if tokens >= len(content.ids) and content.whole:
            return content.words
        if content.by_word is not None:
            return _words_in(content.by_word, tokens)
        offsets = encoding_of(self._tokenizer, content.text).offsets
        end = max((end for _, end in offsets[:tokens]), default=0)
        return len(content.text[:end].split())

    def _prove(self, table: WordTable) -> WordTable | None:
        """The table, if a handful of texts prove that it gives what the tokeniser gives."""
        for probe in _PROBES:
            found = table.ids(split(probe) or [])
            if found is None or list(chain.from_iterable(found)) != self._by_tokenizer(probe).ids:
                return None
        return table

    def _ids_of_words(self, words: list[str]) -> list[Tokens]:
        encodings = self._tokenizer.encode_batch_fast(words, add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]


def _read(tokenizer_json: bytes) -> "tuple[Tokenizer, dict[str, Any]]":
    # Here: a loader takes values apart by heads that know this module, and opens no tokeniser.
    from tokenizers import Tokenizer  # noqa: PLC0415

    try:
        return Tokenizer.from_buffer(tokenizer_json), json.loads(tokenizer_json)
    except ValueError as error:
        raise TokenizerFileError(f"tokenizer.json can't be read: {error}") from error


def encoding_of(tokenizer: "Tokenizer", text: str) -> "Encoding":
    """A text's encoding, with offsets. Unlike ``Tokenizer.encode``, other threads run meanwhile."""
    return tokenizer.encode_batch([text], add_special_tokens=False)[0]


def head_of(text: str, characters: int) -> str:
    """The beginning of a text: this many characters at most, up to a space where there is one."""
    if len(text) <= characters:
        return text
    space = text.rfind(" ", 0, characters)
    return text[: space if space > 0 else characters]


def refuse_surrogates(index: int, text: str, *, pair: bool) -> None:
    """Refuses a text that no UTF-8 can hold.

    Raises:
        InvalidTextError: it has a lone surrogate.
    """
    if text.isascii():  # known without a look
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = f"is not Unicode text: it holds a lone surrogate at character {error.start}"
        raise InvalidTextError(index, reason, pair=pair) from error


def _list_seen(read: list[tuple[int, int] | None]) -> tuple[list[int], list[int]] | None:
    """See ``EncodedTexts.seen``; of texts that are whole, more than they have."""
    if read.count(None) == len(read):
        return None
    seen = [row or (_ALL, _ALL) for row in read]
    return [one for one, _ in seen], [other for _, other in seen]


def _words_in(by_word: Sequence[Tokens], tokens: int) -> int:
    seen = 0
    for count, ids in enumerate(by_word):
        if seen >= tokens:
            return count
        seen += len(ids)
    return len(by_word)


def _unknown_pieces(tokenizer: "Tokenizer", text: str, unk_id: int, tokens: int) -> list[str]:
    """The pieces behind the unknown ones among the first ``tokens`` of a text, as written.

    The tokeniser's own offsets say what a piece is: of WordPiece a word or a sign of its own, of a
    tokeniser by characters a run of characters.
    """
    encoding = encoding_of(tokenizer, text)
    pieces = (
        text[begin:end].strip()
        for token, (begin, end) in zip(encoding.ids[:tokens], encoding.offsets, strict=False)
        if token == unk_id
    )
    return [piece for piece in pieces if piece]

"""Token classification: the entities of a text, or another label of each of its tokens.

Entities are made of tokens as ``transformers``' pipeline makes them, to the character. A text in
several windows is answered window by window; of entities that overlap, the longer one is kept, then
the one of the higher score, as there.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.events import NO_ENTITY, TextRecord
from contracts.tasks import MARKED, Task
from preprocess.encoder import EncodedTexts, TextEncoder, Windows
from preprocess.scores import class_scores
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    Mark,
    Output,
    SecondText,
    Side,
    Values,
    require_encoded,
)
from preprocess.windows import WindowEncoder

SIMPLE = "simple"
MOST_RECORDED = 4096  # entities in one event, as of values that users observe
_IGNORED = (NO_ENTITY,)

Place = tuple[int, int, str]  # of an entity: start and end, in characters, and its label


class Entity(NamedTuple):
    """A run of tokens, or with the strategy ``none`` one of them. ``label`` is its type.

    ``at`` is the place of its first token, counted from the text's first special token.
    """

    label: str
    score: float
    start: int  # character
    end: int  # behind the last one
    word: str
    at: int

    def shown(self, strategy: str) -> dict[str, Any]:
        """As the pipeline gives it."""
        if strategy == "none":
            return {
                "entity": self.label,
                "score": self.score,
                "index": self.at,
                "word": self.word,
                "start": self.start,
                "end": self.end,
            }
        return {
            "entity_group": self.label,
            "score": self.score,
            "word": self.word,
            "start": self.start,
            "end": self.end,
        }


class TokenClassification(Head):
    """Values are float32 ``[tokens of all rows, labels]`` probabilities."""

    task: ClassVar[Task] = Task.TOKEN_CLASSIFICATION
    second_text: ClassVar[SecondText] = SecondText.NONE
    parameters: ClassVar[frozenset[str]] = frozenset({"aggregation_strategy", "ignore_labels"})
    encoder: ClassVar[type[TextEncoder]] = WindowEncoder
    kinds: ClassVar[frozenset[str]] = frozenset({MARKED})
    probabilities: ClassVar[bool] = True
    by_tokens: ClassVar[bool] = True

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002
        # Softmax even of a single label, as the pipeline has it.
        if output.shape[-1] == 1:
            return np.ones_like(output)
        flat = output.reshape(-1, output.shape[-1])
        return class_scores(flat, multi_label=False).reshape(output.shape)

    def classes(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The types of entities, and what a text without any counts as."""
        return tuple(dict.fromkeys((*_tags(labels).names, NO_ENTITY)))

    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """The entities by the strategy ``simple``, whatever the caller asked for.

        Of one request at most ``MOST_RECORDED``, the first ones.
        """
        records: list[TextRecord] = []
        left = MOST_RECORDED
        found = entities(encoded, values, labels)
        for known, each in zip(encoded.statistics(), found, strict=True):
            kept = [(entity.label, entity.score) for entity in each[:left]]
            left -= len(kept)
            records.append(TextRecord(*known, label=None if each else NO_ENTITY, entities=kept))
        return records

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """See ``compare_places``."""
        return compare_places(_spans(ours), _spans(theirs))

    def markable(self, labels: tuple[str, ...], asked: Sequence[str] = ()) -> tuple[str, ...]:  # noqa: ARG002
        """The types of entities."""
        return tuple(name for name in self.classes(labels) if name != NO_ENTITY)

    def marks(self, answer: AnsweredTexts, thresholds: Mapping[str, float]) -> list[list[Mark]]:
        """The entities by the strategy ``simple``, in the order of their places."""
        found = entities(require_encoded(answer), answer.values, answer.labels)
        return [
            [
                Mark(entity.label, entity.score, entity.start, entity.end)
                for entity in sorted(each, key=lambda one: one.start)
                if entity.score >= np.float32(thresholds.get(entity.label, np.inf))
            ]
            for each in found
        ]

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """The entities of each text."""
        strategy = parameters.get("aggregation_strategy", SIMPLE)
        ignored = parameters.get("ignore_labels", _IGNORED)
        found = [
            [entity.shown(strategy) for entity in each]
            for each in entities(
                require_encoded(answer),
                answer.values,
                answer.labels,
                strategy=strategy,
                ignored=ignored,
            )
        ]
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """The entities of each text by the strategy ``simple``."""
        return list(self.pipeline(answer, {}, one=False))

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The same as JSON."""
        return {
            "ENTITIES": [
                json.dumps(each, ensure_ascii=False, separators=(",", ":"))
                for each in self.pipeline(answer, {}, one=False)
            ]
        }


def entities(
    encoded: EncodedTexts,
    values: Values,
    labels: tuple[str, ...],
    *,
    strategy: str = SIMPLE,
    ignored: Sequence[str] = _IGNORED,
) -> list[list[Entity]]:
    """The entities of each text, by their places in it.

    Args:
        encoded: rows of a ``WindowEncoder``.
        values: ``[tokens of all rows, labels]`` probabilities.
        labels: in the order of the columns.
        strategy: ``none``: each token by itself; ``simple``: runs of tokens of one type;
            ``first``, ``average``, ``max``: runs of words, each with the label of its first token,
            of its tokens' mean scores, or of its surest token.
        ignored: labels, or with a strategy types, that are left out.
    """
    windows = encoded.windows
    if windows is None:
        raise ValueError("tokens have no places in texts that were not encoded in windows")
    found: list[list[Entity]] = [[] for _ in windows.texts]
    several: set[int] = set()
    ends = accumulate(encoded.tokens)
    for row, (text, end) in enumerate(zip(windows.text_of, ends, strict=True)):
        first = end - encoded.tokens[row] + windows.before[row]
        scores = values[first : first + len(windows.offsets[row])]
        if windows.starts[row]:
            several.add(text)
        found[text] += _Row(windows, encoded.ids[row], row, scores, labels).found(strategy, ignored)
    for text in several:
        found[text] = _without_overlaps(found[text])
    return found


class _Unit(NamedTuple):
    """A token or a word, with its label."""

    column: int
    score: float
    first: int  # token of the row
    last: int


class _Tags(NamedTuple):
    """What each label means: its type, by which runs go on, and whether it begins a new one."""

    types: list[str]
    begins: list[bool]
    names: list[str]  # of the type, as answers have it


@lru_cache(maxsize=256)
def _tags(labels: tuple[str, ...]) -> _Tags:
    return _Tags(
        [label[2:] if label.startswith(("B-", "I-")) else label for label in labels],
        [label.startswith("B-") for label in labels],
        [label.split("-", 1)[-1] for label in labels],
    )


class _Row:
    """One window with the scores of its own tokens."""

    def __init__(
        self, windows: Windows, ids: Sequence[int], row: int, scores: Values, labels: Sequence[str]
    ) -> None:
        self._reader = windows.reader
        self._text = windows.texts[windows.text_of[row]]
        self._start, self._before = windows.starts[row], windows.before[row]
        self._offsets = windows.offsets[row]
        self._ids = ids[self._before : self._before + len(self._offsets)]
        self._scores = scores
        self._labels = tuple(labels)

    def found(self, strategy: str, ignored: Sequence[str]) -> Iterator[Entity]:
        if not self._offsets:
            return
        tags, word = _tags(self._labels), self._token
        if strategy in {"none", SIMPLE}:
            units = self._tokens()
        else:
            units, word = self._words(strategy), self._join
        if strategy == "none":
            for unit in units:
                if self._labels[unit.column] not in ignored:
                    yield self._entity(self._labels[unit.column], [unit], self._token(unit))
            return
        for run in _runs(units, tags):
            name = tags.names[run[0].column]
            if name not in ignored:
                yield self._entity(name, run, self._reader.joined([word(unit) for unit in run]))

    def _entity(self, name: str, run: Sequence[_Unit], word: str) -> Entity:
        first, last = run[0].first, run[-1].last
        score = float(np.mean(np.array([unit.score for unit in run], np.float32)))
        return Entity(
            name,
            score,
            self._offsets[first][0],
            self._offsets[last][1],
            word,
            self._start + self._before + first,
        )

    def _tokens(self) -> list[_Unit]:
        columns: list[int] = self._scores.argmax(axis=1).tolist()
        highest: list[float] = self._scores.max(axis=1).tolist()
        return [
            _Unit(column, score, at, at)
            for at, (column, score) in enumerate(zip(columns, highest, strict=True))
        ]

    def _words(self, strategy: str) -> list[_Unit]:
        firsts = [at for at in range(len(self._offsets)) if at == 0 or not self._continues(at)]
        lasts = [*(first - 1 for first in firsts[1:]), len(self._offsets) - 1]
        scores = _MERGED[strategy](self._scores, np.array(firsts))
        columns: list[int] = scores.argmax(axis=1).tolist()
        highest: list[float] = scores.max(axis=1).tolist()
        return [_Unit(*unit) for unit in zip(columns, highest, firsts, lasts, strict=True)]

    def _continues(self, at: int) -> bool:
        """Whether a token goes on with the word of the one before it."""
        start, end = self._offsets[at]
        token_id = self._ids[at]
        if self._reader.is_unknown(token_id):
            return False
        if self._reader.marks_subwords:
            return len(self._reader.token(token_id)) != end - start
        return start > 0 and " " not in self._text[start - 1 : start + 1]

    def _token(self, unit: _Unit) -> str:
        return self._write_word(unit.first)

    def _join(self, unit: _Unit) -> str:
        return self._reader.joined(
            [self._write_word(at) for at in range(unit.first, unit.last + 1)]
        )

    def _write_word(self, at: int) -> str:
        if self._reader.is_unknown(self._ids[at]):
            start, end = self._offsets[at]
            return self._text[start:end]
        return self._reader.token(self._ids[at])


# Scores of words ``[words, labels]``, of those of their tokens and the first token of each.


def _first(scores: Values, firsts: NDArray[np.int64]) -> Values:
    return scores[firsts]


def _average(scores: Values, firsts: NDArray[np.int64]) -> Values:
    counts = np.diff(firsts, append=len(scores))[:, None]
    mean: Values = (np.add.reduceat(scores, firsts, axis=0) / counts).astype(np.float32)
    return mean


def _surest(scores: Values, firsts: NDArray[np.int64]) -> Values:
    """Those of the first token whose highest score is the highest of its word."""
    highest = scores.max(axis=1)
    counts = np.diff(firsts, append=len(scores))
    of_word = np.repeat(np.maximum.reduceat(highest, firsts), counts)
    word = np.repeat(np.arange(len(firsts)), counts)
    surest = np.flatnonzero(highest == of_word)
    _, places = np.unique(word[surest], return_index=True)
    rows: Values = scores[surest[places]]
    return rows


_MERGED: Mapping[str, Callable[[Values, NDArray[np.int64]], Values]] = {
    "first": _first,
    "average": _average,
    "max": _surest,
}


def _runs(units: Sequence[_Unit], tags: _Tags) -> Iterator[list[_Unit]]:
    """Neighbours of one type, unless the later one begins an entity of its own."""
    run = [units[0]]
    for unit in units[1:]:
        same = tags.types[unit.column] == tags.types[run[-1].column]
        if same and not tags.begins[unit.column]:
            run.append(unit)
        else:
            yield run
            run = [unit]
    yield run


def _without_overlaps(found: Sequence[Entity]) -> list[Entity]:
    """What windows have found of one text, each place once."""
    kept: list[Entity] = []
    for entity in sorted(found, key=lambda entity: entity.start):
        if not kept or not kept[-1].start <= entity.start < kept[-1].end:
            kept.append(entity)
        elif _worth(entity) > _worth(kept[-1]):
            kept[-1] = entity
    return kept


def _worth(entity: Entity) -> tuple[int, float]:
    return entity.end - entity.start, entity.score


def compare_places(ours: Sequence[set[Place]], theirs: Sequence[set[Place]]) -> Difference:
    """1 - F1 of the entities of each text; whether each that either has found is in both.

    Entities are the same if label, start and end are. A text in which neither has found any counts
    as one that is equal.
    """
    distance: list[float] = []
    equal: list[bool] = []
    for one, other in zip(ours, theirs, strict=True):
        both, every = one & other, one | other
        equal += [place in both for place in sorted(every)] if every else [True]
        distance.append(1 - 2 * len(both) / (len(one) + len(other)) if every else 0.0)
    return Difference(np.array(distance), equal, [], np.empty(0))


def _spans(side: Side) -> list[set[Place]]:
    return [
        {(entity.start, entity.end, entity.label) for entity in each}
        for each in entities(require_encoded(side), side.values, side.labels)
    ]

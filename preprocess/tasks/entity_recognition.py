"""Entity recognition: spans of a text that fit labels which the caller names (GLiNER).

Answers are those of the ``gliner`` package (``decoding/decoder.py``) with its flat entities: of the
spans whose score is above the threshold the best ones, none of which overlap. What is recorded and
compared is found by the usual threshold, whatever the caller asked for.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.events import NO_ENTITY, TextRecord
from contracts.tasks import MARKED, Task
from preprocess.encoder import EncodedTexts, TextEncoder, Windows
from preprocess.errors import ParameterError
from preprocess.labelled_words import LABELS_PLACE, EntityEncoder, joined_labels
from preprocess.scores import sigmoid
from preprocess.surrogates import find_lone_surrogate
from preprocess.tasks.head import (
    NAMED,
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
from preprocess.tasks.token_classification import MOST_RECORDED, Entity, Place, compare_places
from preprocess.tasks.zero_shot import check_labels

USUAL_THRESHOLD = 0.5  # gliner's
OTHER_LABEL = "another label"  # what labels that the version does not name are counted as
MOST_LABELS = 64
_MOST_CHARACTERS = 8192  # of all labels


class EntityRecognition(Head):
    """Values are float32 ``[tokens of all rows, widths * labels]`` probabilities.

    The first rows of a text's values are those of its words: of the spans that begin with a word,
    by their widths, for each label.
    """

    task: ClassVar[Task] = Task.ENTITY_RECOGNITION
    second_text: ClassVar[SecondText] = SecondText.NONE
    parameters: ClassVar[frozenset[str]] = frozenset({"labels", "threshold", "multi_label"})
    everywhere: ClassVar[frozenset[str]] = parameters
    encoder: ClassVar[type[TextEncoder]] = EntityEncoder
    kinds: ClassVar[frozenset[str]] = frozenset({MARKED})
    counts_named: ClassVar[bool] = True
    probabilities: ClassVar[bool] = True

    def rows_of_text(self, parameters: Mapping[str, Any]) -> int:
        """One: all labels are read together."""
        labels: Sequence[str] = parameters.get("labels", ())
        if not labels:
            raise ParameterError(LABELS_PLACE, "no label was sent, so that there is none to find")
        if len(labels) > MOST_LABELS:
            raise ParameterError(LABELS_PLACE, f"there are {len(labels)}; {MOST_LABELS} are taken")
        if (characters := sum(map(len, labels))) > _MOST_CHARACTERS:
            raise ParameterError(
                LABELS_PLACE, f"they have {characters} characters; {_MOST_CHARACTERS} are taken"
            )
        return 1

    def rows(
        self,
        texts: list[str],
        pairs: list[str] | None,  # noqa: ARG002 - no dialect has any
        parameters: Mapping[str, Any],
    ) -> tuple[list[str], list[str] | None]:
        """The texts, each with the labels; raises ``ParameterError`` for labels that are equal."""
        labels: Sequence[str] = parameters["labels"]
        check_labels(labels, LABELS_PLACE)
        if (place := find_lone_surrogate(list(labels))) is not None:
            raise ParameterError(f"{LABELS_PLACE}{place}", "it is not Unicode text")
        named: Sequence[str] = parameters.get(NAMED, ())
        return texts, [joined_labels(labels, named)] * len(texts)

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002
        return sigmoid(output)

    def classes(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Any label, as far as conversions know, and a text without any entity."""
        return tuple(dict.fromkeys((*labels, OTHER_LABEL, NO_ENTITY)))

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - callers name them
    ) -> list[TextRecord]:
        """The entities above the usual threshold; of one request at most ``MOST_RECORDED``.

        A label that the endpoint does not name is its caller's word, which no event holds.
        """
        named = () if encoded.windows is None else encoded.windows.named
        records: list[TextRecord] = []
        left = MOST_RECORDED
        for known, each in zip(encoded.statistics(), entities(encoded, values), strict=True):
            kept = [
                (one.label if one.label in named else OTHER_LABEL, one.score) for one in each[:left]
            ]
            left -= len(kept)
            records.append(TextRecord(*known, label=None if each else NO_ENTITY, entities=kept))
        return records

    def markable(self, labels: tuple[str, ...], asked: Sequence[str] = ()) -> tuple[str, ...]:  # noqa: ARG002
        """Whatever the endpoint names."""
        return tuple(asked)

    def marking(self, asked: Sequence[str]) -> dict[str, Any]:
        """The labels that the endpoint names."""
        return {"labels": list(asked)}

    def marks(self, answer: AnsweredTexts, thresholds: Mapping[str, float]) -> list[list[Mark]]:
        """The entities, in the order of their places, each with a score from its threshold on."""
        found = entities(require_encoded(answer), answer.values, thresholds=thresholds)
        return [[Mark(one.label, one.score, one.start, one.end) for one in each] for each in found]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """See ``compare_places``."""
        return compare_places(_places(ours), _places(theirs))

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """``{"entity_group", "score", "word", "start", "end"}`` of each entity, by its start."""
        found = [
            [entity.shown("simple") for entity in each]
            for each in entities(
                require_encoded(answer),
                answer.values,
                threshold=parameters.get("threshold", USUAL_THRESHOLD),
                multi_label=parameters.get("multi_label", False),
            )
        ]
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """The entities of each text."""
        return list(self.pipeline(answer, answer.parameters, one=False))

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The same as JSON."""
        return {
            "ENTITIES": [
                json.dumps(each, ensure_ascii=False, separators=(",", ":"))
                for each in self.predictions(answer)
            ]
        }


class _Spans(NamedTuple):
    """Spans of one text with a label each, from the best one on."""

    firsts: NDArray[np.intp]  # words
    lasts: NDArray[np.intp]
    labels: NDArray[np.intp]
    scores: Values


def entities(
    encoded: EncodedTexts,
    values: Values,
    *,
    threshold: float = USUAL_THRESHOLD,
    thresholds: Mapping[str, float] | None = None,
    multi_label: bool = False,
) -> list[list[Entity]]:
    """The entities of each text, by their places in it.

    Args:
        encoded: rows of an ``EntityEncoder``.
        values: ``[tokens of all rows, widths * labels]`` probabilities.
        threshold: which the score of an entity is above.
        thresholds: in its place, the least score of each label; others are not looked for.
        multi_label: a span may have several labels.
    """
    windows = encoded.windows
    if windows is None:
        raise ValueError("spans have no places in texts that were not encoded word by word")
    above = np.full(len(windows.labels), threshold, np.float32)
    if thresholds is not None:
        least = [thresholds.get(label, np.inf) for label in windows.labels]
        above = np.nextafter(np.array(least, np.float32), np.float32(0))
    found: list[list[Entity]] = []
    for row, end in enumerate(accumulate(encoded.tokens)):
        places = windows.offsets[row]
        start = end - encoded.tokens[row]
        columns = values.shape[1] // windows.widest
        scores = values[start : start + len(places)].reshape(-1, windows.widest, columns)
        asked = scores[:, :, : len(windows.labels)]
        spans = _spans_above(asked, above, multi_label=multi_label)
        chosen = _choose(spans, len(places))
        found.append([_entity(windows, row, spans, at) for at in chosen])
    return found


def _spans_above(scores: Values, above: Values, *, multi_label: bool) -> _Spans:
    """The spans whose scores ``[words, widths, labels]`` are above the threshold of their label.

    If spans have one label each, only their best one.
    """
    words = len(scores)
    if not scores.size:
        nowhere = np.empty(0, np.intp)
        return _Spans(nowhere, nowhere, nowhere, np.empty(0, np.float32))
    found = np.where(scores > above, scores, np.float32(-1))
    if multi_label:
        firsts, further, label = np.nonzero(found >= 0)
    else:
        firsts, further = np.nonzero(found.max(axis=2) >= 0)
        label = found.argmax(axis=2)[firsts, further]
    whole = firsts + further < words
    firsts, further, label = firsts[whole], further[whole], label[whole]
    best = scores[firsts, further, label]
    order = np.argsort(-best, kind="stable")
    lasts = firsts + further
    return _Spans(firsts[order], lasts[order], label[order], best[order])


def _choose(spans: _Spans, words: int) -> list[int]:
    """Which spans are kept, in the order of their first words: none that overlaps a better one.

    The same span with another label is no overlap: of spans with one label each there is none.
    """
    taken: list[tuple[int, int] | None] = [None] * words
    kept: list[int] = []
    places = zip(spans.firsts.tolist(), spans.lasts.tolist(), strict=True)
    for at, (first, last) in enumerate(places):
        own = (first, last)
        if all(each is None or each == own for each in taken[first : last + 1]):
            taken[first : last + 1] = [own] * (last + 1 - first)
            kept.append(at)
    return sorted(kept, key=lambda at: int(spans.firsts[at]))


def _entity(windows: Windows, row: int, spans: _Spans, at: int) -> Entity:
    places, text = windows.offsets[row], windows.texts[windows.text_of[row]]
    first = int(spans.firsts[at])
    start, end = places[first][0], places[int(spans.lasts[at])][1]
    label = windows.labels[int(spans.labels[at])]
    return Entity(label, float(spans.scores[at]), start, end, text[start:end], first)


def _places(side: Side) -> list[set[Place]]:
    return [
        {(entity.start, entity.end, entity.label) for entity in each}
        for each in entities(require_encoded(side), side.values)
    ]

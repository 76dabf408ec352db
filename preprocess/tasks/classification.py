"""Text classification: probabilities of labels, one of all or each on its own."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import CLASSES, MARKED, Task
from preprocess.encoder import EncodedTexts
from preprocess.scores import best, best_labels, by_sigmoid, class_scores, top_k
from preprocess.tasks.head import AnsweredTexts, Difference, Head, Mark, Output, Side, Values


class TextClassification(Head):
    """Values are float32 ``[texts, labels]`` probabilities."""

    task: ClassVar[Task] = Task.TEXT_CLASSIFICATION
    parameters: ClassVar[frozenset[str]] = frozenset({"top_k", "function_to_apply"})
    probabilities: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({CLASSES, MARKED})
    hub_nests: ClassVar[bool] = True

    def _values(self, output: Values, *, multi_label: bool) -> Values:
        return class_scores(output, multi_label=multi_label)

    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """The best label and its score, of a multi-label model too."""
        names, scores = best_labels(values, labels)
        return [
            TextRecord(*known, label=name, score=score)
            for known, name, score in zip(encoded.statistics(), names, scores, strict=True)
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """Equal best labels, and the total variation of the scores."""
        chosen = best(ours.values)
        names = np.array(ours.labels)[chosen], np.array(theirs.labels)[best(theirs.values)]
        labels: list[str] = names[0].tolist()
        equal: list[bool] = (names[0] == names[1]).tolist()
        values, others = ours.values, theirs.values
        if ours.labels != theirs.labels:
            every = tuple(dict.fromkeys((*ours.labels, *theirs.labels)))
            values = _on_labels(values, ours.labels, every)
            others = _on_labels(others, theirs.labels, every)
        apart = np.abs(values - others)
        # A label that is scored by itself is a distribution of its own over yes and no.
        alone = by_sigmoid(len(ours.labels), multi_label=ours.multi_label)
        distance = apart.mean(axis=1) if alone else apart.sum(axis=1) / 2
        scores = np.take_along_axis(ours.values, chosen[:, None], axis=1)[:, 0]
        return Difference(distance, equal, labels, scores)

    def functions(self, classes: int, *, multi_label: bool) -> tuple[str, ...]:
        """Softmax or sigmoid, whichever the model's scores are made by."""
        return ("sigmoid",) if by_sigmoid(classes, multi_label=multi_label) else ("softmax",)

    def marks(self, answer: AnsweredTexts, thresholds: Mapping[str, float]) -> list[list[Mark]]:
        """The labels whose probability is at least their threshold, of the whole text."""
        columns = [answer.labels.index(label) for label in thresholds]
        scores = answer.values[:, columns]
        # Both as float32: 0.7 of a model is a little less than the 0.7 of Python.
        reached = scores >= np.array(list(thresholds.values()), np.float32)
        names = list(thresholds)
        found: list[list[Mark]] = [[] for _ in scores]
        for text, column in np.argwhere(reached).tolist():
            found[text].append(Mark(names[column], float(scores[text, column])))
        return found

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """``{"label", "score"}`` a text; with ``top_k`` (null for all labels) a list, best first.

        Of one text without ``top_k`` it is a list of one object, as in ``transformers``.
        """
        if "top_k" not in parameters:
            labels, scores = best_labels(answer.values, answer.labels)
            return [
                {"label": label, "score": score}
                for label, score in zip(labels, scores, strict=True)
            ]
        ranked = [
            [{"label": label, "score": score} for label, score in row]
            for row in top_k(answer.values, answer.labels, parameters["top_k"])
        ]
        return ranked[0] if one else ranked

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """``{"label", "score", "scores"}``, with ``scores`` by label."""
        labels, scores = best_labels(answer.values, answer.labels)
        return [
            {"label": label, "score": score, "scores": dict(zip(answer.labels, row, strict=True))}
            for label, score, row in zip(labels, scores, answer.values.tolist(), strict=True)
        ]

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The best label, its score, and the scores of all labels."""
        labels, scores = best_labels(answer.values, answer.labels)
        return {"LABEL": labels, "SCORE": np.array(scores, np.float32), "SCORES": answer.values}


def _on_labels(scores: Values, labels: tuple[str, ...], every: tuple[str, ...]) -> Values:
    """The scores with a column for each of ``every`` label, 0 for those that a model lacks."""
    wide = np.zeros((len(scores), len(every)), np.float32)
    wide[:, [every.index(label) for label in labels]] = scores
    return wide

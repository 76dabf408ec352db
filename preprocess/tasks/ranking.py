"""Text ranking: how well a second text answers the first one, by a cross-encoder of one logit.

The logits are kept to the answer, because the highest probabilities are equal in float32: an order
by them would be chance. The probability is the logit's sigmoid, as in ``transformers``' pipeline,
TEI, and ``CrossEncoder`` of sentence-transformers for a single label.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import RELEVANCE, Task
from preprocess.encoder import EncodedTexts
from preprocess.scores import sigmoid
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    Output,
    Ranking,
    SecondText,
    Side,
    Values,
    best_first,
)


class TextRanking(Head):
    """Values are float32 ``[texts, 1]`` logits."""

    task: ClassVar[Task] = Task.TEXT_RANKING
    second_text: ClassVar[SecondText] = SecondText.REQUIRED
    parameters: ClassVar[frozenset[str]] = frozenset({"top_k", "function_to_apply"})
    kinds: ClassVar[frozenset[str]] = frozenset({RELEVANCE})

    def measured(self, values: Values) -> Values:
        """Probabilities."""
        return sigmoid(values)

    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """The probability, under the model's one label."""
        return [
            TextRecord(*known, label=labels[0], score=score)
            for known, score in zip(
                encoded.statistics(), sigmoid(values)[:, 0].tolist(), strict=True
            )
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """The difference of the probabilities. There is one label, which does not differ."""
        scores = sigmoid(ours.values)[:, 0]
        rows = len(scores)
        distance = np.abs(scores - sigmoid(theirs.values)[:, 0])
        return Difference(distance, [True] * rows, [ours.labels[0]] * rows, scores)

    def functions(self, classes: int, *, multi_label: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The sigmoid, or none for logits."""
        return ("sigmoid", "none")

    def ranking(self, answer: AnsweredTexts) -> Ranking:
        """By their logits."""
        return rank_logits(answer.values)

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """``{"label", "score"}`` a pair, or a list of it with ``top_k``."""
        raw = parameters.get("function_to_apply") == "none"
        scores = answer.values if raw else sigmoid(answer.values)
        found = [{"label": answer.labels[0], "score": score} for score in scores[:, 0].tolist()]
        if "top_k" not in parameters:
            return found
        return found if one else [[each] for each in found]

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """``{"score", "logit"}``."""
        scores, logits = sigmoid(answer.values)[:, 0].tolist(), answer.values[:, 0].tolist()
        return [
            {"score": score, "logit": logit} for score, logit in zip(scores, logits, strict=True)
        ]

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The probability and the logit."""
        return {"SCORE": sigmoid(answer.values)[:, 0], "LOGIT": answer.values[:, 0]}


def rank_logits(logits: Values) -> Ranking:
    """All texts from the best to the worst, those of equal logits in the order they came in.

    Args:
        logits: float32 ``[texts, 1]``.

    Returns:
        Indices, and the probability and the logit of each.
    """
    order, ordered = best_first(logits[:, 0])
    return order, sigmoid(ordered).tolist(), ordered.tolist()

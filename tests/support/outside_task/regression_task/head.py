"""The head."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.tasks.head import AnsweredTexts, Difference, Head, Output, Side, Values


class TextRegression(Head):
    """Values are float32 ``[texts, 1]``."""

    task: ClassVar[Task] = Task("text-regression")

    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """The size of the grade, in the place of a vector's norm."""
        return [
            TextRecord(*known, norm=abs(grade))
            for known, grade in zip(encoded.statistics(), values[:, 0].tolist(), strict=True)
        ]

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """How far the grades are apart, at most 1."""
        apart = np.minimum(np.abs(ours.values - theirs.values)[:, 0], 1.0)
        return Difference(apart, [], [], np.empty(0))

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:
        """``{"grade"}`` a text."""
        found = [{"grade": grade} for grade in answer.values[:, 0].tolist()]
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """A number a text."""
        return list(answer.values[:, 0].tolist())

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The grades."""
        return {"GRADE": answer.values[:, 0]}

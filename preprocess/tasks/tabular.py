"""Tables: classes with probabilities, or numbers, of rows of features."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.features import PREDICTION
from contracts.tasks import CLASSES, Task
from preprocess.encoder import EncodedTexts
from preprocess.tasks.classification import TextClassification
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    Observed,
    Output,
    SecondText,
    Side,
    Values,
)


class TabularClassification(TextClassification):
    """Values are float32 ``[rows, classes]`` probabilities, which the graph gives."""

    task: ClassVar[Task] = Task.TABULAR_CLASSIFICATION
    second_text: ClassVar[SecondText] = SecondText.NONE
    parameters: ClassVar[frozenset[str]] = frozenset()
    kinds: ClassVar[frozenset[str]] = frozenset({CLASSES})
    reads_rows: ClassVar[bool] = True

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002
        return output

    def functions(self, classes: int, *, multi_label: bool) -> tuple[str, ...]:  # noqa: ARG002
        """None: the model gives probabilities."""
        return ()


class TabularRegression(Head):
    """Values are float32 ``[rows, numbers]``."""

    task: ClassVar[Task] = Task.TABULAR_REGRESSION
    second_text: ClassVar[SecondText] = SecondText.NONE
    reads_rows: ClassVar[bool] = True

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,  # noqa: ARG002 - ``observed`` has them
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """That each row was answered."""
        return [TextRecord(*known) for known in encoded.statistics()]

    def observed(self, values: Values) -> Observed:
        """The number, of answers with one."""
        return {PREDICTION: values[:, 0].tolist()} if values.shape[1] == 1 else {}

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """By how much the numbers differ, as a share of the larger one: 0 for equal ones.

        It is at most 1. Of several numbers a row, their mean; 1 where they are not as many.
        """
        a, b = ours.values.astype(np.float64), theirs.values.astype(np.float64)
        if a.shape != b.shape:
            return Difference(np.ones(len(a)), [], [], np.empty(0))
        larger = np.maximum(np.abs(a), np.abs(b))
        shares = np.divide(np.abs(a - b), larger, out=np.zeros_like(a), where=larger > 0)
        return Difference(np.minimum(shares, 1.0).mean(axis=1), [], [], np.empty(0))

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401, ARG002
        """The numbers."""
        found = self.predictions(answer)
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """A number a row; a list where the model gives several."""
        values: list[Any] = answer.values.tolist()
        return [row[0] for row in values] if answer.values.shape[1] == 1 else values

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The numbers."""
        return {"VALUE": answer.values}

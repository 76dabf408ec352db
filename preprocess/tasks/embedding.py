"""Text embedding: one vector for each text."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import DENSE, Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import MissingRangesError, ParameterError
from preprocess.scores import norms
from preprocess.tasks.head import (
    AnsweredTexts,
    Difference,
    Head,
    ModelDescription,
    Output,
    Side,
    Values,
)
from preprocess.vectors import VectorPrecision, quantise, ranges_of, unit


class TextEmbedding(Head):
    """Values are float32 ``[texts, dimension]`` vectors."""

    task: ClassVar[Task] = Task.TEXT_EMBEDDING
    kinds: ClassVar[frozenset[str]] = frozenset({DENSE})
    parameters: ClassVar[frozenset[str]] = frozenset({"dimensions", "normalize", "precision"})
    everywhere: ClassVar[frozenset[str]] = frozenset({"dimensions", "normalize"})

    def records(
        self,
        encoded: EncodedTexts,
        values: Values,
        labels: tuple[str, ...],  # noqa: ARG002 - no labels
    ) -> list[TextRecord]:
        """The Euclidean norm of the vector."""
        return [
            TextRecord(*known, norm=norm)
            for known, norm in zip(encoded.statistics(), norms(values).tolist(), strict=True)
        ]

    def pooled(self, encoded: EncodedTexts, values: Values) -> Values | None:  # noqa: ARG002
        """The values themselves."""
        return values

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """(1 - cosine) / 2: 0 for one direction, 1 for opposite ones.

        It is 1 for vectors of different dimensions, and for a vector of zeros unless both are.
        """
        values, others = ours.values, theirs.values
        if values.shape != others.shape:
            return _of_vectors(np.ones(len(values)))
        a, b = values.astype(np.float64), others.astype(np.float64)
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        both_none = ~a.any(axis=1) & ~b.any(axis=1)
        dots = np.einsum("td,td->t", a, b)
        cosine = np.divide(dots, lengths, out=np.full(len(a), -1.0), where=lengths > 0)
        cosine[both_none] = 1.0
        return _of_vectors((1 - cosine) / 2)

    def ranges(self, values: Values) -> Values:
        """The least and the largest value of each dimension."""
        return ranges_of(values)

    def refusal(self, parameters: Mapping[str, Any], model: ModelDescription) -> str:
        """More dimensions than there are, or bytes without ranges."""
        if more := refuse_dimensions(parameters, model):
            return more
        precision = parameters.get("precision")
        if precision and VectorPrecision(precision).by_ranges and not model.has_ranges:
            return f"precision: {_no_ranges(precision)}."
        return ""

    def dense(self, answer: AnsweredTexts) -> Values:
        """See ``Head.dense``."""
        return answer.values

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """The vector of one text, or a list of vectors, in the form of ``formed``."""
        vectors = formed(answer.values, answer.ranges, parameters).tolist()
        return vectors[0] if one else vectors

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """A vector for each text."""
        vectors: list[list[float]] = self.pipeline(answer, answer.parameters, one=False)
        return list(vectors)

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The vectors."""
        made = formed(answer.values, answer.ranges, answer.parameters)
        return {"EMBEDDING": made.astype(np.float32, copy=False)}


def refuse_dimensions(parameters: Mapping[str, Any], model: ModelDescription) -> str:
    """Why the dimensions that are asked for are more than any version gives; else nothing."""
    dimensions = parameters.get("dimensions")
    most = None if dimensions is None else model.most_dimensions
    if dimensions is None or most is None or dimensions <= most:
        return ""
    return f"dimensions: {model.name} gives {most}, and {dimensions} is more."


def formed(
    vectors: Values, ranges: Values | None, parameters: Mapping[str, Any]
) -> NDArray[np.generic]:
    """Vectors ``[texts, dimension]`` in the form that is asked for, ``[texts, dimensions]``.

    - ``dimensions``: the first ones alone, at length 1, as OpenAI has it; all are left as they are.
    - ``normalize``: at length 1 whatever the model gives.
    - ``precision``: see ``VectorPrecision``. Bytes are made of the model's own values, by the
      ranges of its package, whatever the length: so those of fewer dimensions are the first of
      those of all, and can be compared with them.

    Raises:
        MissingRangesError: the package has no ranges, and bytes need them.
        ParameterError: this version gives fewer dimensions, another one gives enough.
    """
    precision = VectorPrecision(parameters.get("precision", VectorPrecision.FLOAT32))
    dimensions = parameters.get("dimensions") or vectors.shape[1]
    if dimensions > vectors.shape[1]:
        raise ParameterError("dimensions", f"this version gives {vectors.shape[1]}")
    values = vectors[:, :dimensions]
    if precision.by_ranges:
        if ranges is None:
            raise MissingRangesError(_no_ranges(precision))
        return quantise(values, precision, ranges[:, :dimensions])
    if dimensions < vectors.shape[1] or parameters.get("normalize"):
        values = unit(values)
    return quantise(values, precision)


def _no_ranges(precision: str) -> str:
    return (
        f"the version was converted before packages had what {precision} needs; convert it again, "
        "or ask for ubinary or float32"
    )


def _of_vectors(distance: NDArray[np.floating]) -> Difference:
    return Difference(distance, [], [], np.empty(0))

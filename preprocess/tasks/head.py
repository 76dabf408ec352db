"""What a task is: from the engine's output to values, records, comparisons and answers.

A head keeps nothing between calls, does no I/O and knows no transport. Gateway and conversion use
the same heads, so that what was proved is what is served. Pooling and normalisation are part of the
exported graph; nothing of them is done here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import ENGINE_OUTPUT, Task
from preprocess.encoder import EncodedTexts, TextEncoder
from preprocess.errors import EngineOutputError

Values = NDArray[np.float32]
Output = list[str] | Values
Observed = dict[str, list[float | str]]  # values of statistics, by name
# Of a sparse vector ``index`` and ``value`` of what is not 0, by index.
Weights = list[dict[str, float]]
# Places of texts from the best to the worst, and of each, in this order, what callers see as its
# score, and the same before it was made a probability.
Ranking = tuple[Sequence[int], list[float], list[float]]
NAMED = "named labels"  # no parameter of a caller's has a space


class SecondText(Enum):
    """Whether a text comes with a second one that is read together with it."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class AnsweredTexts(Protocol):
    """The values of a request's texts, and how the model names its classes."""

    @property
    def values(self) -> Values:
        """Float32 ``[texts, width]``, or ``[tokens of all rows, width]`` of labels of tokens."""

    @property
    def encoded(self) -> EncodedTexts | None:
        """The rows that the values are of, for heads that need more of texts than their number."""

    @property
    def labels(self) -> tuple[str, ...]:
        """In the order of the columns; none for vectors."""

    @property
    def multi_label(self) -> bool:
        """Each class on its own."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the request asked for: those of ``Head.parameters`` that it has set."""

    @property
    def ranges(self) -> Values | None:
        """Of vectors, the usual values of each dimension, float32 ``[2, dimension]``."""


class ModelDescription(Protocol):
    """What is known of a model before it is asked."""

    @property
    def name(self) -> str:
        """The endpoint's."""

    @property
    def most_dimensions(self) -> int | None:
        """Of its vectors, whichever version answers."""

    @property
    def has_ranges(self) -> bool:
        """Whether the usual values of each dimension are known."""


class Side(NamedTuple):
    """One version's values for the texts of a mirrored request."""

    values: Values
    labels: tuple[str, ...]
    multi_label: bool = False
    encoded: EncodedTexts | None = None


class Difference(NamedTuple):
    """How far a shadow's answers are from those that the caller got, text by text.

    Attributes:
        distance: 0 to 1, one a text.
        equal: whether both labels are the same, one a text or an entity; empty for vectors.
        labels: the caller's, one a text; empty for tasks without, as the scores are.
        scores: the caller's, of its label.
    """

    distance: NDArray[np.floating]
    equal: list[bool]
    labels: list[str]
    scores: NDArray[np.floating]


class Mark(NamedTuple):
    """A label that a text has, and where: ``start`` and ``end`` are None for the whole text."""

    label: str
    score: float
    start: int | None = None  # character
    end: int | None = None  # behind the last one


class Head(ABC):
    """One task.

    Attributes:
        task: its name.
        second_text: whether it reads pairs of texts.
        makes_second_text: whether it makes these itself, so that callers send none.
        parameters: of ``transformers`` pipelines, those that it takes.
        everywhere: of these, those that every dialect takes, as ``AnsweredTexts.parameters``.
        encoder: what makes rows of texts.
        kinds: of values that it gives, for routes that are for one kind: ``contracts.tasks`` names
            them.
        hub_nests: whether the Hub's own clients read a text's labels from a list within a list.
        further_columns: of its values, beside labels or the dimension.
        probabilities: whether values are probabilities, which users' own code must leave so.
        by_tokens: of heads of rank 3, whether users' own code may change values of tokens.
        counts_named: whether its callers name labels, and those that the endpoint names too are
            counted: ``rows`` gets these as the parameter ``NAMED``.
        reads_rows: whether it reads rows of a table, and no texts.
        generates: whether it writes text, token by token, on routes of its own; then nothing is
            batched here.
    """

    task: ClassVar[Task]
    second_text: ClassVar[SecondText] = SecondText.OPTIONAL
    makes_second_text: ClassVar[bool] = False
    parameters: ClassVar[frozenset[str]] = frozenset()
    everywhere: ClassVar[frozenset[str]] = frozenset()
    encoder: ClassVar[type[TextEncoder]] = TextEncoder
    kinds: ClassVar[frozenset[str]] = frozenset()
    hub_nests: ClassVar[bool] = False
    further_columns: ClassVar[int] = 0
    probabilities: ClassVar[bool] = False
    by_tokens: ClassVar[bool] = False
    counts_named: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False
    generates: ClassVar[bool] = False

    @property
    def rank(self) -> int:
        """Dimensions of the engine's output: 2, or 3 where it has values for each token."""
        return len(ENGINE_OUTPUT[self.task].shape)

    def rows_of_text(self, parameters: Mapping[str, Any]) -> int:  # noqa: ARG002 - of heads
        """How many texts for the model each text of a request becomes. Looks at none of them.

        Raises:
            ParameterError: a parameter that the task can't be done with.
        """
        return 1

    def rows(
        self,
        texts: list[str],
        pairs: list[str] | None,
        parameters: Mapping[str, Any],  # noqa: ARG002 - of heads
    ) -> tuple[list[str], list[str] | None]:
        """The texts for the model, and their second texts: ``rows_of_text`` of each, in order.

        Raises:
            ParameterError: the texts do not go with the task.
        """
        return texts, pairs

    def values(
        self, output: Values, *, width: int, multi_label: bool = False, packed: bool = False
    ) -> Values:
        """The values of an answer, from the engine's output.

        Args:
            output: float32 ``[rows, width]`` or, of rank 3, ``[rows, length, width]``, or
                ``[tokens of all rows, width]`` of a packed engine.
            width: number of labels, or the embedding's dimension, as the manifest has it.
            multi_label: each class on its own, not one of all.
            packed: whether a packed engine gave it.

        Returns:
            float32 of the same shape.

        Raises:
            EngineOutputError: another shape, or a value that is NaN or infinite.
        """
        if output.ndim != (2 if packed else self.rank) or output.shape[-1] != width:
            first = ["tokens" if self.rank > 2 else "texts"]
            before = first if packed else ["texts", *["tokens"] * (self.rank - 2)]
            wanted = ", ".join([*before, str(width)])
            raise EngineOutputError(f"the engine gave {output.shape}, not [{wanted}]")
        if not np.isfinite(output).all():
            rows = np.flatnonzero(~np.isfinite(output).all(axis=tuple(range(1, output.ndim))))
            what = "tokens" if packed and self.rank > 2 else "texts"
            raise EngineOutputError(f"the engine gave NaN or infinity for {len(rows)} {what}")
        return self._values(output.astype(np.float32, copy=False), multi_label=multi_label)

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002 - of heads
        return output

    def parts(self, values: Values, tokens: Sequence[int], counts: Sequence[int]) -> list[Values]:
        """The values of successive rows of a batch, 2-dimensional, without those of padding.

        Args:
            values: as ``values`` gave them.
            tokens: of each row.
            counts: how many rows each part has, in the order of the rows.
        """
        if values.ndim < self.rank:
            # Of a packed engine: the tokens of all rows one after the other.
            counts = _tokens_of(tokens, counts)
        flat = values.ndim == 2
        found: list[Values] = []
        start = 0
        for count in counts:
            end = start + count
            if flat:
                found.append(values[start:end])
            elif count == 1:
                found.append(values[start, : tokens[start]])
            else:
                found.append(np.concatenate([values[at, : tokens[at]] for at in range(start, end)]))
            start = end
        return found

    def sizes(self, tokens: Sequence[int]) -> Sequence[int]:
        """How many rows of values each row of tokens has, where they are joined to one array."""
        return tokens if self.rank > 2 else [1] * len(tokens)

    def classes(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """What answers are counted as: the model's labels, unless ``records`` names others."""
        return labels

    def measured(self, values: Values) -> Values:
        """What parity is measured on, and what a reference profile has: what callers see."""
        return values

    def select_answered(self, encoded: EncodedTexts, values: Values) -> Values:  # noqa: ARG002
        """The values that are part of answers: what an original gives of the same rows."""
        return values

    @abstractmethod
    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """What is recorded of each text that was answered."""

    def observed(self, values: Values) -> Observed:  # noqa: ARG002 - of heads
        """What is counted of answers like a feature of rows, by the manifest's ``answers``."""
        return {}

    def pooled(self, encoded: EncodedTexts, values: Values) -> Values | None:  # noqa: ARG002
        """A dense vector of each text, ``[texts, dimension]``; None of tasks without.

        The directions of these are watched for drift.
        """
        return None

    @abstractmethod
    def difference(self, ours: Side, theirs: Side) -> Difference:
        """How far a shadow's answers are from those that the caller got.

        Args:
            ours: what the caller got.
            theirs: the shadow's; it may have other labels, or another dimension.
        """

    def functions(self, classes: int, *, multi_label: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The values of ``function_to_apply`` that it takes, the usual one first."""
        return ()

    def refusal(self, parameters: Mapping[str, Any], model: ModelDescription) -> str:  # noqa: ARG002
        """Why parameters can't be met by a model: the field, a colon and the reason, or nothing."""
        return ""

    def dense(self, answer: AnsweredTexts) -> Values:
        """One vector a text, float32 ``[texts, dimension]``: of heads of the kind ``dense``."""
        raise NotImplementedError

    def sparse(self, answer: AnsweredTexts) -> list[Weights]:
        """Weights of each text, by index: of heads of the kind ``sparse``."""
        raise NotImplementedError

    def token_vectors(self, answer: AnsweredTexts) -> list[Values]:
        """Of each text float32 ``[tokens, dimension]``: of heads of the kind ``tokens``."""
        raise NotImplementedError

    def ranking(self, answer: AnsweredTexts) -> Ranking:
        """Second texts by how well they answer the first: of heads of the kind ``RELEVANCE``."""
        raise NotImplementedError

    def count_filling(self, answer: AnsweredTexts) -> int:  # noqa: ARG002 - of heads
        """Numbers of ``outputs`` that are in no value: zeros behind the vectors of a text."""
        return 0

    def markable(self, labels: tuple[str, ...], asked: Sequence[str] = ()) -> tuple[str, ...]:  # noqa: ARG002
        """The labels that ``marks`` may find, of a model with these labels.

        ``asked`` are those that the endpoint names, all of which a model finds whose callers do.
        """
        return self.classes(labels)

    def marking(self, asked: Sequence[str]) -> dict[str, Any]:  # noqa: ARG002 - of heads
        """The parameters of a request that is to find the labels which the endpoint names."""
        return {}

    def marks(self, answer: AnsweredTexts, thresholds: Mapping[str, float]) -> list[list[Mark]]:
        """What each text has of these labels: of heads of the kind ``MARKED``.

        Args:
            answer: the values of all texts.
            thresholds: of labels among ``markable``, the least score of each.
        """
        raise NotImplementedError

    def ranges(self, values: Values) -> Values | None:  # noqa: ARG002 - of heads
        """What a package keeps of its vectors, float32 ``[2, width]``; None for nothing."""
        return None

    @abstractmethod
    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401
        """The result of the task's ``transformers`` pipeline, ready for JSON.

        Args:
            answer: the values of all texts.
            parameters: the pipeline's, those that the caller has set.
            one: whether one text was sent, and not a list of one.
        """

    @abstractmethod
    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """One prediction of KServe's first protocol for each text, ready for JSON."""

    @abstractmethod
    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The tensors that ``contracts.tasks.PUBLIC_OUTPUTS`` names: texts first, float32."""


def best_first(column: Values) -> tuple[Sequence[int], Values]:
    """Places of numbers from the largest to the least, equal ones in their order; and these."""
    order = np.argsort(-column, kind="stable")
    return order.tolist(), column[order]


def _tokens_of(tokens: Sequence[int], counts: Sequence[int]) -> list[int]:
    ends = list(accumulate(counts))
    return [sum(tokens[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def require_encoded(of: AnsweredTexts | Side) -> EncodedTexts:
    """The texts of an answer about tokens; raises ``ValueError`` if it came without them."""
    if of.encoded is None:
        raise ValueError("an answer about tokens needs its texts")
    return of.encoded

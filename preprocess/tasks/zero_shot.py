"""Zero-shot classification: which of the caller's own labels fit a text, by a model of entailment.

A text with N candidate labels is N pairs: the text, and a sentence made of each label. The scores
are those of ``transformers``' pipeline: by softmax over the logits of entailment of all labels or,
where each label is judged on its own, of entailment against contradiction.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.errors import ParameterError
from preprocess.scores import best_labels, class_scores, top_k
from preprocess.tasks.classification import TextClassification
from preprocess.tasks.head import AnsweredTexts, Difference, Output, SecondText, Side, Values

ENTAILED = "entail"  # how the label of entailment begins, in any case
_CONTRADICTED = ("contra", "not_entail", "not entail")
_TEMPLATE = "This example is {}."
_PLACE = "{}"
_LABELS, _TEMPLATES = "parameters.candidate_labels", "parameters.hypothesis_template"
_MOST_TEMPLATE = 64 * 1024  # characters
_SHOWN = 80  # characters of what is repeated in a refusal
# Of all sentences of a request together. A model of 512 tokens reads half a million of 64 labels.
MOST_CHARACTERS = 1024 * 1024


class ZeroShotClassification(TextClassification):
    """Values are float32 ``[texts * candidate labels, the model's labels]`` logits.

    What is recorded and compared is of each pair, by the model's own labels: candidate labels are
    the callers' words, which no event holds.
    """

    task: ClassVar[Task] = Task.ZERO_SHOT_CLASSIFICATION
    second_text: ClassVar[SecondText] = SecondText.REQUIRED
    makes_second_text: ClassVar[bool] = True
    parameters: ClassVar[frozenset[str]] = frozenset(
        {"candidate_labels", "hypothesis_template", "multi_label"}
    )
    everywhere: ClassVar[frozenset[str]] = parameters
    probabilities: ClassVar[bool] = False
    kinds: ClassVar[frozenset[str]] = frozenset()
    hub_nests: ClassVar[bool] = False

    def rows_of_text(self, parameters: Mapping[str, Any]) -> int:
        """One for each candidate label."""
        labels: Sequence[str] = parameters.get("candidate_labels", ())
        if not labels:
            raise ParameterError(_LABELS, "no label was sent, so that there is none to choose")
        template: str = parameters.get("hypothesis_template", _TEMPLATE)
        if len(template) > _MOST_TEMPLATE:  # to look for the place in more would take long
            raise ParameterError(
                _TEMPLATES, f"it has {len(template)} characters; at most {_MOST_TEMPLATE} are taken"
            )
        if template.count(_PLACE) != 1:
            raise ParameterError(
                _TEMPLATES,
                f"it needs {_PLACE} once, where the label goes; got {template[:_SHOWN]!r}",
            )
        return len(labels)

    def rows(
        self, texts: list[str], pairs: list[str] | None, parameters: Mapping[str, Any]
    ) -> tuple[list[str], list[str] | None]:
        """Each text with the sentence of each label.

        Raises:
            ParameterError: labels that can't be chosen among, sentences that are too long
                together, or pairs.
        """
        if pairs is not None:
            raise ParameterError(
                "text_pair", f"{self.task} makes the second texts of candidate_labels"
            )
        labels: Sequence[str] = parameters["candidate_labels"]
        template: str = parameters.get("hypothesis_template", _TEMPLATE)
        check_labels(labels, _LABELS)
        _check_sentences(labels, template)
        sentences = [template.replace(_PLACE, label) for label in labels]
        # A text is the same object in all its rows, by which the encoder knows it again.
        return [text for text in texts for _ in sentences], sentences * len(texts)

    def _values(self, output: Values, *, multi_label: bool) -> Values:  # noqa: ARG002 - logits
        return output

    def measured(self, values: Values) -> Values:
        """Probabilities of the model's own labels."""
        return class_scores(values, multi_label=False)

    def records(
        self, encoded: EncodedTexts, values: Values, labels: tuple[str, ...]
    ) -> list[TextRecord]:
        """The model's best label of each pair, and its score."""
        return super().records(encoded, self.measured(values), labels)

    def difference(self, ours: Side, theirs: Side) -> Difference:
        """Of each pair: equal best labels of the model, and the total variation of its scores."""
        sides = (
            side._replace(values=self.measured(side.values), multi_label=False)
            for side in (ours, theirs)
        )
        return super().difference(*sides)

    def functions(self, classes: int, *, multi_label: bool) -> tuple[str, ...]:  # noqa: ARG002
        """None."""
        return ()

    def pipeline(self, answer: AnsweredTexts, parameters: Mapping[str, Any], *, one: bool) -> Any:  # noqa: ANN401, ARG002
        """``{"label", "score"}`` of each candidate label, best first, as the Hub's clients read it.

        The parameters are the answer's.
        """
        found = [
            [{"label": label, "score": score} for label, score in ranked]
            for ranked in top_k(_scores(answer), answer.parameters["candidate_labels"])
        ]
        return found[0] if one else found

    def predictions(self, answer: AnsweredTexts) -> list[Any]:
        """``{"labels", "scores"}``, best first."""
        return [
            {"labels": [label for label, _ in ranked], "scores": [score for _, score in ranked]}
            for ranked in top_k(_scores(answer), answer.parameters["candidate_labels"])
        ]

    def outputs(self, answer: AnsweredTexts) -> dict[str, Output]:
        """The best candidate label, its score, and the scores of all in the order they came in."""
        scores = _scores(answer)
        labels, highest = best_labels(scores, answer.parameters["candidate_labels"])
        return {"LABEL": labels, "SCORE": np.array(highest, np.float32), "SCORES": scores}


def check_labels(labels: Sequence[str], place: str) -> None:
    """Refuses labels that can't be told apart; raises ``ParameterError``.

    ``place`` is where the request has them.
    """
    seen: set[str] = set()
    for index, label in enumerate(labels):
        if not label.strip():
            raise ParameterError(f"{place}[{index}]", "the label is empty")
        if label in seen:
            raise ParameterError(f"{place}[{index}]", f"{label[:_SHOWN]!r} is there twice")
        seen.add(label)


def _check_sentences(labels: Sequence[str], template: str) -> None:
    of_template, of_labels = len(template) * len(labels), sum(map(len, labels))
    if of_template + of_labels > MOST_CHARACTERS:
        raise ParameterError(
            _TEMPLATES if of_template > of_labels else _LABELS,
            f"the sentences of {len(labels)} labels would have {of_template + of_labels} "
            f"characters together; at most {MOST_CHARACTERS} are made",
        )


def _scores(answer: AnsweredTexts) -> Values:
    """Float32 ``[texts, candidate labels]`` probabilities."""
    count = len(answer.parameters["candidate_labels"])
    entailed, contradicted = _columns(answer.labels)
    alone = answer.parameters.get("multi_label", False) or count == 1
    if alone:
        both = answer.values[:, [contradicted, entailed]]
        return class_scores(both, multi_label=False)[:, 1].reshape(-1, count)
    return class_scores(answer.values[:, entailed].reshape(-1, count), multi_label=False)


def _columns(labels: Sequence[str]) -> tuple[int, int]:
    """The columns of entailment and of contradiction.

    Contradiction is the label that is called so. Where none is, it is the first one, or the last
    one if the first is entailment, as in the pipeline.
    """
    names = [label.lower() for label in labels]
    entailed = next(at for at, name in enumerate(names) if name.startswith(ENTAILED))
    contradicted = (at for at, name in enumerate(names) if name.startswith(_CONTRADICTED))
    return entailed, next(contradicted, len(names) - 1 if entailed == 0 else 0)

"""Each task has one head, whose outputs are those that callers are told of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tiny_models import VOCABULARY, tokenizer

from contracts.manifest import SpanSpec, TokenizerSpec
from contracts.tasks import ENGINE_OUTPUT, PUBLIC_OUTPUTS, Task
from preprocess.encoder import EncodedTexts
from preprocess.scores import sigmoid
from preprocess.tasks import HEADS, SecondText
from preprocess.tasks.generation import FINISHES, values_of
from preprocess.tasks.head import Side
from preprocess.tasks.ranking import rank_logits

_finite = st.floats(-30, 30, width=32)
logits = hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(1)), elements=_finite)


@dataclass(frozen=True)
class Values:
    """An answer of two texts."""

    values: NDArray[np.float32]
    encoded: EncodedTexts | None = None
    labels: tuple[str, ...] = ("contradiction", "entailment")
    multi_label: bool = False
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"candidate_labels": ["yes"]})
    ranges: NDArray[np.float32] | None = None


def tiny() -> tuple[bytes, TokenizerSpec]:
    spans = SpanSpec(widest=1, most_labels=2)
    spec = TokenizerSpec(max_tokens=16, pad_id=0, unk_id=1, vocabulary=VOCABULARY, spans=spans)
    return tokenizer().to_str().encode(), spec


BATCHED = [task for task in Task if not HEADS[task].generates]


@pytest.mark.parametrize("task", BATCHED)
def test_every_task_has_a_head_and_gives_the_outputs_that_it_declares(task: Task) -> None:
    head = HEADS[task]
    assert head.task is task
    assert task in ENGINE_OUTPUT
    pairs = ["no", "yes"] if head.second_text is SecondText.REQUIRED else None
    encoded = head.encoder(*tiny()).encode(["yes", "no"], pairs)
    tokens = encoded.tokens
    shape = (2, max(tokens), 2) if head.rank > 2 else (2, 2)
    values = head.values(np.ones(shape, np.float32), width=2)
    answer = Values(np.concatenate(head.parts(values, tokens, [1] * len(tokens))), encoded)
    assert len(answer.values) == sum(head.sizes(tokens))
    made = head.outputs(answer)
    assert list(made) == [spec.name for spec in PUBLIC_OUTPUTS[task]]
    for spec in PUBLIC_OUTPUTS[task]:
        assert np.ndim(made[spec.name]) == len(spec.shape)
    assert len(head.predictions(answer)) == 2
    assert len(head.records(encoded, answer.values, answer.labels)) == 2


@given(logits)
def test_a_ranking_keeps_every_text_once_and_equal_ones_in_order(
    values: NDArray[np.float32],
) -> None:
    order, scores, sorted_logits = rank_logits(values)
    assert sorted(order) == list(range(len(values)))
    assert sorted_logits == sorted(values[:, 0].tolist(), reverse=True)
    assert scores == sigmoid(np.array(sorted_logits, np.float32)).tolist()
    for before, after in pairwise(order):
        assert (values[before, 0], -before) >= (values[after, 0], -after)


def test_logits_whose_probabilities_are_equal_are_still_ranked() -> None:
    values = np.array([[20.0], [25.0]], np.float32)
    order, scores, _ = rank_logits(values)
    assert (list(order), scores[0] == scores[1]) == ([1, 0], True)


def test_a_ranking_records_and_compares_probabilities() -> None:
    encoded = EncodedTexts([[1], [1]], None, [1, 1], [1, 1], [0, 0], [False, False])
    values = np.array([[0.0], [np.log(3.0)]], np.float32)
    head = HEADS[Task.TEXT_RANKING]
    records = head.records(encoded, values, ("yes",))
    assert [record.label for record in records] == ["yes", "yes"]
    assert [record.score for record in records] == pytest.approx([0.5, 0.75])
    others = np.array([[0.0], [-np.log(3.0)]], np.float32)
    apart = head.difference(Side(values, ("yes",)), Side(others, ("yes",)))
    assert (apart.equal, apart.labels) == ([True, True], ["yes", "yes"])
    np.testing.assert_allclose(apart.distance, [0, 0.5], atol=1e-6)
    np.testing.assert_allclose(apart.scores, [0.5, 0.75], atol=1e-6)


def test_a_classifier_of_one_label_is_as_far_apart_as_its_probabilities() -> None:
    head = HEADS[Task.TEXT_CLASSIFICATION]
    ours, theirs = (np.array([[score]], np.float32) for score in (0.9, 0.4))
    apart = head.difference(Side(ours, ("spam",)), Side(theirs, ("spam",)))
    np.testing.assert_allclose(apart.distance, [0.5], atol=1e-6)


def test_a_written_text_records_its_tokens_and_why_it_ended() -> None:
    encoded = EncodedTexts([[1, 2]], None, [2], [1], [0], [False])
    head = HEADS[Task.TEXT_GENERATION]
    (record,) = head.records(encoded, values_of([7, 8, 9], "stop"), FINISHES)
    assert (record.tokens, record.generated, record.label) == (2, 3, "stop")
    (record,) = head.records(encoded, values_of([7], None), FINISHES)
    assert (record.generated, record.label) == (1, None)


@pytest.mark.parametrize(
    ("other", "distance"), [([1, 2, 3, 4], 0), ([1, 2, 9, 4], 0.5), ([1, 2], 0.5), ([9], 1)]
)
def test_written_texts_are_apart_from_the_first_token_that_differs(
    other: list[int], distance: float
) -> None:
    ours, theirs = values_of([1, 2, 3, 4], "length"), values_of(other, "stop")
    for one, another in ((ours, theirs), (theirs, ours)):
        apart = HEADS[Task.TEXT_GENERATION].difference(Side(one, FINISHES), Side(another, FINISHES))
        assert apart.distance.tolist() == [distance]
        assert apart.equal == [distance == 0]
    assert apart.labels == ["stop"]


@given(
    scores=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 5), st.just(3)), elements=st.floats(0, 1, width=32)
    ),
    thresholds=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.floats(2**-7, 1, width=32), min_size=1
    ),
)
def test_a_text_has_each_label_whose_score_reaches_its_own_threshold(
    scores: NDArray[np.float32], thresholds: dict[str, float]
) -> None:
    answer = Values(scores, labels=("a", "b", "c"))
    marks = HEADS[Task.TEXT_CLASSIFICATION].marks(answer, thresholds)
    found = [{mark.label: mark.score for mark in each} for each in marks]
    rows = [dict(zip("abc", row, strict=True)) for row in scores.tolist()]
    assert found == [
        {label: score for label, score in row.items() if score >= thresholds.get(label, 2)}
        for row in rows
    ]


def test_a_threshold_is_compared_as_the_float32_that_a_score_is() -> None:
    answer = Values(np.array([[0.7], [0.6999]], np.float32), labels=("a",))
    marks = HEADS[Task.TEXT_CLASSIFICATION].marks(answer, {"a": 0.7})
    assert [len(each) for each in marks] == [1, 0]

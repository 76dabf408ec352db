"""A record says what is known of a text, and of its answer if there was one."""

import numpy as np
import pytest

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.observe import answered, unanswered

TWO = EncodedTexts(
    ids=[[2, 7, 3], [2, 1, 8, 3]],
    type_ids=None,
    tokens=[3, 4],
    words=[1, 2],
    unk=[0, 1],
    truncated=[False, True],
)


def test_a_classifiers_record_holds_the_best_label_and_its_score() -> None:
    scores = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32)
    records = answered(TWO, Task.TEXT_CLASSIFICATION, scores, ("bad", "good"))
    assert records == [
        TextRecord(3, 1, 0, False, label="good", score=0.75),
        TextRecord(4, 2, 1, True, label="bad", score=0.5),
    ]
    assert type(records[0].score) is float


def test_an_embeddings_record_holds_the_norm() -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32)
    assert answered(TWO, Task.TEXT_EMBEDDING, vectors) == [
        TextRecord(3, 1, 0, False, norm=5.0),
        TextRecord(4, 2, 1, True, norm=1.0),
    ]


def test_a_failed_attempt_has_no_answer() -> None:
    assert unanswered(TWO) == [TextRecord(3, 1, 0, False), TextRecord(4, 2, 1, True)]


def test_answers_must_be_as_many_as_texts() -> None:
    with pytest.raises(ValueError, match="1 rows of values do not go with 2 texts"):
        answered(TWO, Task.TEXT_EMBEDDING, np.zeros((1, 2), np.float32))

"""Labels of a pyfunc, by what its metadata names and what it answers."""

import numpy as np
import pytest

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.tables.pyfunc import learnt_labels
from registry.pyfunc.process import Answers


@pytest.mark.parametrize(
    ("answers", "named", "stable", "task", "labels"),
    [
        (Answers(None, ("b", "a", "b")), (), (), None, ("a", "b")),
        (Answers(None, ("b",)), (), ("a", "b"), None, ("a", "b")),
        (Answers(None, ("b", "c")), (), ("a", "b"), None, ("b", "c")),
        (Answers(np.array([[1.0], [0.0]])), (), (), None, ()),
        (Answers(np.array([[1.0], [0.0]])), (), (), Task.TABULAR_CLASSIFICATION, ("0", "1")),
        (Answers(np.array([[1.0, 2.0]])), (), (), Task.TABULAR_CLASSIFICATION, ()),
        (Answers(np.array([[1.0, 2.0]])), ("n", "y"), (), None, ("n", "y")),
        (Answers(np.array([[1.0]])), ("0", "1"), (), None, ("0", "1")),
    ],
)
def test_labels_are_those_that_are_named_or_answered(
    answers: Answers,
    named: tuple[str, ...],
    stable: tuple[str, ...],
    task: Task | None,
    labels: tuple[str, ...],
) -> None:
    assert learnt_labels(named, answers, stable, task) == labels


@pytest.mark.parametrize(
    ("answers", "named", "reason"),
    [
        (Answers(None, ("yes", "yes")), (), "name its labels"),
        (Answers(None, tuple(map(str, range(101)))), (), "101 different labels"),
        (Answers(np.ones((2, 3))), ("no", "yes"), "2 labels, and it answers 3 numbers"),
    ],
)
def test_labels_that_are_not_known_are_asked_for(
    answers: Answers, named: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(VersionError, match=reason):
        learnt_labels(named, answers, (), None)

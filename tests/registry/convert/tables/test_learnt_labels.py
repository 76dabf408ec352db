"""Labels of a pyfunc, by what its metadata names and what it answers."""

import numpy as np
import pytest

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.tables.pyfunc import learnt_labels
from registry.pyfunc.process import PyfuncAnswers


@pytest.mark.parametrize(
    ("answers", "named", "stable", "task", "labels"),
    [
        (PyfuncAnswers(None, ("b", "a", "b")), (), (), None, ("a", "b")),
        (PyfuncAnswers(None, ("b",)), (), ("a", "b"), None, ("a", "b")),
        (PyfuncAnswers(None, ("b", "c")), (), ("a", "b"), None, ("b", "c")),
        (PyfuncAnswers(np.array([[1.0], [0.0]])), (), (), None, ()),
        (PyfuncAnswers(np.array([[1.0], [0.0]])), (), (), Task.TABULAR_CLASSIFICATION, ("0", "1")),
        (PyfuncAnswers(np.array([[1.0, 2.0]])), (), (), Task.TABULAR_CLASSIFICATION, ()),
        (PyfuncAnswers(np.array([[1.0, 2.0]])), ("n", "y"), (), None, ("n", "y")),
        (PyfuncAnswers(np.array([[1.0]])), ("0", "1"), (), None, ("0", "1")),
    ],
)
def test_labels_are_those_that_are_named_or_answered(
    answers: PyfuncAnswers,
    named: tuple[str, ...],
    stable: tuple[str, ...],
    task: Task | None,
    labels: tuple[str, ...],
) -> None:
    assert learnt_labels(named, answers, stable, task) == labels


@pytest.mark.parametrize(
    ("answers", "named", "reason"),
    [
        (PyfuncAnswers(None, ("yes", "yes")), (), "name its labels"),
        (PyfuncAnswers(None, ("yes", "\ud83d")), (), "half of a surrogate pair"),
        (PyfuncAnswers(None, tuple(map(str, range(101)))), (), "101 different labels"),
        (PyfuncAnswers(np.ones((2, 3))), ("no", "yes"), "2 labels, and it answers 3 numbers"),
    ],
)
def test_labels_that_are_not_known_are_asked_for(
    answers: PyfuncAnswers, named: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(VersionError, match=reason):
        learnt_labels(named, answers, (), None)

"""What a pyfunc may answer, and how the worker reads it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from registry.pyfunc.worker import rows_of


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([1, 2], [[1], [2]]),
        (np.array([1.5, 2.5]), [[1.5], [2.5]]),
        (np.array([[1.5, 2.0], [2.5, 3.0]]), [[1.5, 2.0], [2.5, 3.0]]),
        (pd.Series([1, 2], index=[7, 9]), [[1], [2]]),
        (pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}), [[1, 3], [2, 4]]),
        (np.array([1, 2.5], object), [[1], [2.5]]),
        (["a", "b"], [["a"], ["b"]]),
        (pd.Series(["a", "b"]), [["a"], ["b"]]),
        (pd.Series(["a", "b"], dtype="category"), [["a"], ["b"]]),
        ([True, False], [[True], [False]]),
    ],
)
def test_answers_become_a_row_each(found: Any, expected: list[list[Any]]) -> None:
    assert rows_of(found, 2).tolist() == expected


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([1], r"answered \(1,\) to 2 rows"),
        ([], "to 2 rows"),
        (3.0, "to 2 rows"),
        ({"a": [1, 2]}, "to 2 rows"),
        (np.ones((2, 2, 2)), "to 2 rows"),
        (None, "to 2 rows"),
        (np.array([1, 2], "datetime64[s]"), "values of datetime64"),
        ([1j, 2j], "values of complex"),
        ([b"a", b"b"], "values of"),
    ],
)
def test_what_is_no_answer_to_rows_is_said(found: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        rows_of(found, 2)

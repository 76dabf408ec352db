"""An answer in steps is the answer in one."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import long_json
from gateway.http.long_json import encode_answer, encode_long

_numbers = st.integers(0, 3).flatmap(
    lambda rank: st.lists(st.integers(0, 40), min_size=rank + 1, max_size=rank + 1)
)
arrays = _numbers.map(lambda shape: np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 3)
answers = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(width=32)
    | st.text(max_size=4)
    | arrays,
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(answers)
def test_it_has_the_same_bytes_in_steps(answer: Any) -> None:
    assert encode_long(answer) == encode_answer(answer)


def test_large_answers_have_the_same_bytes_in_steps() -> None:
    vectors = np.linspace(-1, 1, 300 * 400, dtype=np.float32).reshape(300, 400)
    tokens = [vectors[:7], vectors[7:300], vectors[:0]]
    labels = [[{"label": f"l{at}", "score": at / 3} for at in range(3000)] for _ in range(4)]
    data = [{"index": at, "embedding": row} for at, row in enumerate(vectors)]
    wide = np.arange(20_000, dtype=np.int8)
    for answer in (vectors, vectors.tolist(), tokens, labels, {"data": data, "of": "a"}, wide):
        assert encode_long(answer) == encode_answer(answer)
        assert msgspec.json.decode(encode_long(answer)) is not None


def test_no_step_is_of_more_numbers_than_a_step_has() -> None:
    answer = {"data": [{"embedding": row} for row in np.ones((50, 9000), np.float32)]}
    longest = max(map(len, long_json._parts(answer)))
    assert longest <= len(encode_answer(np.ones(9000, np.float32)))


_LONG = '例\n"' * (long_json._STEP_CHARACTERS // 2)


@pytest.mark.parametrize(
    "answer",
    [_LONG, {"id": _LONG, "a": 1}, [_LONG, 1, "b"], [{"text": _LONG}], [_LONG[:2000]] * 1000],
    ids=["text", "field", "element", "document", "many"],
)
def test_long_texts_have_the_same_bytes_in_steps(answer: Any) -> None:
    assert encode_long(answer) == encode_answer(answer)
    longest = max(map(len, long_json._parts(answer)))
    assert longest <= len(encode_answer(_LONG[: long_json._STEP_CHARACTERS])) + 4096


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(TypeError, match="no JSON"):
        encode_answer({"a": object()})

"""Half of a surrogate pair is found wherever JSON holds it."""

import sys

import pytest

from preprocess.surrogates import find_lone_surrogate

HALF = "\ud800"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (HALF, ""),
        (["a", "é", HALF], "[2]"),
        ({"inputs": [{"text": ["a"]}, {"text": ["a", HALF]}]}, ".inputs[1].text[1]"),
        ({"a": [1, None, 2.5], "b": {HALF: 1}}, ".b"),
        ({"a": {"b": {}}, "c": HALF}, ".c"),
        (["\U0001f600", {"a": ["é"]}, 3, None, True], None),
        ([], None),
    ],
)
def test_the_place_of_the_first_one_is_named(value: object, place: str | None) -> None:
    assert find_lone_surrogate(value) == place


def test_it_is_found_deeper_than_python_s_stack_goes() -> None:
    depth = 2 * sys.getrecursionlimit()
    nested: object = HALF
    for _ in range(depth):
        nested = [nested]
    assert find_lone_surrogate(nested) == "[0]" * depth

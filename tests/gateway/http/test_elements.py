"""What a body becomes is known before it does."""

import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.http.elements import elements, most_elements

_strings = st.text(st.sampled_from('a"\\[{,\n\U0001f600'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | _strings,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_strings, inner, max_size=5),
    max_leaves=40,
)


def things_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(things_of, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(things_of, value))
    return int(isinstance(value, str))


def commas_of(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0
    return max(0, len(inner) - 1) + sum(map(commas_of, inner))


@given(values, st.booleans())
@example(value=['\\" [', "\\", "{"], ascii_only=True)
def test_the_elements_of_json_are_counted_as_they_are(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert elements(body, len(body), len(body)) == (things_of(value), commas_of(value))
    most = most_elements(body)
    assert most.things >= things_of(value)
    assert most.commas >= commas_of(value)


@given(st.integers(65_500, 65_560), _strings.filter(bool))
def test_the_end_of_a_piece_may_be_anywhere(before: int, text: str) -> None:
    value = ["a" * before, text * 10, [text], {text: text}, "b" * 7 * before, text]
    body = msgspec.json.encode(value)
    most = most_elements(body)
    assert (most.things >= things_of(value), most.commas >= commas_of(value)) == (True, True)
    assert elements(body, len(body), len(body)) == (things_of(value), commas_of(value))


def test_backslashes_over_the_end_of_a_piece_escape_what_they_escape() -> None:
    for count in range(65_530, 65_540):
        value = ["\\" * 131_072, "x" * count, "\\" * 3, '"', "[", ["b"]]
        body = msgspec.json.encode(value)
        assert elements(body, len(body), len(body)) == (things_of(value), commas_of(value))


def test_nothing_is_counted_on_once_it_is_known_to_be_too_much() -> None:
    body = b"[" + b"[]," * 1_000_000 + b"[]]"
    assert 1000 < elements(body, 1000, len(body)).things < 30_000
    assert 1000 < elements(body, len(body), 1000).commas < 30_000
    assert most_elements(body) == (1_000_002, 1_000_000)

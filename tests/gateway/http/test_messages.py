"""What is wrong with a body is told, in work that does not grow with the body."""

import sys
from collections.abc import Callable
from types import FrameType

import msgspec
import pytest

from gateway.errors import BadRequestError, GatewayError, InvalidInputError
from gateway.http.messages import decode

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HALF = b'"b": "\\ud800"'


def _error_of(body: bytes) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        decode(_DECODER, body)
    return caught.value


def _python_calls(work: Callable[[], object]) -> int:
    """How many functions of Python are called, or resumed."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("unit", [b"0", b"[]", b'""', b'{"a": 0}', b'"\\ud83d\\ude00"'])
def test_a_body_that_is_no_text_is_not_searched_for_longer_the_larger_it_is(unit: bytes) -> None:
    calls = []
    for size in (1 << 12, 1 << 14, 1 << 18, 1 << 22):
        items = b",".join([unit] * (size // (len(unit) + 1) - 10))
        body = b'{"a": [' + items + b"], " + _HALF + b"}"
        calls.append(_python_calls(lambda body=body: _error_of(body)))  # type: ignore[misc]
    assert max(calls) < 10_000
    assert max(calls[1:]) < 200


@pytest.mark.parametrize("padding", [0, 5000])
def test_half_of_a_surrogate_pair_is_invalid_input_in_a_large_body_too(padding: int) -> None:
    for after in (0, padding):
        body = b'{"a": "%b", %b, "c": "%b"}' % (b"x" * padding, _HALF, b"x" * after)
        error = _error_of(body)
        assert isinstance(error, InvalidInputError)
        assert "half of a surrogate pair" in error.message
    error = _error_of(b'{"a": "%b", %b}' % (b"x" * padding, _HALF))
    assert isinstance(error, InvalidInputError)


def test_of_a_large_body_that_is_no_json_the_byte_is_told() -> None:
    error = _error_of(b'{"a": "%b", b}' % (b"x" * 5000))
    assert isinstance(error, BadRequestError)
    assert "byte 5010" in error.message

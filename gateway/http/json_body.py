"""JSON in and out for all dialects, and what to say of a body that is not what a route takes.

Bodies are decoded by msgspec into the dialects' structs. What does not fit the struct is a 400 that
names the field; only then is a second, slower look taken at a body that is no JSON.
"""

import json
from typing import TypeVar

import msgspec

from gateway.errors import BadRequestError, GatewayError, InvalidInputError

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_DIAGNOSIS_LIMIT = 256 * 1024  # bytes; of a larger body, what is wrong is said without the place


def encode(value: object) -> bytes:
    """Compact JSON, UTF-8."""
    return _encoder.encode(value)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The struct in a body.

    Raises:
        BadRequestError: not UTF-8, not JSON, or of another shape; names the field.
        InvalidInputError: a string holds half of a surrogate pair.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequestError(_field_first(str(error))) from None
    except RecursionError:
        raise BadRequestError("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnose(body, str(error)) from None


def _field_first(message: str) -> str:
    """``Expected `str`, got `int` - at `$.inputs[0]``` as ``inputs[0]: expected `str`, ...``."""
    what, separator, place = message.partition(" - at `$")
    if not separator:
        return f"{what}."
    name = place.rstrip("`").removeprefix(".").removesuffix("[...]") or "body"
    return f"{name}: {what[:1].lower()}{what[1:]}."


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number in it")


def _diagnose(body: bytes, message: str) -> GatewayError:
    """The second look at a body that msgspec could not read."""
    if not body.strip():
        return BadRequestError("The body is empty: expected a JSON object.")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        byte = body[error.start]
        return BadRequestError(f"The body is not UTF-8: byte {error.start} is {byte:#04x}.")
    place = None
    if len(body) <= _DIAGNOSIS_LIMIT:
        try:
            place = _lone_surrogate(json.loads(text, parse_constant=_refuse_constant), "")
        except (ValueError, RecursionError) as error:
            message = str(error)
    if place is None:
        return BadRequestError(f"The body is not JSON: {message}.")
    return InvalidInputError(
        f"{place.removeprefix('.') or 'body'}: half of a surrogate pair is no text; "
        "encode the character whole."
    )


def _lone_surrogate(value: object, place: str) -> str | None:
    """Where a string that is no text is first found, as ``.inputs[0]``; None if nowhere."""
    match value:
        case str():
            return place if any("\ud800" <= c <= "\udfff" for c in value) else None
        case list():
            children = ((item, f"{place}[{i}]") for i, item in enumerate(value))
        case dict():
            for key in value:
                if _lone_surrogate(key, place) is not None:
                    return place
            children = ((item, f"{place}.{key}") for key, item in value.items())
        case _:
            return None
    found = (_lone_surrogate(item, child) for item, child in children)
    return next((hit for hit in found if hit is not None), None)

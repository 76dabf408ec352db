"""Durations as people write them in an endpoint: ``24h``, ``90s``, ``1h30m``, ``500ms``."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PATTERN = r"^(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+$"
_WHOLE = re.compile(PATTERN)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")


def seconds(text: str) -> float:
    """Seconds of a duration as written.

    Raises:
        ValueError: it is none.

    >>> seconds("1h30m")
    5400.0
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError("a duration is written as 24h, 90s, 1h30m or 500ms")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    return round(total, 6)  # so that what is written reads back as the same float


def format_duration(value: float) -> str:
    """The duration as people write it, in the largest units that hold it exactly.

    >>> format_duration(5400.0)
    '1h30m'
    """
    milliseconds = round(value * 1000)
    pieces = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            pieces.append(f"{count}{unit}")
    return "".join(pieces) or "0s"


def humanise(value: float) -> str:
    """A duration in its two largest units, for people; below 0 it is ``0s``.

    >>> humanise(86399.0)
    '23h59m'
    """
    left = max(0, int(value))
    pieces: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or pieces:
            pieces.append(f"{count}{unit}" if count else "")
    return "".join(pieces[:2]) or "0s"


def _read(value: object) -> object:
    """A number is seconds already, and what else there is is left to pydantic."""
    return seconds(value) if isinstance(value, str) else value


Duration = Annotated[
    float,
    BeforeValidator(_read),
    PlainSerializer(format_duration, str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": PATTERN}),
    Field(ge=0, allow_inf_nan=False),
]

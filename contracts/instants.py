"""Moments as people read them in an endpoint's status: RFC 3339 in UTC, in Python unix seconds."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_WHOLE = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def unix_seconds(text: str) -> float:
    """The moment as written.

    Raises:
        ValueError: it is none.

    >>> unix_seconds("2026-11-28T18:39:42.5Z")
    1795891182.5
    """
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ValueError("a moment is written as 2026-11-28T18:39:42Z")
    day, fraction, zone = match.groups()
    begun = datetime.fromisoformat(day.upper() + zone.upper().replace("Z", "+00:00"))
    whole, part = (begun - _EPOCH) // timedelta(seconds=1), fraction or ""
    return float(f"{whole}{part}" if whole >= 0 else whole + Fraction(f"0{part}"))


def format_instant(value: float) -> str:
    """The moment as people read it, with every digit that reads back as the same float.

    >>> format_instant(1795891182.5)
    '2026-11-28T18:39:42.5Z'
    """
    whole, _, fraction = repr(float(value)).partition(".")
    if value < 0 or "e" in fraction or "e" in whole:
        exact = Decimal(repr(float(value)))
        whole = str(floor(exact))
        fraction = format(exact - floor(exact), "f").partition(".")[2]
    begun = (_EPOCH + timedelta(seconds=int(whole))).isoformat().removesuffix("+00:00")
    fraction = fraction.rstrip("0")
    return f"{begun}{'.' if fraction else ''}{fraction}Z"


def date_and_time(value: float) -> str:
    """The moment as tables and sentences have it, in UTC, without saying so.

    >>> date_and_time(1795891182.5)
    '2026-11-28 18:39:42'
    """
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _read(value: object) -> object:
    """A number is unix seconds already, and what else there is is left to pydantic."""
    return unix_seconds(value) if isinstance(value, str) else value


Instant = Annotated[
    float,
    BeforeValidator(_read),
    PlainSerializer(format_instant, str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
    Field(allow_inf_nan=False),
]

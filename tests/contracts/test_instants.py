"""Moments are written in RFC 3339, and read back as the same float."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from contracts.instants import Instant, format_instant, unix_seconds

INSTANTS = TypeAdapter(Instant)
# What Kubernetes' own check of the format takes.
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1795830782.867934, "2026-11-28T01:53:02.867934Z"),
        (1795830782, "2026-11-28T01:53:02Z"),
        (-0.5, "1969-12-31T23:59:59.5Z"),
    ],
)
def test_a_moment_is_written_as_people_read_it(seconds: float, text: str) -> None:
    assert INSTANTS.dump_json(seconds) == f'"{text}"'.encode()
    assert INSTANTS.validate_json(f'"{text}"') == seconds


@given(st.floats(0, 2**37))
def test_what_is_written_reads_back_as_the_same_float(seconds: float) -> None:
    text = format_instant(seconds)
    assert DATE_TIME.fullmatch(text)
    assert unix_seconds(text) == seconds


def test_other_zones_and_unix_seconds_are_read() -> None:
    for text in ("2026-11-28T02:53:02+01:00", "2026-11-28t01:53:02z", 1795830782):
        assert INSTANTS.validate_python(text) == 1795830782
    assert INSTANTS.dump_python(1795830782.5) == 1795830782.5


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-28", "2026-11-28T01:53:02", "2026-13-28T01:53:02Z"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        INSTANTS.validate_python(text)

"""Origins are read in the form that browsers send, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.origins import read_origins


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        ("*", ("*",)),
        (
            " https://a.example , http://localhost:3000,",
            ("https://a.example", "http://localhost:3000"),
        ),
        ("HTTPS://A.Example:443", ("https://a.example",)),
        ("http://[::1]:80,app://me", ("http://[::1]", "app://me")),
    ],
)
def test_origins_are_read_as_browsers_write_them(text: str, origins: tuple[str, ...]) -> None:
    assert read_origins(text) == origins


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "example.com",
        "https://",
        "https://a.example/",
        "https://a.example/path",
        "https://*.example",
        "https://a.example?x",
        "https://user@a.example",
        "https://a.example:99999",
        "https://a.example,*",
        "https://a example",
    ],
)
def test_what_no_browser_sends_as_an_origin_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"https://app\.example\.com"):
        read_origins(text)


@given(st.text())
def test_whatever_is_read_can_stand_in_a_header(text: str) -> None:
    try:
        origins = read_origins(text)
    except ValueError:
        return
    for origin in origins:
        assert origin.isascii()
        assert origin.isprintable()
        assert not set(origin) & set(" ,\"'<>")

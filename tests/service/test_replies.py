"""Replies that break off, which urllib takes for whole ones or raises no OSError for."""

import io
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_mlflow import FakeMlflow, serve

from service import replies


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeMlflow]:
    with serve(FakeMlflow(tmp_path)) as made:
        made.script = lambda path, query: (200 if path == "/there" else 404, b"0123456789")
        yield made


def test_a_whole_reply_is_read_and_copied(server: FakeMlflow) -> None:
    file = io.BytesIO()
    with urllib.request.urlopen(f"{server.uri}/there", timeout=30) as reply:
        replies.copy(reply, file)
    with urllib.request.urlopen(f"{server.uri}/there", timeout=30) as reply:
        assert replies.read(reply) == file.getvalue() == b"0123456789"


@pytest.mark.parametrize("missing", [1, 10])
def test_one_that_was_cut_short_is_an_os_error(server: FakeMlflow, missing: int) -> None:
    server.missing = missing
    with (
        urllib.request.urlopen(f"{server.uri}/there", timeout=30) as reply,
        pytest.raises(OSError, match="broke off"),
    ):
        replies.read(reply)
    with (
        urllib.request.urlopen(f"{server.uri}/there", timeout=30) as reply,
        pytest.raises(OSError, match=f"{missing} bytes are missing"),
    ):
        replies.copy(reply, io.BytesIO())


def test_what_a_refusal_said_is_text(server: FakeMlflow) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.uri}/nowhere", timeout=30)
    assert replies.refusal_text(refused.value, 4) == "0123"

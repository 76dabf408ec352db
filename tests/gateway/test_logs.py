"""Logs: one JSON object a line, with every field; lines for people on a terminal."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from gateway.logs import configure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_a_line_is_one_json_object_with_its_fields() -> None:
    stream = io.StringIO()
    configure("info", stream=stream)
    logging.getLogger("gateway.x").warning("it %s", "broke", extra={"request_id": "r1", "n": 3})
    entry = json.loads(stream.getvalue())
    assert entry["message"] == "it broke"
    assert (entry["level"], entry["logger"]) == ("warning", "gateway.x")
    assert (entry["request_id"], entry["n"]) == ("r1", 3)
    assert entry["time"].endswith("+00:00")


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure("info", stream=stream)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logging.getLogger("gateway.x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: bad\nvalue" in json.loads(line)["exception"]


def test_a_terminal_gets_lines_for_people() -> None:
    stream = Terminal()
    configure("info", stream=stream)
    logging.getLogger("gateway.x").info("started", extra={"port": 8080})
    assert stream.getvalue().endswith("INFO    started port=8080\n")


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure("warning", stream=stream)
    logging.getLogger("gateway.x").info("quiet")
    logging.getLogger("kafka").info("quiet")
    assert stream.getvalue() == ""

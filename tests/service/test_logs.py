"""Logs: one JSON object a line, with every field; lines for people on a terminal."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from service.logs import configure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root, kafka = logging.getLogger(), logging.getLogger("kafka")
    handlers, levels = root.handlers[:], (root.level, kafka.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    kafka.setLevel(levels[1])


def test_a_record_is_one_line_of_json_with_its_extra_fields() -> None:
    stream = io.StringIO()
    configure("loader", "info", stream=stream)
    logging.getLogger("a.b").warning("two\nlines %s", "x", extra={"reason": "why", "n": 3})
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["message"] == "two\nlines x"
    assert (told["level"], told["service"], told["logger"]) == ("warning", "loader", "a.b")
    assert (told["reason"], told["n"]) == ("why", 3)
    assert told["time"].endswith("+00:00")


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure("loader", "info", stream=stream)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logging.getLogger("a.b").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: bad\nvalue" in json.loads(line)["exception"]


def test_a_terminal_gets_lines_for_people_where_that_is_asked_for() -> None:
    stream = Terminal()
    configure("gateway", "info", "auto", stream=stream)
    logging.getLogger("a.b").info("started", extra={"port": 8080})
    assert stream.getvalue().endswith("INFO    started port=8080\n")


def test_json_is_json_on_a_terminal_too() -> None:
    stream = Terminal()
    configure("gateway", "info", stream=stream)
    logging.getLogger("a.b").info("started")
    assert json.loads(stream.getvalue())["message"] == "started"


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure("gateway", "warning", stream=stream)
    logging.getLogger("a.b").info("quiet")
    assert stream.getvalue() == ""


def test_quiet_libraries_speak_up_only_when_something_is_wrong() -> None:
    stream = io.StringIO()
    configure("gateway", "info", quiet=["kafka"], stream=stream)
    logging.getLogger("kafka").info("one more connection")
    logging.getLogger("kafka").warning("wrong")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "wrong"

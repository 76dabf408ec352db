"""One JSON object a line."""

import json
import logging
import sys

from service.logs import JsonFormatter


def test_a_record_is_one_line_with_its_extra_fields() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "f", 1, "two\nlines %s", ("x",), None)
    record.reason = "why"
    line = JsonFormatter("loader").format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "two\nlines x"
    assert (told["level"], told["service"], told["logger"]) == ("warning", "loader", "a.b")
    assert told["reason"] == "why"


def test_an_exception_is_told_in_the_same_line() -> None:
    try:
        raise ValueError("a cause")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "broke", (), sys.exc_info())
    told = json.loads(JsonFormatter("loader").format(record))
    assert "a cause" in told["exception"]

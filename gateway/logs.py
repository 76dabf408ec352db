"""Logs: one JSON object a line on standard error, or readable lines on a terminal.

``main.py`` calls ``configure`` once. Whoever logs passes fields as ``extra``; the fields of the
attempt at hand (request id, trace id) among them where there is one.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

Style = Literal["auto", "json", "terminal"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its extra fields; an exception as one field."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


class TerminalFormatter(logging.Formatter):
    """Time, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it where there is one."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname:<7} {record.getMessage()} {fields}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(level: str, style: Style = "auto", stream: TextIO | None = None) -> None:
    """Sends all logs of the process to one stream.

    Args:
        level: the least level that is written.
        style: ``auto`` is readable on a terminal, JSON anywhere else.
        stream: standard error unless given.
    """
    stream = stream or sys.stderr
    readable = style == "terminal" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TerminalFormatter() if readable else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries speak up when something is wrong, not about every connection.
    for name in ("kafka", "grpc", "uvicorn", "asyncio", "fsspec"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))

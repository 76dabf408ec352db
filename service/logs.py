"""Logs on standard error: one JSON object a line, or readable lines on a terminal.

Each service's main calls ``configure`` once. What is passed as ``extra`` becomes fields of the
line. From which level on the libraries may speak is said only here.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

Style = Literal["auto", "json", "terminal"]

# From which level on a library's own words are written; all others from the level that is asked
# for. A level above this one holds for them too.
LIBRARIES: Mapping[str, int] = {
    # At info a line for each refresh of its metadata, every five seconds; above, a line for each of
    # its own attempts, many a second while Kafka is down. What comes of them our loops tell once.
    "kafka": logging.CRITICAL,
    # A traceback with the whole answer that it could not read, which may hold credentials.
    "botocore.credentials": logging.CRITICAL,
    # A word about every connection or request.
    "asyncio": logging.WARNING,
    "fsspec": logging.WARNING,
    "grpc": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    # Of each pattern that its tool for graphs does not find.
    "onnxruntime.transformers": logging.ERROR,
    # At warning a line for each request that is no HTTP, or asks for another protocol: as many as
    # strangers like. Each is answered with what is wrong.
    "uvicorn": logging.ERROR,
}

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "color_message"
}  # fmt: skip


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """Time, level, service, logger, message, and whatever else the record carries."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


class TerminalFormatter(logging.Formatter):
    """Time, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname:<7} {record.getMessage()} {fields}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(
    service: str,
    level: str,
    style: Style = "json",
    *,
    stream: TextIO | None = None,
) -> None:
    """Sends every logger of this process to one stream, the libraries' from ``LIBRARIES`` on.

    Args:
        service: its name in JSON.
        level: the least level that is written.
        style: ``auto`` is readable on a terminal, JSON anywhere else.
        stream: standard error unless given.

    Raises:
        ValueError: no such level.
    """
    stream = stream or sys.stderr
    readable = style == "terminal" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TerminalFormatter() if readable else JsonFormatter(service))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in LIBRARIES.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))

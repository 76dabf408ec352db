"""What an HTTP server replies, whole or not at all.

``urllib`` raises no OSError if a server dies in the middle of its reply, and takes a file that
was cut short for a whole one. What asks MLflow or Triton over HTTP asks and reads by these
functions: each fault is an OSError. They repeat nothing.
"""

import functools
from http.client import HTTPException, HTTPResponse
from ssl import SSLContext
from typing import Any, BinaryIO, cast
from urllib.error import HTTPError
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener

from service.timed_answers import LEAST_BYTES, TimedResponse, time_answers

_CHUNK_BYTES = 1024 * 1024
_timed: Any = functools.cache(time_answers)


def ask(
    request: Request | str, timeout_seconds: float, trust: SSLContext | None = None
) -> HTTPResponse:
    """Asks; the reply is to be closed.

    Args:
        request: to ``http`` or ``https``, an address that an operator chose.
        timeout_seconds: for the whole reply, or for so much of it that it goes on.
        trust: whose certificates count; None: those that count for all of the process.

    Raises:
        HTTPError: an OSError: it answered with another status than 2xx.
        OSError: no answer.
    """
    try:
        opened = build_opener(_TimedHandler(context=trust)).open(request, timeout=timeout_seconds)
    except HTTPException as error:
        raise _broken_off(error) from error
    reply = cast("TimedResponse", opened)
    reply.time.allow(timeout_seconds, LEAST_BYTES)
    return reply


def read(reply: HTTPResponse, most: int | None = None) -> bytes:
    """The body, or the first ``most`` bytes of it.

    Raises:
        OSError: it broke off.
    """
    try:
        return reply.read(most)
    except HTTPException as error:
        raise _broken_off(error) from error


def copy(reply: HTTPResponse, file: BinaryIO) -> None:
    """Writes the body to a file, in pieces.

    Raises:
        OSError: it broke off, or the file can't be written.
    """
    try:
        while piece := reply.read(_CHUNK_BYTES):
            file.write(piece)
    except HTTPException as error:
        raise _broken_off(error) from error
    if reply.length:
        raise _broken_off(f"{reply.length} bytes are missing")


def refusal_text(error: HTTPError, most: int) -> str:
    """The first bytes of what a server said with its refusal, as text; empty if it broke off."""
    with error:
        try:
            return error.read(most).decode(errors="replace")
        except (OSError, HTTPException):
            return ""


class _TimedHandler(HTTPSHandler, HTTPHandler):
    def do_open(self, http_class: Any, req: Request, **options: Any) -> HTTPResponse:  # noqa: ANN401 - urllib's
        return super().do_open(_timed(http_class), req, **options)


def _broken_off(why: object) -> OSError:
    return ConnectionError(f"the reply broke off: {why!r}")

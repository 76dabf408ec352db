"""What an HTTP server replies, whole or not at all.

``urllib`` raises no OSError where a server dies in the middle of its reply, and takes a file that
was cut short for a whole one. What asks MLflow over HTTP reads by these functions. They open no
connection and set no deadline.
"""

from http.client import HTTPException, HTTPResponse
from typing import BinaryIO
from urllib.error import HTTPError

_CHUNK_BYTES = 1024 * 1024


def read(reply: HTTPResponse) -> bytes:
    """The body.

    Raises:
        OSError: it broke off.
    """
    try:
        return reply.read()
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


def said(error: HTTPError, most: int) -> str:
    """The first bytes of what a server said with its refusal, as text; empty where it broke off."""
    with error:
        try:
            return error.read(most).decode(errors="replace")
        except (OSError, HTTPException):
            return ""


def _broken_off(why: object) -> OSError:
    return ConnectionError(f"the reply broke off: {why!r}")

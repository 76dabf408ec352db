"""Recognises a plain POST without a parser.

Only a plain form is accepted that every parser reads alike. Unusual characters, repeated headers,
transfer codings, connection options and a second request behind the first are left to the parser.
"""

import re
from typing import NamedTuple

_LONGEST_HEAD = 8192
_END = b"\r\n\r\n"
_VISIBLE = rb"[\x21-\x7e]+"
_HEAD = re.compile(
    rb"POST (/[A-Za-z0-9/._:~-]*) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]+: ?" + _VISIBLE + rb"(?: +" + _VISIBLE + rb")*\r\n)+)\Z"
)
_LENGTH = re.compile(rb"[1-9][0-9]{0,8}")
# These headers change how a message or a connection goes on, which only the parser handles.
_LEFT_ALONE = (b"transfer-encoding", b"expect", b"upgrade", b"proxy-connection", b"trailer")


class PlainPost(NamedTuple):
    """A POST. ``headers`` have lower-case names; ``body`` is as it was sent."""

    path: str
    headers: dict[bytes, bytes]
    body: bytes


class PlainHead(NamedTuple):
    """The headers of a plain POST. ``body`` and ``end``: where in its bytes the body lies."""

    path: str
    headers: dict[bytes, bytes]
    body: int
    end: int

    def post(self, data: bytes) -> PlainPost:
        """The request, of all its bytes."""
        return PlainPost(self.path, self.headers, data[self.body :])


def plain_head(data: bytes) -> PlainHead | None:
    """The headers if ``data`` begins with those of a plain POST and is not longer, else None."""
    if not data.startswith(b"POST /") or (end := data.find(_END, 0, _LONGEST_HEAD)) < 0:
        return None
    match = _HEAD.match(data[: end + 2])
    if match is None:
        return None
    path, lines = match.groups()
    headers = _headers(lines)
    if headers is None:
        return None
    body = end + len(_END)
    last = body + int(headers[b"content-length"])
    return PlainHead(path.decode("ascii"), headers, body, last) if len(data) <= last else None


def _headers(lines: bytes) -> dict[bytes, bytes] | None:
    """The headers by their lower-case names; None if one of them is out of the ordinary."""
    headers: dict[bytes, bytes] = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in headers or name in _LEFT_ALONE:
            return None
        headers[name] = value.lstrip()
    if _LENGTH.fullmatch(headers.get(b"content-length", b"")) is None or b"host" not in headers:
        return None
    keep_alive = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return headers if keep_alive else None

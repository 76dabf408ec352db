"""A POST that lies whole in one read, recognised without the parser: what a flood is made of.

Used while the gateway refuses: parsing by callbacks and making a scope cost more than the
refusal itself. This takes the plain form alone, which every parser reads alike, and leaves all
else to the parser: other characters, repeated headers, transfer codings, other connection options,
a body that is not there to its end, a second request behind it. It never decides anything.
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
# These say how a message or a connection goes on. The parser's business.
_LEFT_ALONE = (b"transfer-encoding", b"expect", b"upgrade", b"proxy-connection", b"trailer")


class Whole(NamedTuple):
    """What it asks. ``headers`` have lower-case names; ``body`` is as it was sent."""

    path: str
    headers: dict[bytes, bytes]
    body: bytes


def whole_post(data: bytes) -> Whole | None:
    """The request if ``data`` is one plain POST from its first byte to its last, else None."""
    if not data.startswith(b"POST /") or (end := data.find(_END, 0, _LONGEST_HEAD)) < 0:
        return None
    match = _HEAD.match(data[: end + 2])
    if match is None:
        return None
    path, lines = match.groups()
    headers = _headers(lines)
    if headers is None or len(data) != end + len(_END) + int(headers[b"content-length"]):
        return None
    return Whole(path.decode("ascii"), headers, data[end + len(_END) :])


def _headers(lines: bytes) -> dict[bytes, bytes] | None:
    """The headers by their lower-case names; None if one of them is out of the ordinary."""
    headers: dict[bytes, bytes] = {}
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in headers or name in _LEFT_ALONE:
            return None
        headers[name] = value.lstrip()
    if _LENGTH.fullmatch(headers.get(b"content-length", b"")) is None:
        return None
    keep_alive = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return headers if keep_alive else None

"""What is wrong with the head of a request that the parser has taken. Pure.

The parser bounds nothing, and takes a request of HTTP/1.1 that does not say whom it is for.
"""

from http import HTTPStatus
from typing import NamedTuple

from gateway.http.messages import Headers

_HOST = b"host"
_LINE_BYTES = len("  HTTP/1.1\r\n")  # beside method and URL
_FIELD_BYTES = len(": \r\n")  # beside name and value


class HeadFault(NamedTuple):
    """Why a head is refused."""

    status: HTTPStatus
    code: str
    message: str


def find_fault(
    method: bytes, url: bytes, version: str, headers: Headers, most_bytes: int
) -> HeadFault | None:
    """What is wrong with a head that is there whole; None if nothing is."""
    size, hosts = len(method) + len(url) + _LINE_BYTES + len("\r\n"), 0
    for name, value in headers:
        size += len(name) + len(value) + _FIELD_BYTES
        hosts += name == _HOST
    if size > most_bytes:
        return too_large(url, most_bytes)
    if hosts != 1 and version == "1.1":
        return HeadFault(
            HTTPStatus.BAD_REQUEST,
            "bad_request",
            f"A request of HTTP/1.1 has one Host header; this one has {hosts or 'none'}.",
        )
    return None


def too_large(url: bytes, most_bytes: int) -> HeadFault:
    """Of a head with more bytes than it may have: whether its URL has, or all else does."""
    if len(url) > most_bytes:
        status, code, what = HTTPStatus.REQUEST_URI_TOO_LONG, "uri_too_long", "The URL is longer"
    else:
        status, code, what = (
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            "The headers are larger",
        )
    return HeadFault(status, code, f"{what} than {most_bytes} bytes.")


def too_many(most: int) -> HeadFault:
    """Of a head with more headers than it may have."""
    return HeadFault(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "headers_too_large",
        f"The request has more than {most} headers.",
    )

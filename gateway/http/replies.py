"""How a reply and an error become status, headers and body."""

import math

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import (
    GatewayError,
    RateLimitedError,
    RequestTimeoutError,
    UnauthenticatedError,
)
from gateway.http.errors import MethodNotAllowedError
from gateway.http.json_body import encode
from gateway.http.messages import Reply
from gateway.http.router import ErrorForm

Headers = list[tuple[bytes, bytes]]


def headers_of(reply: Reply, request_id: str) -> Headers:
    """All headers of a reply."""
    return [
        (b"content-type", reply.content_type),
        (b"content-length", str(len(reply.body)).encode()),
        (b"x-request-id", request_id.encode()),
        *reply.headers,
    ]


def rendered(reply: Reply, request_id: str) -> bytes:
    """The whole answer as it goes over the wire, of a connection that stays open."""
    headers = headers_of(reply, request_id)
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[reply.status], *lines, b"\r\n", reply.body])


def error_reply(error: GatewayError, request_id: str, form: ErrorForm) -> Reply:
    """The error as its caller gets it."""
    headers: Headers = []
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_seconds))).encode()))
    if isinstance(error, MethodNotAllowedError):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if isinstance(error, UnauthenticatedError):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, RequestTimeoutError) or (
        isinstance(error, RateLimitedError) and error.elsewhere
    ):
        headers.append((b"connection", b"close"))
    detail: dict[str, object] = {"code": error.code, "message": error.message}
    if form is ErrorForm.SENTENCE:
        detail = {"error": error.message, "code": error.code, "request_id": request_id}
    else:
        detail = {"error": {**detail, "request_id": request_id}}
    return Reply(encode(detail), status=error.status, headers=headers)

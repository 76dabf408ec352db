"""How a reply and an error become status, headers and body."""

import math
from enum import StrEnum
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import (
    GatewayError,
    MethodNotAllowedError,
    RateLimitedError,
    RequestTimeoutError,
    UnauthenticatedError,
)
from gateway.http.json_body import encode
from gateway.http.messages import Reply

Headers = list[tuple[bytes, bytes]]


class ErrorForm(StrEnum):
    """How a route writes its errors.

    ``OBJECT`` is ``{"error": {"code", "message", "request_id"}}``. ``SENTENCE`` is the Open
    Inference Protocol's ``{"error": "<sentence>"}`` with ``code`` and ``request_id`` beside it:
    clients of that protocol, tritonclient among them, join the value of ``error`` to a string, so
    an object there turns every refusal into a ``TypeError`` on the caller's side.
    """

    OBJECT = "object"
    SENTENCE = "sentence"


_Code = Annotated[str, Field(description="stable, for programs")]
_Message = Annotated[str, Field(description="a sentence for people")]
_RequestId = Annotated[str, Field(description="as in x-request-id and in the log")]


class ErrorDetail(TypedDict):
    """What went wrong."""

    code: _Code
    message: _Message
    request_id: _RequestId


class Error(TypedDict):
    """An error of the form ``OBJECT``."""

    error: ErrorDetail


class OpenInferenceError(TypedDict):
    """An error of the form ``SENTENCE``."""

    error: _Message
    code: _Code
    request_id: _RequestId


ERRORS = {ErrorForm.OBJECT: Error, ErrorForm.SENTENCE: OpenInferenceError}


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
    said: Error | OpenInferenceError
    if form is ErrorForm.SENTENCE:
        said = {"error": error.message, "code": error.code, "request_id": request_id}
    else:
        said = {"error": {"code": error.code, "message": error.message, "request_id": request_id}}
    return Reply(encode(said), status=error.status, headers=headers)

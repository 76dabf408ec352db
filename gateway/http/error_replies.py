"""Errors as replies, in the form that each route's clients expect.

``OpenInferenceError`` and its like are the types that the OpenAPI document shows.
"""

import math
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.errors import (
    GatewayError,
    MethodNotAllowedError,
    OverloadedError,
    RateLimitedError,
    RequestTimeoutError,
    UnauthenticatedError,
)
from gateway.http.messages import Headers, Reply, encode


class ErrorForm(StrEnum):
    """How a route writes its errors.

    ``OBJECT`` is ``{"error": {"code", "message", "request_id"}}``. ``SENTENCE`` is the Open
    Inference Protocol's ``{"error": "<sentence>"}`` with ``code`` and ``request_id`` beside it:
    clients of that protocol, tritonclient among them, join the value of ``error`` to a string, so
    an object there turns every refusal into a ``TypeError`` on the caller's side. ``TEI`` is Text
    Embeddings Inference's ``{"error", "error_type"}``, with the same two beside it.
    """

    OBJECT = "object"
    SENTENCE = "sentence"
    TEI = "tei"


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


class TeiError(OpenInferenceError):
    """An error of the form ``TEI``."""

    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation"]


ERRORS = {
    ErrorForm.OBJECT: Error,
    ErrorForm.SENTENCE: OpenInferenceError,
    ErrorForm.TEI: TeiError,
}


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
    body: Error | OpenInferenceError | TeiError
    if form is ErrorForm.OBJECT:
        body = {"error": {"code": error.code, "message": error.message, "request_id": request_id}}
    else:
        body = {"error": error.message, "code": error.code, "request_id": request_id}
        if form is ErrorForm.TEI:
            body = {**body, "error_type": _tei_type(error)}
    return Reply(encode(body), status=error.status, headers=headers)


def _tei_type(error: GatewayError) -> Literal["Unhealthy", "Backend", "Overloaded", "Validation"]:
    """The type that Text Embeddings Inference would give an error of this status."""
    if isinstance(error, RateLimitedError | OverloadedError):
        return "Overloaded"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "Unhealthy"
    return "Backend" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "Validation"

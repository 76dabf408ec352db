"""Errors as replies, in the form that each route's clients expect.

``OpenInferenceError`` and its like are the types that the OpenAPI document shows.
"""

import math
import re
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.errors import (
    BadRequestError,
    GatewayError,
    InvalidInputError,
    MethodNotAllowedError,
    OverloadedError,
    RateLimitedError,
    RequestTimeoutError,
    UnauthenticatedError,
    UnknownEndpointError,
)
from gateway.http.messages import Headers, Reply, encode


class ErrorForm(StrEnum):
    """How a route writes its errors.

    ``OBJECT`` is ``{"error": {"code", "message", "request_id"}}``. ``SENTENCE`` is the Open
    Inference Protocol's ``{"error": "<sentence>"}`` with ``code`` and ``request_id`` beside it:
    clients of that protocol, tritonclient among them, join the value of ``error`` to a string, so
    an object there turns every refusal into a ``TypeError`` on the caller's side. ``TEI`` is Text
    Embeddings Inference's ``{"error", "error_type"}``, with the same two beside it. ``OPENAI`` is
    ``OBJECT`` with OpenAI's ``type`` and ``param``; ``RERANK`` is ``OBJECT`` with the sentence as
    ``message`` and ``detail`` too, which Cohere's and Jina's clients read.
    """

    OBJECT = "object"
    SENTENCE = "sentence"
    TEI = "tei"
    OPENAI = "openai"
    RERANK = "rerank"


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


OpenAIType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "rate_limit_error",
    "server_error",
]


class OpenAIErrorDetail(ErrorDetail):
    """What went wrong, and which field of the request did, where it was one."""

    type: OpenAIType
    param: str | None


class OpenAIError(TypedDict):
    """An error of the form ``OPENAI``."""

    error: OpenAIErrorDetail


class RerankError(Error):
    """An error of the form ``RERANK``."""

    message: _Message
    detail: _Message


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
    ErrorForm.OPENAI: OpenAIError,
    ErrorForm.RERANK: RerankError,
}
_FIELD = re.compile(r"([A-Za-z_][\w.\[\]]*): ")  # at the head of a sentence about a field


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
    body: Error | OpenAIError | RerankError | OpenInferenceError | TeiError
    detail: ErrorDetail = {
        "code": error.code,
        "message": error.message,
        "request_id": request_id,
    }
    if form is ErrorForm.OBJECT:
        body = {"error": detail}
    elif form is ErrorForm.OPENAI:
        body = {"error": {**detail, "type": _openai_type(error), "param": _param(error)}}
    elif form is ErrorForm.RERANK:
        body = {"error": detail, "message": error.message, "detail": error.message}
    else:
        body = {"error": error.message, "code": error.code, "request_id": request_id}
        if form is ErrorForm.TEI:
            body = {**body, "error_type": _tei_type(error)}
    return Reply(encode(body), status=error.status, headers=headers)


_OPENAI_TYPES: dict[int, OpenAIType] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


def _openai_type(error: GatewayError) -> OpenAIType:
    server = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    usual: OpenAIType = "server_error" if server else "invalid_request_error"
    return _OPENAI_TYPES.get(error.status, usual)


def _param(error: GatewayError) -> str | None:
    """The field that an error is about."""
    if isinstance(error, UnknownEndpointError) and error.status == HTTPStatus.NOT_FOUND:
        return "model"
    if not isinstance(error, BadRequestError | InvalidInputError):
        return None
    found = _FIELD.match(error.message)
    return None if found is None else found[1]


def _tei_type(error: GatewayError) -> Literal["Unhealthy", "Backend", "Overloaded", "Validation"]:
    """The type that Text Embeddings Inference would give an error of this status."""
    if isinstance(error, RateLimitedError | OverloadedError):
        return "Overloaded"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "Unhealthy"
    return "Backend" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "Validation"

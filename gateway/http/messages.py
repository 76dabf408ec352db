"""What a route's handler takes and returns: requests, replies, their JSON.

Bodies are decoded by msgspec into the dialects' structs. A body that does not fit its struct is
refused with a 400 that names the field. A small body that is no JSON at all is read a second time,
by a slower parser that finds the place of the error. Nothing here reads a socket but through ASGI's
``receive``.
"""

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.calls import EndpointView
from gateway.errors import BadRequestError, GatewayError, InvalidInputError
from gateway.request_context import RequestContext
from preprocess.surrogates import find_lone_surrogate

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_HALF_A_PAIR = "half of a surrogate pair is no text; encode the character whole"
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_BYTE = re.compile(r"\(byte (\d+)\)")
_TWO_ESCAPES = 12  # bytes
# Bytes of a body that is read a second time, on the event loop: it takes some milliseconds at most.
# Of a larger one is told what msgspec says.
_DIAGNOSIS_LIMIT = 4 * 1024


def encode(value: object) -> bytes:
    """Compact JSON, UTF-8."""
    return _encoder.encode(value)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The struct in a body.

    Raises:
        BadRequestError: not UTF-8, not JSON, or of another shape; names the field.
        InvalidInputError: a string holds half of a surrogate pair.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as misfit:
        raise BadRequestError(field_first(str(misfit))) from None
    except RecursionError:
        raise BadRequestError("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _diagnose(body, str(error)) from None


def field_first(message: str) -> str:
    """What msgspec says of a misfit, with the field before the reason.

    ``Expected `str`, got `int` - at `$.inputs[0]``` as ``inputs[0]: expected `str`, ...``.
    """
    what, separator, place = message.partition(" - at `$")
    if not separator:
        return f"{what}."
    name = place.rstrip("`").removeprefix(".").removesuffix("[...]") or "body"
    return f"{name}: {what[:1].lower()}{what[1:]}."


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number in it")


def _diagnose(body: bytes, message: str) -> GatewayError:
    """The second look at a body that msgspec could not read."""
    if not body.strip():
        return BadRequestError("The body is empty: expected a JSON object.")
    try:
        text = body.decode()
    except UnicodeDecodeError as wrong:
        byte = body[wrong.start]
        return BadRequestError(f"The body is not UTF-8: byte {wrong.start} is {byte:#04x}.")
    if len(body) > _DIAGNOSIS_LIMIT:
        if _ends_in_half_a_pair(body, message):
            return InvalidInputError(f"body: {_HALF_A_PAIR} ({message}).")
        return BadRequestError(f"The body is not JSON: {message}.")
    place = None
    try:
        place = find_lone_surrogate(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        message = str(error)
    if place is None:
        return BadRequestError(f"The body is not JSON: {message}.")
    return InvalidInputError(f"{place.removeprefix('.') or 'body'}: {_HALF_A_PAIR}.")


def _ends_in_half_a_pair(body: bytes, message: str) -> bool:
    """Whether that is where msgspec has stopped, which has three messages for it."""
    place = _BYTE.search(message)
    end = len(body) if place is None else int(place[1])
    return _ESCAPED_HALF.search(body[max(0, end - _TWO_ESCAPES) : end + 1]) is not None


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"
BINARY = b"application/octet-stream"


@dataclass(slots=True)
class Request:
    """One HTTP request.

    ``params`` holds the path's parameters by name; ``headers`` has lower-case names, and of a
    repeated header the last value. ``body`` is None if it is still to be read by ``receive``.
    ``query``: of a request that did not arrive whole, what follows the path's question mark.
    ``entered``: the endpoint that the path names and the caller's name, once admission let it in.
    """

    method: str
    path: str
    params: dict[str, str]
    headers: dict[bytes, bytes]
    receive: Receive
    context: RequestContext
    body: bytes | None = None
    query: bytes = b""
    entered: tuple[EndpointView, str | None] | None = None

    def admitted(self) -> tuple[EndpointView, str | None]:
        """The endpoint that the path names, and the caller's name; None if keys are off.

        Raises:
            RuntimeError: the route does not say that it predicts for such an endpoint.
        """
        if self.entered is None:
            raise RuntimeError("admission was not asked about this request")
        return self.entered


@dataclass(slots=True)
class Reply:
    """Status, body and the headers beyond content-type, content-length and x-request-id."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


class Chunks(Protocol):
    """The body of an answer that comes in parts. ``status`` is what became of it, for metrics."""

    status: int

    def __aiter__(self) -> "Chunks":
        """Itself."""

    async def __anext__(self) -> bytes:
        """The next part, never empty."""

    def close(self) -> None:
        """Ends what makes the parts, if there are more to come."""


@dataclass(slots=True)
class StreamReply:
    """An answer with status 200 whose body is sent as it comes. It has to be closed."""

    chunks: Chunks
    content_type: bytes
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


Handler = Callable[[Request], Coroutine[Any, Any, Reply | StreamReply]]


Headers = list[tuple[bytes, bytes]]


def headers_of(reply: Reply, request_id: str) -> Headers:
    """All headers of a reply."""
    return [
        (b"content-type", reply.content_type),
        (b"content-length", str(len(reply.body)).encode()),
        (b"x-request-id", request_id.encode()),
        *reply.headers,
    ]


def stream_headers_of(reply: StreamReply, request_id: str) -> Headers:
    """All headers of an answer that comes in parts, but how it is framed."""
    return [
        (b"content-type", reply.content_type),
        (b"x-request-id", request_id.encode()),
        *reply.headers,
    ]


CHUNKED = (b"transfer-encoding", b"chunked")
LAST_CHUNK = b"0\r\n\r\n"


def chunk_of(part: bytes) -> bytes:
    """A part of a body in the chunked coding of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def head_of(status: int, headers: Headers) -> bytes:
    """Status line and headers of an answer, with the empty line after them.

    Raises:
        RuntimeError: a header's value holds a line break.
    """
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(headers) + 2:
        raise RuntimeError("a header's value holds a line break")
    return head


def rendered(reply: Reply, request_id: str) -> bytes:
    """The complete answer in bytes, for a connection that stays open."""
    return head_of(reply.status, headers_of(reply, request_id)) + reply.body

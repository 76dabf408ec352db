"""What a handler of a route takes and gives.

Nothing here reads or writes a socket but through ASGI's ``receive``.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from gateway.request_context import RequestContext

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = b"application/json"
BINARY = b"application/octet-stream"


@dataclass(slots=True)
class Request:
    """One HTTP request whose body is not read yet.

    ``params`` holds the path's parameters by name; ``headers`` has lower-case names, and of a
    repeated header the last value.
    """

    method: str
    path: str
    params: dict[str, str]
    headers: dict[bytes, bytes]
    receive: Receive
    context: RequestContext


@dataclass(slots=True)
class Reply:
    """Status, body and the headers beyond content-type, content-length and x-request-id."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


Handler = Callable[[Request], Awaitable[Reply]]

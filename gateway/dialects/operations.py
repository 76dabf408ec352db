"""The routes that are no dialect's.

``Listing``: ``GET /endpoints`` lists the endpoints that the caller's key is for.

``Operations``: liveness, readiness, metrics and documentation, on a port of their own that callers
never reach. They take no key, because probes and scrapers have none, and tell nothing about any
request.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import Task
from gateway.calls import EndpointView
from gateway.dialects.described import reading
from gateway.dialects.front import Front
from gateway.dialects.oip import versions
from gateway.errors import ForbiddenError, UnknownEndpointError
from gateway.http.messages import Reply, Request, encode
from gateway.http.router import Route
from gateway.request_context import RequestContext


class Endpoint(TypedDict):
    """The public description of an endpoint."""

    name: str
    task: Task
    ready: bool
    versions: Annotated[list[str], Field(description="stable first")]
    labels: list[str]
    dimension: Annotated[int | None, Field(description="of a vector")]
    max_tokens: Annotated[int, Field(description="of a text; longer ones are cut")]
    max_texts: Annotated[int, Field(description="of a request")]
    timeout_seconds: float
    metadata: dict[str, str]


class Endpoints(TypedDict):
    """All endpoints that the caller's key is for."""

    endpoints: list[Endpoint]


_ALL, _ONE = "/endpoints", "/endpoints/{endpoint}"
_READ_ALL = reading(_ALL, "Endpoints", "All endpoints", Endpoints)
_READ_ONE = reading(_ONE, "Endpoints", "One endpoint", Endpoint)


class Listing:
    """The routes."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> list[Route]:
        """What the application serves here."""
        return [
            Route("GET", _ALL, self.all, "listing", _READ_ALL),
            Route("GET", _ONE, self.one, "listing", _READ_ONE),
        ]

    async def all(self, request: Request) -> Reply:
        """Every endpoint that the caller's key is for."""
        views = allowed_views(self._front, request.context)
        listing: Endpoints = {"endpoints": [_describe(view) for view in views]}
        return Reply(encode(listing))

    async def one(self, request: Request) -> Reply:
        """One endpoint."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        return Reply(encode(_describe(view)))


def allowed_views(front: Front, context: RequestContext) -> list[EndpointView]:
    """The endpoints that the caller may ask; raises ``UnauthenticatedError``."""
    views: list[EndpointView] = []
    for name in front.endpoints.names():
        try:
            front.admission.authorise(context, name)
            views.append(front.endpoints.describe(name))
        except (ForbiddenError, UnknownEndpointError):
            continue  # not this caller's, or gone since the names were read
    return views


def _describe(view: EndpointView) -> Endpoint:
    return {
        "name": view.name,
        "task": view.task,
        "ready": view.ready,
        "versions": versions(view),
        "labels": list(view.labels),
        "dimension": view.dimension,
        "max_tokens": view.max_tokens,
        "max_texts": view.max_texts,
        "timeout_seconds": view.timeout_seconds,
        "metadata": view.metadata,
    }


class Live(TypedDict):
    """The process answers."""

    live: bool


class ReadyWithNotes(TypedDict):
    """Whether this gateway should get traffic, and notes for operators."""

    ready: bool
    notes: list[str]


class Operations:
    """The routes of the operations port."""

    def __init__(self, front: Front, documentation: Callable[[], tuple[bytes, bytes]]) -> None:
        self._front = front
        self._documentation = documentation

    def routes(self) -> list[Route]:
        """What the operations' application serves."""
        handlers = {
            "/livez": self.live,
            "/readyz": self.ready,
            "/metrics": self.metrics,
            "/openapi.json": self.openapi,
            "/docs": self.docs,
        }
        return [Route("GET", path, handle, "operations") for path, handle in handlers.items()]

    async def live(self, _: Request) -> Reply:
        """200 while the event loop turns."""
        alive: Live = {"live": True}
        return Reply(encode(alive))

    async def ready(self, _: Request) -> Reply:
        """200 while this gateway should get traffic, else 503; with notes for operators."""
        endpoints = self._front.endpoints
        ready = endpoints.ready
        body: ReadyWithNotes = {"ready": ready, "notes": list(endpoints.notes)}
        return Reply(encode(body), status=200 if ready else 503)

    async def metrics(self, request: Request) -> Reply:
        """Prometheus's text format, or OpenMetrics for those who ask for it, with traces in it."""
        openmetrics = b"application/openmetrics-text" in request.headers.get(b"accept", b"")
        pieces = []
        for piece in self._front.metrics.pieces(openmetrics=openmetrics):
            pieces.append(piece)
            await asyncio.sleep(0)  # requests go on meanwhile
        kind = OPENMETRICS if openmetrics else CONTENT_TYPE_LATEST
        return Reply(b"".join(pieces), content_type=kind.encode())

    async def openapi(self, _: Request) -> Reply:
        """The OpenAPI document."""
        return Reply(self._documentation()[0])

    async def docs(self, _: Request) -> Reply:
        """The documentation as one page that needs nothing from elsewhere."""
        return Reply(self._documentation()[1], content_type=b"text/html; charset=utf-8")

"""``GET /endpoints`` and ``/endpoints/{endpoint}``: what this gateway serves, and to whom."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import Task
from gateway.calls import EndpointView
from gateway.dialects.described import reading
from gateway.dialects.front import Front
from gateway.dialects.oip import versions
from gateway.errors import ForbiddenError, UnknownEndpointError
from gateway.http.json_body import encode
from gateway.http.messages import Reply, Request
from gateway.http.router import Route
from gateway.request_context import RequestContext


class Endpoint(TypedDict):
    """What a caller may know of an endpoint."""

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
    """The endpoints that the caller may ask.

    Raises:
        UnauthenticatedError: keys are on and the caller has none.
    """
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

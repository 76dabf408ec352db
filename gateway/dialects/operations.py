"""The routes that operators' programs ask: liveness, readiness, metrics and the documentation.

They take no key, for probes and scrapers have none; they tell nothing of any request.
"""

from collections.abc import Callable
from typing import Any

from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.dialects.described import probing
from gateway.dialects.front import Front
from gateway.http.json_body import encode
from gateway.http.messages import Handler, Reply, Request
from gateway.http.openapi import Operation
from gateway.http.router import Route


class Live(TypedDict):
    """The process answers."""

    live: bool


class ReadyWithNotes(TypedDict):
    """Whether this gateway should get traffic, and what an operator should know."""

    ready: bool
    notes: list[str]


_TAG = "Operations"


def _route(path: str, handle: Handler, operation: Operation) -> Route:
    return Route("GET", path, handle, "operations", operation)


class Operations:
    """The routes; ``describe`` must be called before the first request."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._documentation: Callable[[], tuple[bytes, bytes]] = lambda: (b"", b"")

    def describe(self, documentation: Callable[[], tuple[bytes, bytes]]) -> None:
        """Takes who makes the OpenAPI document of all routes, and the same as a page."""
        self._documentation = documentation

    def routes(self) -> list[Route]:
        """What the application serves here."""
        return [
            _route("/livez", self.live, probing(_TAG, "Alive", Live)),
            _route(
                "/readyz",
                self.ready,
                probing(_TAG, "Ready for traffic", ReadyWithNotes, unready=True),
            ),
            _route(
                "/metrics",
                self.metrics,
                probing(_TAG, "Prometheus metrics", None, response_class=PlainTextResponse),
            ),
            _route("/openapi.json", self.openapi, probing(_TAG, "This document", dict[str, Any])),
            _route(
                "/docs",
                self.docs,
                probing(_TAG, "This document for people", None, response_class=HTMLResponse),
            ),
        ]

    async def live(self, _: Request) -> Reply:
        """200 while the event loop turns."""
        alive: Live = {"live": True}
        return Reply(encode(alive))

    async def ready(self, _: Request) -> Reply:
        """200 while this gateway should get traffic, else 503; and what an operator should know."""
        endpoints = self._front.endpoints
        ready = endpoints.ready
        body: ReadyWithNotes = {"ready": ready, "notes": list(endpoints.notes)}
        return Reply(encode(body), status=200 if ready else 503)

    async def metrics(self, _: Request) -> Reply:
        """Prometheus's text format."""
        return Reply(self._front.metrics.render(), content_type=CONTENT_TYPE_LATEST.encode())

    async def openapi(self, _: Request) -> Reply:
        """The OpenAPI document."""
        return Reply(self._documentation()[0])

    async def docs(self, _: Request) -> Reply:
        """The documentation as one page that needs nothing from elsewhere."""
        return Reply(self._documentation()[1], content_type=b"text/html; charset=utf-8")

"""The routes that operators' programs ask: liveness, readiness, metrics and the documentation.

They take no key, for probes and scrapers have none; they tell nothing of any request.
"""

from prometheus_client import CONTENT_TYPE_LATEST

from gateway.dialects.front import Front
from gateway.http.json_body import encode
from gateway.http.messages import Reply, Request
from gateway.http.router import Route


class Operations:
    """The routes. ``document`` is the OpenAPI document, ``page`` the same for people."""

    def __init__(self, front: Front, document: bytes, page: bytes) -> None:
        self._front = front
        self._document = document
        self._page = page

    def routes(self) -> list[Route]:
        """What the application serves here."""
        return [
            Route("GET", "/livez", self.live, "operations"),
            Route("GET", "/readyz", self.ready, "operations"),
            Route("GET", "/metrics", self.metrics, "operations"),
            Route("GET", "/openapi.json", self.openapi, "operations"),
            Route("GET", "/docs", self.docs, "operations"),
        ]

    async def live(self, _: Request) -> Reply:
        """200 while the event loop turns."""
        return Reply(encode({"live": True}))

    async def ready(self, _: Request) -> Reply:
        """200 while this gateway should get traffic, else 503; and what an operator should know."""
        endpoints = self._front.endpoints
        ready = endpoints.ready
        body = {"ready": ready, "notes": list(endpoints.notes)}
        return Reply(encode(body), status=200 if ready else 503)

    async def metrics(self, _: Request) -> Reply:
        """Prometheus's text format."""
        return Reply(self._front.metrics.render(), content_type=CONTENT_TYPE_LATEST.encode())

    async def openapi(self, _: Request) -> Reply:
        """The OpenAPI document."""
        return Reply(self._document)

    async def docs(self, _: Request) -> Reply:
        """The documentation as one page that needs nothing from elsewhere."""
        return Reply(self._page, content_type=b"text/html; charset=utf-8")

"""The evaluate role over HTTP: ``/metrics``, ``/livez``, ``/readyz``, ``/counters.json``, the page.

Made by ``stats.evaluate_main``. Read-only; it holds no state of its own.
"""

from collections.abc import Iterable
from typing import Protocol

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response
from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector


class Evaluated(Protocol):
    """What is shown; ``stats.evaluate.Evaluator`` does."""

    def families(self) -> list[Family]:
        """All metrics as they are now."""
        ...

    def counters(self) -> dict[str, object]:
        """Where the counters stand, and between which offsets they counted."""
        ...

    def ready(self) -> bool:
        """Whether the past was read."""
        ...


class _Collector(Collector):
    def __init__(self, evaluated: Evaluated) -> None:
        self._evaluated = evaluated

    def collect(self) -> Iterable[Family]:
        return self._evaluated.families()


def application(evaluated: Evaluated, *routers: APIRouter) -> FastAPI:
    """The application, with the routes of the page in it."""
    registry = CollectorRegistry()
    for collector in (_Collector(evaluated), PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    app = FastAPI(title="Headrace statistics", docs_url=None, redoc_url=None, openapi_url=None)
    for router in routers:
        app.include_router(router)

    @app.get("/")
    def to_page() -> Response:
        return RedirectResponse("ui/")

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/counters.json")
    def counters() -> Response:
        return JSONResponse(evaluated.counters())

    @app.get("/livez")
    def livez() -> Response:
        return Response("alive\n", media_type="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        if evaluated.ready():
            return Response("ready\n", media_type="text/plain")
        return Response("the past is being read\n", 503, media_type="text/plain")

    return app

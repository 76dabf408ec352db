"""The evaluate role over HTTP: ``/metrics``, probes, what is counted, and the page.

Read-only; it holds no state of its own. The server would still answer if the thread that reads
Kafka had stopped, so the probes ask when that thread last did anything.
"""

from itertools import chain
from typing import Protocol

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from measures.counting import CountingStatus
from measures.losses import MessageLosses
from service import exposition


class EvaluationSource(Protocol):
    """What is shown; ``stats.evaluation.evaluator.Evaluator`` does."""

    def families(self) -> list[Family]:
        """All metrics as they are now."""
        ...

    def counters(self) -> dict[str, object]:
        """Where the counters stand, and between which offsets they counted."""
        ...

    def ready(self) -> bool:
        """Whether the past was read."""
        ...

    def counting(self) -> CountingStatus:
        """Whether all that gateways published is in the windows."""
        ...

    def losses(self) -> MessageLosses:
        """What gateways sent and is not in the log."""
        ...

    def stood_still_seconds(self) -> float:
        """How long ago the reading thread last did anything."""
        ...


STILL_SECONDS = 30.0
"""Without a look at Kafka for this time, what is shown is old."""
DEAD_SECONDS = 120.0
"""And for this time, the process will not go on by itself: every call of it has a deadline."""


def application(evaluated: EvaluationSource, *routers: APIRouter) -> FastAPI:
    """The application, with the routes of the page in it."""
    app = FastAPI(title="Headrace statistics", docs_url=None, redoc_url=None, openapi_url=None)
    for router in routers:
        app.include_router(router)

    @app.get("/")
    def to_page() -> Response:
        return RedirectResponse("ui/")

    @app.get("/metrics")
    def metrics() -> Response:
        process = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)
        families = chain(evaluated.families(), *(each.collect() for each in process))
        return Response(exposition.text(families), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.get("/counters.json")
    def counters() -> Response:
        return JSONResponse(evaluated.counters())

    @app.get("/counting.json")
    def counting() -> Response:
        found, lost = evaluated.counting(), evaluated.losses()
        return JSONResponse(
            {
                "state": found.state.value,
                "since": found.since,
                "messages": found.messages,
                "said": found.sentence(),
                "missing_messages": lost.messages,
                "lost_events": lost.events,
                "silent_gateways": lost.silent,
                "lost": lost.sentence(),
            }
        )

    app.include_router(_probes(evaluated))
    return app


def _probes(evaluated: EvaluationSource) -> APIRouter:
    probes = APIRouter()

    @probes.get("/livez")
    def livez() -> Response:
        seconds = evaluated.stood_still_seconds()
        if seconds > DEAD_SECONDS:
            return _text(f"the reading of windows has stood still for {seconds:.0f} s", 503)
        return _text("alive", 200)

    @probes.get("/readyz")
    def readyz() -> Response:
        if not evaluated.ready():
            return _text("the past is being read", 503)
        seconds = evaluated.stood_still_seconds()
        if seconds > STILL_SECONDS:
            return _text(f"the reading of windows has stood still for {seconds:.0f} s", 503)
        return _text(f"ready: {evaluated.counting().sentence()}", 200)

    return probes


def _text(sentence: str, status: int) -> Response:
    return Response(f"{sentence}\n", status, media_type="text/plain")

"""The routes of the page: ``/ui/``, its files, and ``/ui/view.json``. Read-only, no state.

The page may load nothing but itself: no inline script or style, no other origin, no frame around
it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from stats.evaluation.board import Board
from stats.ui.view import DEFAULT_SPAN, Links, ViewRequest, view

_MODULES = (
    "page", "live", "dom", "hover", "words", "charts", "frame", "detail", "tables", "rollout",
    "drift",
)  # fmt: skip
FILES: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in _MODULES},
}

HEADERS: Final = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}

FRESH_SECONDS = 1.0
MOST_KEPT = 32  # documents; each is of one endpoint and span

Endpoints = Callable[[], Sequence[ModelEndpoint]]
Whole = Callable[[ModelEndpoint], ModelEndpoint]  # gives an endpoint its whole status
Reports = Callable[[], Sequence[LoaderReport]]


class Documents:
    """The document as bytes, computed at most once a second for all that ask for the same."""

    def __init__(
        self,
        endpoints: Endpoints,
        board: Callable[[], Board],
        links: Links,
        clock: Callable[[], float] = time.time,
        *,
        reports: Reports = tuple,
        whole: Whole = lambda endpoint: endpoint,
    ) -> None:
        """Takes where the newest of everything is found, and unix seconds."""
        self._whole = whole
        self._reports = reports
        self._endpoints = endpoints
        self._board = board
        self._links = links
        self._clock = clock
        self._lock = threading.Lock()  # one at a time: it is all arithmetic
        self._kept: dict[ViewRequest, tuple[float, bytes]] = {}

    def document(self, asked: ViewRequest) -> bytes:
        """JSON, at most ``FRESH_SECONDS`` old."""
        with self._lock:
            now = self._clock()
            at, known = self._kept.get(asked, (0.0, b""))
            if known and 0 <= now - at < FRESH_SECONDS:
                return known
            made = msgspec.json.encode(
                view(
                    self._endpoints(),
                    self._board(),
                    self._links,
                    asked,
                    now,
                    reports=self._reports(),
                    whole=self._whole,
                )
            )
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[asked] = (now, made)
            return made


def router(
    endpoints: Endpoints,
    board: Callable[[], Board],
    links: Links,
    clock: Callable[[], float] = time.time,
    *,
    reports: Reports = tuple,
    whole: Whole = lambda endpoint: endpoint,
) -> APIRouter:
    """The routes, to be included in an application."""
    documents = Documents(endpoints, board, links, clock, reports=reports, whole=whole)
    files = {name: _file(name) for name in FILES}
    routes = APIRouter(include_in_schema=False)

    @routes.get("/ui")
    def to_page() -> Response:
        return RedirectResponse("ui/", headers=HEADERS)

    @routes.get("/ui/view.json")
    def view_json(
        endpoint: Annotated[str, Query(max_length=63)] = "",
        span: Annotated[str, Query(max_length=8)] = DEFAULT_SPAN,
    ) -> Response:
        body = documents.document(ViewRequest(endpoint, span))
        return Response(body, headers=HEADERS, media_type="application/json")

    @routes.get("/ui/{name:path}")
    def file(name: str) -> Response:
        name = name or "index.html"
        if name not in files:
            return Response("no such file\n", 404, HEADERS, "text/plain; charset=utf-8")
        return Response(files[name], headers=HEADERS, media_type=FILES[name])

    return routes


def _file(name: str) -> bytes:
    return resources.files("stats.ui").joinpath("page", name).read_bytes()

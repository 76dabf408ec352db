"""The gateway's HTTP front: a FastAPI application over all dialects, and one for operations.

``gateway.main`` builds them with ``create_app`` and ``create_operations`` and runs each on a port
of its own, under uvicorn with the options of ``gateway.http.server``. ``Application.answer`` takes
one request: it finds the route, asks admission about the caller if the route reads a body, calls
the route's handler, which is a method of a dialect, and sends the reply. Every error becomes a
response in the dialect's own format. A traceback never leaves the process.

Every route is registered with FastAPI, but POST requests, as all predictions are, bypass it:
``__call__`` passes them to ``answer``. FastAPI alone would take two thirds of the time that a
request may cost (``docs/decisions/0007-fastapi-and-the-hot-path.md``).
"""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version as package_version
from typing import Any

import fastapi
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from gateway.admission.byte_budget import ByteBudget
from gateway.admission.early_refusals import EarlyRefusals
from gateway.admission.rate_limits import FEEDBACK, UNNAMED
from gateway.admission.work_time import UNMEASURED_BYTES, measured
from gateway.batch_jobs.store import BatchStore
from gateway.dialects.completions import Completions
from gateway.dialects.feedback import FeedbackRoute
from gateway.dialects.front import Front
from gateway.dialects.guardrail import Guardrails
from gateway.dialects.huggingface import HuggingFace
from gateway.dialects.kserve_v1 import KServeV1
from gateway.dialects.oip_http import OpenInferenceHttp
from gateway.dialects.openai import OpenAI
from gateway.dialects.openai_batches import OpenAIBatches
from gateway.dialects.operations import Listing, Operations
from gateway.dialects.parameters import ignored_headers
from gateway.dialects.rerank import Rerank
from gateway.dialects.tei import TextEmbeddingsInference
from gateway.errors import (
    CLIENT_GONE_STATUS,
    ClientGoneError,
    GatewayError,
    RequestTimeoutError,
    ShuttingDownError,
    forget_frames,
    internal_error,
)
from gateway.http.body import BodyReader, HttpLimits
from gateway.http.error_replies import ErrorForm, error_reply
from gateway.http.messages import (
    Message,
    Reply,
    Request,
    StreamReply,
    encode,
    headers_of,
    stream_headers_of,
)
from gateway.http.openapi import RouteDescription, document, page
from gateway.http.origins import AllowedOrigins
from gateway.http.plain_post import PlainPost
from gateway.http.router import Route, Router
from gateway.http.server import BODY_TIMEOUT, CLIENT_GONE
from gateway.inference.feedback import FeedbackReceiver
from gateway.request_context import UNCOUNTED_BYTES, RequestContext, new_request_id

log = logging.getLogger(__name__)

_ENCODING = b"content-encoding"
# What a connection holds of a body that nobody reads: it stops at 64 KiB, after a read of as much.
_MOST_UNREAD_BYTES = 128 * 1024


class Application(fastapi.FastAPI):
    """The ASGI application.

    FastAPI's own ``/docs`` page loads scripts from another host, so the gateway serves its own.
    ``origins``: whose pages in browsers may ask; see ``gateway.http.origins``.
    """

    def __init__(
        self, routes: list[Route], front: Front, version: str, origins: Sequence[str] = ()
    ) -> None:
        super().__init__(
            title="Headrace gateway",
            version=version,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
        )
        self._paths = Router(routes)
        self._admission = front.admission
        self._metrics = front.metrics
        self.described = [
            RouteDescription(route.method, route.pattern, route.errors, route.operation)
            for route in routes
            if route.operation is not None
        ]
        methods = {route.method for route in routes}
        self._origins = AllowedOrigins(origins, methods) if origins else None
        self.early_refusals = EarlyRefusals(
            self._paths, front.admission, front.metrics, self._origins
        )
        for route in routes:
            self.add_api_route(
                route.pattern, self._answer_route, methods=[route.method], response_model=None
            )
        self.add_exception_handler(HTTPException, self._no_such_route)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of all routes but those that refuse every request."""
        if self.openapi_schema is None:
            self.openapi_schema = document(self.described, title=self.title, version=self.version)
        return self.openapi_schema

    @functools.cached_property
    def documentation(self) -> tuple[bytes, bytes]:
        """The document as JSON and as a page."""
        return encode(self.openapi()), page(self.openapi()).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry point: POST requests bypass FastAPI, all others pass through it."""
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "POST":
            await self.answer(scope, receive, send)
        elif method != "OPTIONS" or not await self._answer_preflight(scope, send):
            await super().__call__(scope, receive, send)

    async def _answer_preflight(self, scope: Scope, send: Send) -> bool:
        """Tells a browser whether a page may ask; False if that is not what was asked."""
        if self._origins is None:
            return False
        started = time.monotonic()
        reply = self._origins.preflight(dict(scope["headers"]))
        if reply is None:
            return False
        start = {"type": "http.response.start", "status": int(reply.status)}
        await send({**start, "headers": reply.headers})
        await send({"type": "http.response.body", "body": reply.body})
        self._metrics.request_finished("none", int(reply.status), time.monotonic() - started)
        return True

    async def _answer_route(self, _: fastapi.Request) -> fastapi.Response:
        return _OwnAnswer(self)

    async def _no_such_route(self, _: fastapi.Request, __: Exception) -> fastapi.Response:
        return _OwnAnswer(self)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request: with the reply of its route's handler, or with an error."""
        context = self._new_context()
        headers = dict(scope["headers"])
        request = Request(scope["method"], scope["path"], {}, headers, receive, context)
        request.query = scope.get("query_string", b"")
        try:
            route, reply = await self._handled(request)
            if self._origins is not None and reply is not None:
                self._origins.mark(request.method, headers, reply)
            if isinstance(reply, StreamReply):
                await self._streamed(route, reply, context, functools.partial(_stream, send))
            elif reply is not None:
                await _send(reply, context.request_id, send)
                self._count_finished(route, int(reply.status), context)
        finally:
            context.release()  # what the caller does not take is the connection's from now on

    async def answer_post(
        self,
        post: PlainPost,
        send: Callable[[Reply, str], None],
        stream: Callable[[StreamReply, str], Awaitable[None]],
    ) -> None:
        """Answers a request that has arrived whole; see ``gateway.http.server.PostHandler``."""
        context = self._new_context()
        request = Request("POST", post.path, {}, post.headers, _arrived, context, post.body)
        try:
            route, reply = await self._handled(request)
            if self._origins is not None and reply is not None:
                self._origins.mark("POST", post.headers, reply)
            if isinstance(reply, StreamReply):
                await self._streamed(route, reply, context, stream)
            elif reply is not None:
                send(reply, context.request_id)
                self._count_finished(route, int(reply.status), context)
        finally:
            context.release()

    async def _streamed(
        self,
        route: Route | None,
        reply: StreamReply,
        context: RequestContext,
        stream: Callable[[StreamReply, str], Awaitable[None]],
    ) -> None:
        """Sends an answer as it comes. Its making ends with it, or with its caller."""
        chunks = reply.chunks
        try:
            await stream(reply, context.request_id)
        except asyncio.CancelledError as cancelled:
            chunks.status = CLIENT_GONE_STATUS
            if cancelled.args != (CLIENT_GONE,):
                raise
        finally:
            chunks.close()
            self._count_finished(route, chunks.status, context)

    @property
    def held(self) -> ByteBudget:
        """What callers hold of memory."""
        return self._admission.held

    def _new_context(self) -> RequestContext:
        held = self._admission.held
        return RequestContext(new_request_id(), time.time(), time.monotonic(), held=held)

    async def _handled(self, request: Request) -> tuple[Route | None, Reply | StreamReply | None]:
        """The request's route and the reply to it: None for none, as the caller is gone."""
        context, path = request.context, request.path
        route: Route | None = None
        try:
            route, request.params = self._paths.find(request.method, path)
            context.read(request.headers)
            body = request.body
            if route.predicts or route.reads_body:
                context.held_bytes = _unread_bytes(request.headers) if body is None else len(body)
                if route.endpoint_in is None and route.predicts:
                    named = request.params["endpoint"], request.params.get("version")
                    request.entered = await self._admission.enter(context, *named)
                else:
                    self._admission.recognise(context, FEEDBACK if route.reads_body else UNNAMED)
                if body is None or len(body) > UNMEASURED_BYTES or _ENCODING in request.headers:
                    work = route.handle(request)
                    reply = await measured(work, context, self._admission.spend)
                else:
                    reply = await route.handle(request)
            else:
                reply = await route.handle(request)
            reply.headers += ignored_headers(context)
            if isinstance(reply, Reply) and (
                context.holding is not None or len(reply.body) > UNCOUNTED_BYTES
            ):
                context.hold(len(reply.body))
            return route, reply
        except GatewayError as error:
            known = error
        except ClientGoneError:
            self._admission.left(context)
            self._count_finished(route, CLIENT_GONE_STATUS, context)
            return route, None
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (CLIENT_GONE,):
                self._admission.left(context)
                self._count_finished(route, CLIENT_GONE_STATUS, context)
                return route, None
            known = _error_of_cancellation(cancelled)
        except Exception:
            log.exception("a bug: unexpected error", extra={"request_id": context.request_id})
            known = internal_error()
        self._admission.refused(context, known)
        forget_frames(known)
        return route, error_reply(known, context.request_id, _error_form(route, path))

    def _count_finished(self, route: Route | None, status: int, context: RequestContext) -> None:
        dialect = context.counted_as(route.dialect if route else "none")
        seconds = time.monotonic() - context.started
        self._metrics.request_finished(dialect, status, seconds)


class _OwnAnswer(fastapi.Response):
    """What FastAPI gets as a response; when it sends it, ``Application.answer`` answers."""

    def __init__(self, app: Application) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the handler and sends its reply."""
        await self._app.answer(scope, receive, send)


def _unread_bytes(headers: dict[bytes, bytes]) -> int:
    """What is held of a body that arrives while nobody reads it, at most."""
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        return min(int(length), _MOST_UNREAD_BYTES)
    return _MOST_UNREAD_BYTES if b"transfer-encoding" in headers else 0


async def _arrived() -> Message:
    raise RuntimeError("this request's body has arrived with it")


def _error_of_cancellation(cancelled: asyncio.CancelledError) -> GatewayError:
    if cancelled.args == (BODY_TIMEOUT,):
        return RequestTimeoutError("The body did not arrive in time.")
    return ShuttingDownError("This gateway is shutting down; try again.", retry_after_seconds=1)


async def _send(reply: Reply, request_id: str, send: Send) -> None:
    headers = headers_of(reply, request_id)
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _stream(send: Send, reply: StreamReply, request_id: str) -> None:
    headers = stream_headers_of(reply, request_id)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for part in reply.chunks:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _error_form(route: Route | None, path: str) -> ErrorForm:
    if route is not None:
        return route.errors
    return ErrorForm.SENTENCE if path.startswith("/v2") else ErrorForm.OBJECT


def create_app(
    front: Front,
    limits: HttpLimits | None = None,
    feedback: FeedbackReceiver | None = None,
    origins: Sequence[str] = (),
    batches: BatchStore | None = None,
) -> Application:
    """The callers' application, with all dialects; without feedback or batches if None."""
    bodies = BodyReader(limits or HttpLimits(), front.large)
    version = package_version("headrace")
    dialects = (
        HuggingFace(front, bodies),
        OpenInferenceHttp(front, bodies, version),
        KServeV1(front, bodies),
        OpenAI(front, bodies),
        OpenAIBatches(front, bodies, batches),
        Completions(front, bodies),
        Rerank(front, bodies),
        Guardrails(front, bodies),
        TextEmbeddingsInference(front, bodies),
        FeedbackRoute(front, bodies, feedback),
        Listing(front),
    )
    routes = [route for dialect in dialects for route in dialect.routes()]
    return Application(routes, front, version, origins)


def create_operations(front: Front, callers: Application) -> Application:
    """The application of the operations port; it documents the routes of ``callers``."""
    operations = Operations(front, lambda: callers.documentation)
    return Application(operations.routes(), front, callers.version)

"""A gateway and its callers in one process, and the processor time that the gateway takes.

The gateway is put together as ``gateway.main`` does it, with receipts and events; messages of
events are made and compressed, but sent nowhere. Callers' connections are real TCP connections over
the loopback device. In each turn every caller sends one request, and then the event loop runs until
all are answered: that is counted, the callers' own sending and reading is not.
"""

import asyncio
import gc
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from time import process_time, thread_time

import lz4.frame
import numpy as np
import uvicorn
from numpy.typing import NDArray

from bench import corpus, world
from bench.core.parts import Sampler
from contracts.endpoint import EndpointLimits
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController
from gateway.admission.keys import KeyRing
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.app import create_app
from gateway.dialects.front import Front, RequestMetrics
from gateway.engine.fleet import Fleet
from gateway.engine.protocol import Engine, Prompt, TokenStream, Work
from gateway.engine.triton import TritonEngine
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox
from gateway.events.publisher import EventSink, Publisher
from gateway.http.body import HttpLimits
from gateway.http.server import uvicorn_options
from gateway.inference.feedback import FeedbackReceiver
from gateway.inference.pipeline import Pipeline
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints
from gateway.main import HttpServer
from gateway.packages import StorePackages
from gateway.settings import Settings
from gateway.state.reconcile import Reconciler
from gateway.state.sources import open_sources
from gateway.telemetry.metrics import Metrics
from service import flags

TOKENS = 64  # a text
WIDTH = 2  # values a text
_TEXTS = 256
_GIGANTIC = 10_000_000
_LONG_SECONDS = 60.0
_STOP_SECONDS = 10.0
_MOST_REFUSED = 1000  # turns, after which something else is wrong than a busy machine
_ANSWER = 65536  # bytes that are read at once
# As a Python client sends them.
_HEADERS = (
    "Host: 127.0.0.1:8080\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\n"
    "Content-Type: application/json\r\n"
)


@dataclass(frozen=True)
class Load:
    """Callers that ask at once, and the texts of each of their requests."""

    callers: int
    texts: int

    @property
    def name(self) -> str:
        """For tables."""
        callers = "1 caller" if self.callers == 1 else f"{self.callers} callers"
        return f"{callers}, {'1 text' if self.texts == 1 else f'{self.texts} texts'}"


LOADS = (Load(32, 1), Load(1, 1), Load(4, 16))


@dataclass(frozen=True)
class Cost:
    """What one turn cost.

    ``seconds`` is processor time of all threads of the process, ``loop_seconds`` that of the event
    loop's thread.
    """

    seconds: float
    loop_seconds: float


class _RequestMeter:
    """The metrics of requests, which say when this many were answered."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.all_answered = asyncio.Event()
        self.awaited = 0
        self.bad = 0

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """See ``RequestMetrics``."""
        self._metrics.request_finished(dialect, status, seconds)
        self.bad += status != 200
        self.awaited -= 1
        if self.awaited == 0:
            self.all_answered.set()

    def pieces(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """See ``RequestMetrics``."""
        return self._metrics.pieces(openmetrics=openmetrics)

    def of_endpoint(self, endpoint: str) -> bytes:
        """See ``RequestMetrics``."""
        return self._metrics.of_endpoint(endpoint)


class _CountingEngine:
    """An engine, and the blocks of memory that were allocated when it got its last batch.

    They are counted only where that is asked for: it takes 17 % of the time of 16 texts' requests.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.blocks = 0
        self.counts = False

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """See ``Engine``."""
        if self.counts:
            self.blocks = sys.getallocatedblocks()
        return await self._engine.infer(work, timeout_seconds)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> TokenStream:
        """See ``Engine``."""
        return self._engine.generate(prompt, timeout_seconds)

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """See ``Engine``."""
        return await self._engine.ready(model, timeout_seconds)

    async def close(self) -> None:
        """See ``Engine``."""
        await self._engine.close()


class Echo:
    """Answers every model; ``width`` is the number of values a row gets."""

    def __init__(self, width: int) -> None:
        self._width = width

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:  # noqa: ARG002
        """Values in [-1, 1) from each row's tokens."""
        sums = next(iter(work.tensors.values())).sum(axis=1, dtype=np.int64)
        seed = sums[:, None] + np.arange(self._width)
        values: NDArray[np.float32] = ((seed * 7919) % 2003 / 1001.5 - 1).astype(np.float32)
        return values

    def generate(self, prompt: Prompt, timeout_seconds: float) -> TokenStream:
        """Writes nothing."""
        raise NotImplementedError

    async def ready(self, model: str, timeout_seconds: float) -> bool:  # noqa: ARG002
        """Always."""
        return True

    async def close(self) -> None:
        """Does nothing."""


class Nowhere:
    """A sink that compresses messages as Kafka's client does, and drops them."""

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """See ``EventSink``."""
        del sequence, key
        lz4.frame.compress(message)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self, timeout_seconds: float) -> None:
        """See ``EventSink``."""


class Core:
    """A gateway without an HTTP server; ``app`` is its application.

    ``requests`` are told of each answer; the metrics of ``metrics`` themselves where that is None.
    """

    def __init__(
        self,
        home: Path,
        engine: Engine,
        sink: EventSink,
        metrics: Metrics,
        requests: RequestMetrics | None = None,
    ) -> None:
        world.lay_out(
            home, EndpointLimits(max_tokens_in_flight=_GIGANTIC, timeout_seconds=_LONG_SECONDS)
        )
        (home / "reports").mkdir()
        settings = flags.parse(Settings, ["--home", str(home)], {}, program="bench.core")
        self.buffer = EventBuffer(capacity_records=200_000, wake_events=250)
        outbox = Outbox(self.buffer, gateway="gateway-of-bench-core")
        self.publisher = Publisher(self.buffer, outbox, sink)
        self._endpoints = ServedEndpoints()
        keys = KeyRing("")
        admission = AdmissionController(
            endpoints=self._endpoints,
            keys=keys,
            rates=RateLimits(keys.own_limit),
            budget=TokenBudget(_GIGANTIC),
            held=ByteBudget(settings.bytes_in_flight),
            recorder=self.buffer,
            metrics=metrics,
        )
        receipts = Receipts([b"k" * 32], 86400)
        pipeline = Pipeline(self._endpoints, admission, self.buffer, metrics, receipts=receipts)
        self._reconciler = Reconciler(
            sources=open_sources(settings, {}),
            packages=StorePackages(settings.packages_url, settings.cache_folder),
            fleet=Fleet(lambda _: engine, settings.batches_ahead),
            addresses=("one",),
            meter=metrics,
            serve=self._endpoints.serve,
        )
        self.limits = HttpLimits()
        front = Front(self._endpoints, admission, pipeline, requests or metrics)
        self.app = create_app(front, self.limits, FeedbackReceiver(receipts, self.buffer))
        _ = self.app.documentation

    def start(self) -> None:
        """Begins to read what is served. Call it in the event loop."""
        self._reconciler.start()

    @property
    def answers(self) -> bool:
        """Whether the endpoint is served."""
        return self._endpoints.ready and self._endpoints.describe(world.ENDPOINT).ready

    async def close(self) -> None:
        """Ends it."""
        await self._reconciler.close()


class Subject:
    """The gateway under its HTTP server.

    Without a ``triton`` (``host:port``) an echo in the process answers.
    """

    def __init__(self, home: Path, triton: str | None) -> None:
        metrics = Metrics()
        self._finished = _RequestMeter(metrics)
        self._engine = _CountingEngine(TritonEngine(triton) if triton else Echo(WIDTH))
        self._core = Core(home, self._engine, Nowhere(), metrics, self._finished)
        app = self._core.app
        config = uvicorn.Config(app, **uvicorn_options(self._core.limits, app.early_refusals, app))
        self._server = HttpServer(config)
        self._port = 0
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to serve."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        self._core.start()
        self._serving = asyncio.create_task(self._server.serve([listener]))
        while not (self._server.started and self._core.answers):  # noqa: ASYNC110 - three parts of it
            await asyncio.sleep(0.05)
        gc.collect()
        gc.freeze()

    async def stop(self) -> None:
        """Ends it."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        await self._core.close()
        self._core.publisher.close(_STOP_SECONDS)

    def callers(self, load: Load) -> "Callers":
        """Callers with connections of their own."""
        return Callers(self._port, load, self._finished, self._core.publisher)

    async def blocks_a_request(self, callers: "Callers", load: Load) -> float:
        """Blocks of memory that a request holds while its batch is at the engine."""
        before = sys.getallocatedblocks()
        self._engine.counts = True
        await callers.turn()
        self._engine.counts = False
        return (self._engine.blocks - before) / load.callers


class Callers:
    """Connections to a gateway, each with one request a turn."""

    def __init__(
        self, port: int, load: Load, finished: _RequestMeter, publisher: Publisher
    ) -> None:
        self._finished = finished
        self._publisher = publisher
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(load.callers)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
        texts = corpus.of_length(TOKENS, _TEXTS)
        bodies = corpus.bodies(texts, load.texts)
        self._requests = [request(body) for body in bodies]
        self._next = 0

    async def turn(self, sampler: Sampler | None = None) -> Cost:
        """Every caller asks once and is answered.

        A turn in which the gateway refuses anything, as the machine is too busy, is not counted but
        done again.
        """
        for _ in range(_MOST_REFUSED):
            cost = await self._turn(sampler)
            if not self._finished.bad:
                return cost
        raise RuntimeError("requests were not answered with 200")

    async def _turn(self, sampler: Sampler | None) -> Cost:
        finished = self._finished
        finished.bad = 0
        finished.awaited = len(self._sockets)
        finished.all_answered.clear()
        for each in self._sockets:
            each.send(self._requests[self._next])
            self._next = (self._next + 1) % len(self._requests)
        if sampler is not None:
            sampler.start()
        began, loop_began = process_time(), thread_time()
        await finished.all_answered.wait()
        await asyncio.sleep(0)  # the loop writes what is ready between two rounds
        self._publisher.step()
        cost = Cost(process_time() - began, thread_time() - loop_began)
        if sampler is not None:
            sampler.stop()
        for each in self._sockets:
            await _read(each)
        return cost

    def close(self) -> None:
        """Ends the connections."""
        for each in self._sockets:
            each.close()


async def _read(connection: socket.socket) -> bytes:
    while True:
        try:
            return connection.recv(_ANSWER)
        except BlockingIOError:
            await asyncio.sleep(0)


def request(body: str) -> bytes:
    """A whole POST for the endpoint, with the headers of a Python client."""
    content = body.encode()
    head = f"POST {world.PATH} HTTP/1.1\r\n{_HEADERS}Content-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def warm_up(callers: Sequence[Callers], turns: int) -> None:
    """Turns that are not counted: words are learned, costs of batches are known."""
    for _ in range(turns):
        for each in callers:
            await each.turn()

"""Both fronts over a fake predictor, on real sockets of 127.0.0.1, in a thread of their own."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from front_fakes import FakeKeys, FakeMetrics, FakePredictor, FakeRecorder, front_of

from gateway.app import create_app
from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.http.limits import HttpLimits
from gateway.http.server import uvicorn_options


@dataclass
class Served:
    """Where the fronts listen, and what is behind them."""

    predictor: FakePredictor = field(default_factory=FakePredictor.with_endpoints)
    keys: FakeKeys = field(default_factory=FakeKeys)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    limits: HttpLimits = field(default_factory=HttpLimits)
    port: int = 0
    grpc_port: int = 0

    @property
    def address(self) -> str:
        """Host and port of the HTTP front."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The HTTP front's root."""
        return f"http://{self.address}"

    @property
    def grpc_address(self) -> str:
        """Host and port of the gRPC front."""
        return f"127.0.0.1:{self.grpc_port}"


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Starts both fronts and stops them."""
    listener = socket.create_server(("127.0.0.1", 0))
    served.port = listener.getsockname()[1]
    ready = threading.Event()
    holder: list[uvicorn.Server] = []

    async def run() -> None:
        front = front_of(
            served.predictor, keys=served.keys, recorder=served.recorder, metrics=served.metrics
        )
        app = create_app(front, served.limits)
        config = uvicorn.Config(app, **uvicorn_options(served.limits, app.early_refusals))
        server = _TellingServer(config, ready)
        holder.append(server)
        rpc = create_server(OpenInferenceGrpc(front, "0"), served.limits)
        served.grpc_port = rpc.add_insecure_port("127.0.0.1:0")
        await rpc.start()
        await server.serve(sockets=[listener])
        await rpc.stop(grace=None)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="fronts")
    thread.start()
    if not ready.wait(60):
        raise TimeoutError("the fronts did not start")
    try:
        yield served
    finally:
        holder[0].should_exit = True
        holder[0].force_exit = True
        thread.join(20)
        listener.close()


class _TellingServer(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

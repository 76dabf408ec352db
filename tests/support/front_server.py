"""Both fronts over a fake predictor, on real sockets of 127.0.0.1, in a thread of their own."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from front_fakes import Behind
from loop_clocks import ShiftedLoop

from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.http.server import uvicorn_options


@dataclass
class Served(Behind):
    """What is behind the fronts, where they listen, and what has arrived over HTTP."""

    port: int = 0
    grpc_port: int = 0
    loop: ShiftedLoop = field(init=False)
    loop_factory: Callable[[], ShiftedLoop] = ShiftedLoop
    connections: int = 0  # that the server has accepted
    received_bytes: int = 0
    arrived: threading.Condition = field(default_factory=threading.Condition)

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

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns when a condition on what has arrived holds."""
        with self.arrived:
            assert self.arrived.wait_for(condition, 60)

    def pass_time(self, seconds: float) -> None:
        """Puts the clock of the server's connections forward; what is due by then is done."""
        done = threading.Event()

        def shift() -> None:
            self.loop.shift_seconds += seconds
            self.loop.call_later(0, done.set)  # behind all that is due

        self.loop.call_soon_threadsafe(shift)
        assert done.wait(60)


def _noting(served: Served, connection: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """The class of the server's connections, made to tell ``served`` what has arrived."""

    class Noting(connection):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            with served.arrived:
                served.connections += 1
                served.arrived.notify_all()
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            with served.arrived:
                served.received_bytes += len(data)
                served.arrived.notify_all()
            super().data_received(data)

    return Noting


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Starts both fronts and stops them."""
    listener = socket.create_server(("127.0.0.1", 0))
    served.port = listener.getsockname()[1]
    options: dict[str, Any] = uvicorn_options(served.limits, served.app.early_refusals, served.app)
    options["http"] = _noting(served, options["http"])
    server = uvicorn.Server(uvicorn.Config(served.app, **options))
    ready = threading.Event()

    async def run() -> None:
        rpc = create_server(OpenInferenceGrpc(served.front, "0"), served.limits)
        served.grpc_port = rpc.add_insecure_port("127.0.0.1:0")
        await rpc.start()
        ready.set()  # for HTTP, the socket takes connections already
        await server.serve(sockets=[listener])
        await rpc.stop(grace=None)

    def work() -> None:
        with asyncio.Runner(loop_factory=served.loop_factory) as runner:
            served.loop = runner.get_loop()  # type: ignore[assignment]
            runner.run(run())

    thread = threading.Thread(target=work, name="fronts")
    thread.start()
    if not ready.wait(60):
        raise TimeoutError("the fronts did not start")
    try:
        yield served
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        listener.close()

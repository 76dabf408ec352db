"""Both fronts over a fake predictor, on real sockets of 127.0.0.1, in a thread of their own."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from front_fakes import Behind

from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.http.server import uvicorn_options


@dataclass
class Served(Behind):
    """What is behind the fronts, and where they listen."""

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
    options = uvicorn_options(served.limits, served.app.early_refusals, served.app)
    server = uvicorn.Server(uvicorn.Config(served.app, **options))
    ready = threading.Event()

    async def run() -> None:
        rpc = create_server(OpenInferenceGrpc(served.front, "0"), served.limits)
        served.grpc_port = rpc.add_insecure_port("127.0.0.1:0")
        await rpc.start()
        ready.set()  # for HTTP, the socket takes connections already
        await server.serve(sockets=[listener])
        await rpc.stop(grace=None)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="fronts")
    thread.start()
    if not ready.wait(60):
        raise TimeoutError("the fronts did not start")
    try:
        yield served
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(20)
        listener.close()

"""The page on a real port, from a world that a test may change while it is looked at."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import uvicorn
from fastapi import FastAPI
from own_ports import own_ports
from ui_world import World

from stats.ui.app import router
from stats.ui.view import Links

LINKS = Links("http://127.0.0.1:8080", "http://127.0.0.1:5000")


@dataclass
class Served:
    """Where the page is, and what it shows."""

    url: str
    world: World


@contextlib.contextmanager
def serving(world: World, port: int | None = None) -> Iterator[Served]:
    """Serves a world until the block ends, on a port of its own or on one served before."""
    if port is None:
        (port,) = own_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        served = Served(f"http://127.0.0.1:{port}", world)
        app = FastAPI()
        app.include_router(
            # As new as the evaluate role's, which makes one every second.
            router(
                lambda: served.world.endpoints,
                lambda: replace(served.world.board, at=time.time()),
                LINKS,
            )
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)
        try:
            yield served
        finally:
            server.should_exit = True
            thread.join(30)

"""The applications that the servers run, each as ASGI and as RSGI, granian's own interface.

``ECHO`` reads a request and answers; ``GATEWAY`` is a gateway of ``bench.core.subject`` with an
echo in place of a Triton, made at the first request. ``python -P -m bench.servers.applications
APPLICATION SERVER PORT`` runs one under uvicorn: with the gateway's own connections (``own``),
which hand plain POSTs to the application past ASGI, or with uvicorn's.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Protocol

import uvicorn
import uvloop

from bench.core.departure import Nowhere
from bench.core.subject import WIDTH, Core
from gateway.engine.echo import EchoEngine
from gateway.http.body import HttpLimits
from gateway.http.exchanges import PostHandler
from gateway.http.messages import Reply, headers_of
from gateway.http.plain_post import PlainPost
from gateway.http.server import LoadShedder, uvicorn_options
from gateway.telemetry.metrics import Metrics

OWN = "own"
_BODY = b'[{"label":"positive","score":0.9876543}]'
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class Served(Protocol):
    """An application in all the forms in which servers call it."""

    async def ready(self) -> tuple[LoadShedder, PostHandler]:
        """What the gateway's own connections ask, once it answers."""
        ...

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """ASGI, without lifespan."""
        ...

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:  # noqa: ANN401 - granian's
        """RSGI."""
        ...


class _Never:
    """A shedder that refuses nothing."""

    active = draining = False

    def refusal(self, *_: object) -> None:
        """See ``LoadShedder``."""


class _Echo:
    """Answers each request with the same bytes."""

    async def ready(self) -> tuple[LoadShedder, PostHandler]:
        """See ``Served``."""
        return _Never(), self

    async def answer_post(
        self, post: PlainPost, send: Callable[[Reply, str], None], stream: object
    ) -> None:
        """See ``PostHandler``."""
        del post, stream
        send(Reply(_BODY), "one")

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """See ``Served``."""
        del scope
        while (await receive()).get("more_body"):
            pass
        length = str(len(_BODY)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:  # noqa: ANN401 - granian's
        """See ``Served``."""
        del scope
        await protocol()
        protocol.response_bytes(200, [("content-type", "application/json")], _BODY)


class _Gateway:
    """A gateway, whose events are made, compressed and dropped in a thread, as in production."""

    def __init__(self) -> None:
        self._core: Core | None = None
        self._lock = asyncio.Lock()

    async def _started(self) -> Core:
        async with self._lock:
            if self._core is None:
                home = Path(tempfile.mkdtemp(prefix="gateway-"))  # whoever starts it says where
                core = Core(home, EchoEngine(WIDTH), Nowhere(), Metrics())
                core.start()
                while not core.answers:  # noqa: ASYNC110 - three parts of it
                    await asyncio.sleep(0.05)
                core.publisher.start()
                self._core = core
        return self._core

    async def ready(self) -> tuple[LoadShedder, PostHandler]:
        """See ``Served``."""
        core = await self._started()
        return core.app.early_refusals, core.app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """See ``Served``."""
        core = self._core or await self._started()
        await core.app(scope, receive, send)

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:  # noqa: ANN401 - granian's
        """See ``Served``: a POST goes past ASGI, as with the gateway's own connections."""
        core = self._core or await self._started()
        if scope.method != "POST":
            protocol.response_empty(200, [])
            return
        headers = {name.encode(): value.encode() for name, value in scope.headers.items()}
        post = PlainPost(scope.path, headers, await protocol())

        def send(reply: Reply, request_id: str) -> None:
            told = [(a.decode(), b.decode()) for a, b in headers_of(reply, request_id)]
            protocol.response_bytes(int(reply.status), told, reply.body)

        await core.app.answer_post(post, send, _no_stream)


async def _no_stream(*_: object) -> None:
    """What is measured comes whole."""
    raise NotImplementedError


ECHO: Served = _Echo()
GATEWAY: Served = _Gateway()


async def _serve(application: str, server: str, port: int) -> None:
    served: Served = globals()[application]
    shedder, handler = await served.ready()
    options: dict[str, Any] = uvicorn_options(HttpLimits(), shedder, handler)
    if server != OWN:
        options["http"] = "httptools"
    # uvicorn's types take ASGI applications of typed messages.
    config = uvicorn.Config(served, host="127.0.0.1", port=port, interface="asgi3", **options)
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))

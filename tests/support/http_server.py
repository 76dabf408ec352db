"""HTTP servers on 127.0.0.1 that answer as a test says, each request in a thread of its own."""

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, unquote, urlsplit

from dripping import Drip


@dataclass(frozen=True)
class Request:
    """What was asked; of several values of one name in the query, the last one."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered: bytes and text as they are, a ``Drip`` as it comes, all else as JSON.

    ``missing`` bytes at the end never come.
    """

    status: int = 200
    body: object = b""
    missing: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[Request], Answer]

    def _respond(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        query = dict(parse_qsl(url.query))
        body = self.rfile.read(size)
        answer = type(self).answer(
            Request(self.command, unquote(url.path), query, dict(self.headers), body)
        )
        said = answer.body
        if isinstance(said, Drip):
            said.answer(self)
            return
        if not isinstance(said, bytes):
            said = (said if isinstance(said, str) else json.dumps(said)).encode()
        with contextlib.suppress(ConnectionError):  # whoever asked has ended meanwhile
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(said)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said[: len(said) - answer.missing])

    do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 - the base class calls them so

    def log_message(self, *_: object) -> None:
        """Says nothing: a test's output is its own."""


@contextlib.contextmanager
def http_server(
    answer: Callable[[Request], Answer], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serves on a free port, over TLS if it is given, until the block ends; gives the URL."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""A small HTTP server that answers as MLflow might, as a test says."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from registry.mlflow_rest import MlflowRest

Answer = Callable[[str, dict[str, str]], tuple[int, Any]]


@dataclass
class MlflowAnswers:
    """``answer`` makes status and body of a path and its query; all that came is noted."""

    answer: Answer = lambda path, query: (200, {})
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    posted: list[dict[str, str]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    authorizations: list[str | None] = field(default_factory=list)
    uri: str = ""
    missing: int = 0  # bytes at the end of each answer that never come, as of a server that died

    def rest(self, timeout: float = 5.0, authorization: str = "") -> MlflowRest:
        """A client of it."""
        return MlflowRest(self.uri, authorization=authorization, timeout_seconds=timeout)


@contextmanager
def serve() -> Iterator[MlflowAnswers]:
    """Serves on a free port until the block ends."""
    made = MlflowAnswers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            path = unquote(parts.path)
            made.asked.append((path, query))
            made.authorizations.append(self.headers["Authorization"])
            status, body = made.answer(path, query)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) - made.missing])

        def do_POST(self) -> None:
            made.posted.append(json.loads(self._body()))
            self.do_GET()

        def do_PUT(self) -> None:
            made.files[unquote(self.path)] = self._body()
            self.do_GET()

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"]))

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""What the status says of counting, by asking and not by whether a process lives."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.stack import counting

Serve = Callable[[int, str], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ThreadingHTTPServer] = []

    def begin(status: int, body: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def test_what_the_evaluate_role_found_is_told(serve: Serve) -> None:
    found = {"state": "stalled", "since": 5.0, "messages": 7, "said": "traffic is not counted"}
    assert counting.ask(serve(200, json.dumps(found))).document() == found


@pytest.mark.parametrize(("status", "body"), [(503, "{}"), (200, "no JSON"), (200, "{}")])
def test_an_answer_that_tells_nothing_is_no_peace(serve: Serve, status: int, body: str) -> None:
    told = counting.ask(serve(status, body))
    assert told.state == "unknown"
    assert told.said.startswith("the evaluate role does not say whether traffic is counted")


def test_nobody_answering_is_no_peace() -> None:
    assert counting.ask("http://127.0.0.1:1").state == "unknown"

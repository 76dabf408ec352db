"""What a probe says of a service that is well, unwell, or not there."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from headrace.stack import probes


@pytest.fixture
def served() -> Iterator[str]:
    """A server that answers with the status that the path names."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path[1:]))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "well", "unwell"), [(200, True, False), (503, False, True)])
async def test_an_answer_tells(served: str, status: int, well: bool, unwell: bool) -> None:
    ready, stuck = probes.http_ok(f"{served}/{status}"), probes.http_unwell(f"{served}/{status}")
    assert (await ready(), await stuck()) == (well, unwell)


async def test_who_does_not_answer_is_not_ready_and_says_nothing_of_others() -> None:
    nowhere = "http://127.0.0.1:9"
    ready, stuck = probes.http_ok(nowhere), probes.http_unwell(nowhere)
    assert (await ready(), await stuck()) == (False, False)

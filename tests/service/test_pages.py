"""Probes pass or say why not, and metrics are where Prometheus looks."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus

import pytest

from service.pages import Pages, serve


class Health:
    fault = ""

    def __call__(self) -> str:
        return self.fault


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def pages(health: Health) -> Iterator[Pages]:
    server = serve("127.0.0.1", 0, {"/readyz": health})
    yield server
    server.shutdown()
    server.server_close()


def get(pages: Pages, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{pages.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_probe_passes_and_fails_with_its_reason(pages: Pages, health: Health) -> None:
    assert get(pages, "/readyz") == (200, "ok\n")
    health.fault = "not yet"
    assert get(pages, "/readyz?verbose") == (503, "not yet\n")


def test_metrics_are_served_beside(pages: Pages) -> None:
    status, text = get(pages, "/metrics")
    assert status == 200
    assert "python_info" in text


def test_any_other_path_is_not_found(pages: Pages) -> None:
    assert get(pages, "/")[0] == 404


@contextmanager
def connected(pages: Pages) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", pages.port), timeout=60)) as connection:
        yield connection


def test_callers_that_never_ask_keep_no_probe_out_and_take_few_places(pages: Pages) -> None:
    with ExitStack() as held:
        silent = [held.enter_context(connected(pages)) for _ in range(100)]
        for connection in silent:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nx: ")  # and no more
        assert get(pages, "/readyz") == (200, "ok\n")
        # 32 places, one of which the probe had: all but the last 31 have lost theirs.
        for connection in silent[:-31]:
            assert connection.recv(1) == b""


def test_those_that_ask_are_not_closed_for_others(pages: Pages, health: Health) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow() -> str:
        begun.release()
        go_on.wait(60)
        return ""

    pages.probes = {"/slow": slow, "/readyz": health}
    with ExitStack() as held:
        asking = [held.enter_context(connected(pages)) for _ in range(32)]
        for connection in asking:
            connection.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
            assert begun.acquire(timeout=60)
        with connected(pages) as refused:
            assert refused.recv(1) == b""
        go_on.set()
        for connection in asking:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"GET /readyz HTTP/1.1\r\nx: " + b"x" * 10_000, b""),
        (b"\r\n\r\n", b""),
        (b"\xff\x00 \r\n\r\n", b""),
        (b"GET  /readyz\r\n\r\n", b""),
        (b"POST /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"HEAD /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
    ],
)
def test_whatever_is_sent_ends(pages: Pages, sent: bytes, answered: bytes) -> None:
    with connected(pages) as connection:
        received = b""
        with suppress(ConnectionError):  # it ended with something of ours still unread
            connection.sendall(sent)
            while piece := connection.recv(4096):
                received += piece
    assert received.partition(b"\r\n")[0] == answered


def post(pages: Pages, path: str, key: str = "") -> tuple[int, str]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"http://127.0.0.1:{pages.port}{path}"
    request = urllib.request.Request(url, method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_an_action_is_asked_for_by_post_and_gets_the_rest_of_the_path_and_the_key() -> None:
    told = []

    def act(rest: str, key: str) -> tuple[HTTPStatus, str]:
        told.append((rest, key))
        return HTTPStatus.ACCEPTED, "soon"

    with serve("127.0.0.1", 0, {}, {"/wake/": act}) as pages:
        assert post(pages, "/wake/m-v1-abc", "secret") == (202, "soon\n")
        assert post(pages, "/wake/m-v1-abc") == (202, "soon\n")
        assert post(pages, "/metrics")[0] == 405
        assert get(pages, "/wake/m-v1-abc")[0] == 404
        pages.shutdown()
    assert told == [("m-v1-abc", "secret"), ("m-v1-abc", "")]

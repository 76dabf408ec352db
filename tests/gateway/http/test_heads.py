"""A head that is too large, or says not whom it is for, is refused however it arrives."""

import socket
from collections.abc import Iterator

import pytest
from front_server import Served, serving

from gateway.http.body import HttpLimits
from gateway.http.heads import find_fault

pytestmark = pytest.mark.slow

MOST = 64 * 1024
BODY = b'{"inputs": "a good film"}'
LIVE = b"GET /v2/health/live HTTP/1.1\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)
POST = b"POST /endpoints/sentiment HTTP/1.1\r\n" + LENGTH


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    limits = HttpLimits(body_seconds=60, header_seconds=60, max_header_bytes=MOST)
    with serving(Served(limits=limits)) as served:
        yield served


def status_of(served: Served, data: bytes, piece: int = 1 << 20) -> int:
    """The status of the first answer to bytes that arrive in pieces of this size."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        for start in range(0, len(data), piece):
            connection.sendall(data[start : start + piece])
        return int(connection.recv(4096).split()[1])


def filled(head: bytes, size: int) -> bytes:
    """A head with one more header, so that it has this many bytes, its last line included."""
    return head + b"x: " + b"a" * (size - len(head) - 7) + b"\r\n\r\n"


@pytest.mark.parametrize("piece", [1000, 1 << 20])
@pytest.mark.parametrize(("size", "status"), [(MOST, 200), (MOST + 1, 431), (70_000, 431)])
def test_a_head_has_no_byte_more_than_it_may(
    fronts: Served, size: int, status: int, piece: int
) -> None:
    assert status_of(fronts, filled(LIVE + b"host: x\r\n", size), piece) == status
    assert status_of(fronts, filled(POST + b"host: x\r\n", size) + BODY, piece) == status


@pytest.mark.parametrize("length", [MOST, 70_000, 300_000])
def test_a_url_that_is_too_long_is_a_414(fronts: Served, length: int) -> None:
    for url in (b"/" + b"a" * length, b"/v2?" + b"a" * length):
        assert status_of(fronts, b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % url) == 414


@pytest.mark.parametrize(
    "head",
    [LIVE, LIVE + b"accept: */*\r\n", LIVE + b"host: x\r\nhost: x\r\n"],
)
def test_a_request_of_http_1_1_names_one_host(fronts: Served, head: bytes) -> None:
    assert status_of(fronts, head + b"\r\n") == 400
    assert status_of(fronts, head.replace(LIVE, POST) + b"\r\n" + BODY) == 400


def test_the_older_http_needs_no_host(fronts: Served) -> None:
    assert status_of(fronts, LIVE.replace(b"1.1", b"1.0") + b"\r\n") == 200


def test_a_host_may_be_empty() -> None:
    assert find_fault(b"GET", b"/", "1.1", [(b"host", b"")], MOST) is None

"""What the parser reads over several turns of the loop is what it would have read in one."""

import json
import socket
from collections.abc import Iterator

import pytest
from front_fakes import FakePredictor
from front_server import Served, serving
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.body import HttpLimits

_HEAD = b"POST /endpoints/sentiment HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(Served(predictor=FakePredictor.with_endpoints(), limits=HttpLimits())) as running:
        yield running


def chunked(body: bytes, sizes: list[int]) -> bytes:
    """A body in chunks of these sizes, again and again."""
    parts: list[bytes] = []
    at = turn = 0
    while at < len(body):
        part = body[at : at + sizes[turn % len(sizes)]]
        parts.append(b"%x\r\n%b\r\n" % (len(part), part))
        at, turn = at + len(part), turn + 1
    return b"".join(parts) + b"0\r\n\r\n"


def answers(served: Served, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(data)
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


@given(
    texts=st.lists(st.integers(1, 40_000), min_size=1, max_size=3),
    sizes=st.lists(st.sampled_from([1, 1, 2, 7, 5000]), min_size=1, max_size=4),
)
def test_bodies_in_small_chunks_are_read_whole_one_after_the_other(
    served: Served, texts: list[int], sizes: list[int]
) -> None:
    bodies = [json.dumps({"inputs": "ab" * (length // 2 + 1)}).encode() for length in texts]
    data = b"".join(_HEAD + chunked(body, sizes) for body in bodies) + _LAST
    served.predictor.calls.clear()
    found = answers(served, data)
    assert found.count(b"HTTP/1.1 200 OK") == len(bodies) + 1
    assert found.endswith(b'{"live":true}')
    read = [call.texts for call in served.predictor.calls]
    assert read == [[json.loads(body)["inputs"]] for body in bodies]


def test_a_malformed_chunk_behind_many_small_ones_is_refused(served: Served) -> None:
    data = _HEAD + b"1\r\na\r\n" * 20_000 + b"no size\r\n"
    assert answers(served, data).startswith(b"HTTP/1.1 400 ")

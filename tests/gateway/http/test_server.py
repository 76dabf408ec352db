"""The server under the application keeps its bounds against callers who don't keep theirs."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from front_fakes import FakeKeys, FakePredictor
from front_server import Served, serving

from gateway.admission.controller import Capacity
from gateway.calls import Answer, Call
from gateway.errors import OverloadedError
from gateway.http.body import HttpLimits

pytestmark = pytest.mark.slow

LIMITS = HttpLimits(
    max_body_bytes=200_000,
    body_seconds=60,
    header_seconds=60,
    max_header_bytes=8_000,
    keep_alive_seconds=60,
    max_connections=20,
)
LIMIT_SECONDS = 60
POST = b"POST /endpoints/sentiment HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"inputs": "a good film"}'
WHOLE = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    with serving(Served(limits=LIMITS)) as served:
        yield served


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", served.port), timeout=60)) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """Until the server ends the connection."""
    received = b""
    with suppress(ConnectionResetError):  # it ended with something of ours still unread
        while piece := connection.recv(65536):
            received += piece
    return received


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """One answer; the connection may go on."""
    stream = connection.makefile("rb")
    status = int(stream.readline().split()[1])
    headers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.decode().partition(": ")
        headers[name] = value
    return status, headers, json.loads(stream.read(int(headers["content-length"])))


def pipelined(connection: socket.socket) -> bytes:
    """All that is answered to five requests at once, of which the last one closes."""
    named = [WHOLE.replace(b"host: x", b"host: x\r\nx-request-id: r%d" % i) for i in range(5)]
    last = named[-1].replace(b"host: x", b"host: x\r\nconnection: close")
    connection.sendall(b"".join(named[:-1]) + last)
    received = read_all(connection)
    ids = [line for line in received.split(b"\r\n") if line.startswith(b"x-request-id")]
    assert ids == [b"x-request-id: r%d" % i for i in range(5)]
    return received


def test_a_connection_answers_many_requests(fronts: Served) -> None:
    with connected(fronts) as connection:
        for _ in range(3):
            connection.sendall(WHOLE)
            status, headers, body = read_answer(connection)
            assert (status, body[0]["label"]) == (200, "positive")
            assert "connection" not in headers


def test_a_request_in_single_bytes_is_read(fronts: Served) -> None:
    with connected(fronts) as connection:
        for byte in WHOLE:
            connection.sendall(bytes([byte]))
        assert read_answer(connection)[0] == 200


def test_pipelined_requests_are_answered_in_order(fronts: Served) -> None:
    with connected(fronts) as connection:
        assert pipelined(connection).count(b"HTTP/1.1 200 OK") == 5


def test_of_very_many_pipelined_requests_the_first_are_answered(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(b"".join([WHOLE.replace(b"x", b"%d" % i, 1) for i in range(60)]))
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 33  # the first one, and those that may wait
    assert received.count(b"HTTP/1.1") == 33
    assert received.count(b"connection: close") == 1


@pytest.mark.parametrize("behind", [WHOLE * 20, WHOLE * 20 + POST, WHOLE * 60])
def test_nothing_is_asked_behind_an_answer_that_ends_the_connection(
    behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    predictor = FakePredictor.with_endpoints()
    predictor.draining = True
    with serving(Served(limits=LIMITS, predictor=predictor)) as served, connected(served) as caller:
        caller.sendall(WHOLE + behind)
        assert read_all(caller).count(b"HTTP/1.1 200 OK") == 1
    assert len(predictor.calls) == 1
    assert not [record for record in caplog.records if record.exc_info]


def test_the_old_http_gets_one_answer_a_connection(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"))
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" in received


def test_a_head_request_gets_the_headers_alone(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert b"content-length: 13" in head
    assert body == b""


def test_a_caller_that_waits_is_told_to_send_its_body(fronts: Served) -> None:
    with connected(fronts) as connection:
        head = POST + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY)
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_answer(connection)[0] == 200


def test_an_escaped_path_is_read(fronts: Served) -> None:
    with httpx.Client(base_url=fronts.url, timeout=60) as client:
        assert client.get("/endpoints/%73entiment?x=1").status_code == 200
        assert client.get("/endpoints/%ff%00").status_code == 404


@contextmanager
def accepted(served: Served) -> Iterator[socket.socket]:
    """A connection that the server has seen: its time runs."""
    before = served.connections
    with connected(served) as connection:
        served.wait_for(lambda: served.connections > before)
        yield connection


def send_and_wait(served: Served, connection: socket.socket, data: bytes) -> None:
    """Returns when the server has read the data."""
    end = served.received_bytes + len(data)
    connection.sendall(data)
    served.wait_for(lambda: served.received_bytes >= end)


def test_a_silent_connection_is_closed(fronts: Served) -> None:
    with accepted(fronts) as connection:
        fronts.pass_time(LIMIT_SECONDS)
        assert read_all(connection) == b""


def test_an_idle_connection_is_closed_after_its_time(fronts: Served) -> None:
    with connected(fronts) as connection:
        for _ in range(2):
            connection.sendall(WHOLE)
            assert read_answer(connection)[0] == 200
            fronts.pass_time(0.7 * LIMIT_SECONDS)
        fronts.pass_time(0.7 * LIMIT_SECONDS)
        assert read_all(connection) == b""


@pytest.mark.parametrize("begin", [b"POST /endp", POST, b"G"])
def test_headers_that_do_not_come_are_a_timeout(fronts: Served, begin: bytes) -> None:
    with accepted(fronts) as connection:
        send_and_wait(fronts, connection, begin)
        fronts.pass_time(LIMIT_SECONDS)
        status, headers, body = read_answer(connection)
        assert status == 408
        assert headers["connection"] == "close"
        assert body["error"]["code"] == "request_timeout"
        assert read_all(connection) == b""


def test_a_body_that_does_not_come_is_a_timeout(fronts: Served) -> None:
    with accepted(fronts) as connection:
        send_and_wait(fronts, connection, POST + b"content-length: 100\r\n\r\n{")
        fronts.pass_time(LIMITS.held_seconds)  # from then on its bytes are handled as they come
        fronts.pass_time(LIMIT_SECONDS)
        status, headers, body = read_answer(connection)
        assert status == 408
        assert body["error"]["code"] == "request_timeout"
        assert "x-request-id" in headers
        assert read_all(connection) == b""


def drip(served: Served, connection: socket.socket, drop: bytes) -> None:
    """Sends drops for longer than the server waits, each long before that time is over."""
    for _ in range(4):
        send_and_wait(served, connection, drop)
        served.pass_time(0.3 * LIMIT_SECONDS)


def test_a_body_that_drips_is_a_timeout(fronts: Served) -> None:
    with accepted(fronts) as connection:
        send_and_wait(fronts, connection, POST + b"transfer-encoding: chunked\r\n\r\n")
        drip(fronts, connection, b"1\r\nx\r\n")
        assert read_answer(connection)[0] == 408


def test_a_file_has_that_time_for_as_much_as_other_bodies_may_have(
    fronts: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time passes here while the store is asked.
    monkeypatch.setattr("gateway.batch_jobs.store._CALL_SECONDS", 10 * LIMIT_SECONDS)
    line = (
        '{"custom_id": "%d", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", %s}}'
    )
    rows = "\n".join(line % (i, f'"input": "{"x" * 1000}"') for i in range(800)).encode()
    body = (
        b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
        b'content-disposition: form-data; name="file"; filename="f"\r\n\r\n'
        + rows
        + b"\r\n--b--\r\n"
    )
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
    )
    head += b"content-length: %d\r\n\r\n" % len(body)
    with accepted(fronts) as connection:
        send_and_wait(fronts, connection, head + body[:1000])
        for start in (1000, 301_000):
            send_and_wait(fronts, connection, body[start : start + 300_000])
            fronts.pass_time(LIMIT_SECONDS)
        connection.sendall(body[601_000:])
        assert read_answer(connection)[0] == 200
    with accepted(fronts) as connection:
        send_and_wait(fronts, connection, head + body[:1000])
        send_and_wait(fronts, connection, body[1000:100_000])
        fronts.pass_time(LIMIT_SECONDS)
        assert read_answer(connection)[0] == 408


@dataclass
class HeldBack:
    """A model that sleeps until it is let go; ``began`` is set by its first caller."""

    seconds: float = 3600.0
    began: threading.Event = field(default_factory=threading.Event)
    there: threading.Event = field(default_factory=threading.Event)

    def is_asleep(self, pool: str, model: str) -> bool:
        return not self.there.is_set()

    async def wait(self, pool: str, model: str, until: float, size: int) -> None:
        self.began.set()
        await asyncio.to_thread(self.there.wait, 60)


def test_a_large_body_keeps_while_its_model_is_being_loaded() -> None:
    predictor = FakePredictor.with_endpoints()
    predictor.views["sentiment"] = replace(predictor.views["sentiment"], asleep=True)
    waking = HeldBack()
    body = b'{"inputs": "a good film", "more": "%s"}' % (b"x" * 190_000)
    head = POST + b"content-length: %d\r\n\r\n" % len(body)
    with (
        serving(Served(limits=LIMITS, predictor=predictor, waking=waking)) as served,
        connected(served) as connection,
    ):
        send_and_wait(served, connection, head + body[:100_000])
        assert waking.began.wait(60)
        for _ in range(3):
            served.pass_time(LIMIT_SECONDS)
        waking.there.set()
        connection.sendall(body[100_000:])
        assert read_answer(connection)[0] == 200


def test_line_breaks_alone_hold_no_connection(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(WHOLE)
        assert read_answer(connection)[0] == 200
        drip(fronts, connection, b"\r\n")
        assert read_all(connection) == b""


def test_headers_without_end_are_refused(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(POST + b"x-filler: " + b"x" * 10_000)
        status, _, body = read_answer(connection)
        assert status == 431
        assert body["error"]["code"] == "headers_too_large"


def test_trailers_without_end_are_not_kept(fronts: Served) -> None:
    with connected(fronts) as connection:
        chunk = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
        connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n" + chunk)
        connection.sendall(b"x: y\r\n" * 1000 + b"\r\n")
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_a_400_in_our_own_words(fronts: Served, garbage: bytes) -> None:
    with connected(fronts) as connection:
        connection.sendall(garbage)
        status, _, body = read_answer(connection)
    assert status in (400, 404)
    assert body["error"]["request_id"]


def test_a_body_over_the_limit_is_refused_and_its_sender_hears_it(fronts: Served) -> None:
    with httpx.Client(base_url=fronts.url, timeout=60) as client:
        announced = client.post("/endpoints/sentiment", content=b"x" * 10_000_000)
        chunked = client.post("/endpoints/sentiment", content=(b"x" * 100_000 for _ in range(100)))
        after = client.post("/endpoints/sentiment", content=BODY)
    assert (announced.status_code, chunked.status_code, after.status_code) == (413, 413, 200)


def test_a_body_before_it_is_no_part_of_a_head() -> None:
    limits = replace(LIMITS, max_header_bytes=500)
    first = BODY + b" " * 12_000
    with serving(Served(limits=limits)) as served, connected(served) as connection:
        connection.sendall(POST + b"content-length: %d\r\n\r\n" % len(first) + first[:4000])
        connection.sendall(first[4000:] + POST)  # the head of the next one comes in two parts
        assert read_answer(connection)[0] == 200
        connection.sendall(b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
        assert read_answer(connection)[0] == 200


def test_an_upgrade_is_not_taken(fronts: Served) -> None:
    with connected(fronts) as connection:
        connection.sendall(
            b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n"
            b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize("offer", [b"websocket", b"h2c", b"anything"])
def test_a_body_behind_an_offer_to_upgrade_is_never_another_request(
    fronts: Served, offer: bytes
) -> None:
    hidden = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    with connected(fronts) as connection:
        connection.sendall(
            POST
            + b"accept: */*\r\nconnection: upgrade\r\nupgrade: %s\r\n" % offer
            + b"content-length: %d\r\n\r\n" % len(hidden)
        )
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(hidden)
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answers.lower()


JAVA = (
    b"POST /endpoints/sentiment HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Content-Length: %d\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAA\r\n"
    b"Upgrade: h2c\r\nUser-Agent: Java-http-client/21\r\n"
) % len(BODY)


@pytest.mark.parametrize(
    "pieces",
    [
        [JAVA + b"\r\n" + BODY],
        [JAVA + b"\r\n", BODY],
        [JAVA[:100], JAVA[100:] + b"\r\n", BODY],
        [JAVA[:100], JAVA[100:] + b"\r\n" + BODY[:5], BODY[5:]],
        [JAVA + b"Authorization: Bearer " + b"a" * 7000 + b"\r\n\r\n", BODY],
        [JAVA[:1000] + b"Accept: */*\r\n\r\n" + BODY],
    ],
)
def test_an_offer_of_http_2_is_ignored_however_its_request_comes(
    fronts: Served, pieces: list[bytes]
) -> None:
    with connected(fronts) as connection:
        for _ in range(3):
            for piece in pieces:
                send_and_wait(fronts, connection, piece)
            status, headers, body = read_answer(connection)
            assert (status, body[0]["label"]) == (200, "positive")
            assert "connection" not in headers
        connection.sendall(JAVA + b"\r\n" + BODY + (JAVA + b"\r\n" + BODY) * 60)
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 33


class Endless(FakePredictor):
    """Never answers, and tells when it begins and is stopped."""

    def __init__(self) -> None:
        super().__init__(FakePredictor.with_endpoints().views)
        self.begun = threading.Event()
        self.stopped = threading.Event()

    async def predict(self, call: Call) -> Answer:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        raise AssertionError(call)


def test_work_for_a_caller_that_has_hung_up_is_stopped() -> None:
    predictor = Endless()
    with serving(Served(predictor=predictor)) as served:
        with connected(served) as connection:
            connection.sendall(WHOLE)
            assert predictor.begun.wait(60)
        assert predictor.stopped.wait(60)
        with httpx.Client(base_url=served.url, timeout=60) as client:
            assert client.get("/v2/health/live").status_code == 200
        assert ("huggingface", 499) in served.metrics.finished


def test_idle_connections_are_closed_for_new_ones() -> None:
    with (
        serving(Served(limits=HttpLimits(max_connections=2))) as served,
        connected(served) as asked,
    ):
        asked.sendall(WHOLE)
        assert read_answer(asked)[0] == 200
        with accepted(served) as silent, connected(served) as new:
            new.sendall(WHOLE)
            assert read_answer(new)[0] == 200
            assert read_all(silent) == b""  # the first to go, as it has asked nothing
            asked.sendall(WHOLE)
            assert read_answer(asked)[0] == 200


def test_one_that_goes_for_a_new_one_gets_the_rest_of_its_answer() -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["a good film"]}
    body = json.dumps({"id": "x" * 500_000, "inputs": [tensor]}).encode()
    request = b"POST /v2/models/sentiment/infer HTTP/1.1\r\nhost: x\r\n"
    request += b"content-length: %d\r\n\r\n" % len(body) + body
    with (
        serving(Served(limits=HttpLimits(max_connections=1))) as served,
        closing(socket.socket()) as reads,
    ):
        reads.settimeout(60)
        reads.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        reads.connect(("127.0.0.1", served.port))
        send_and_wait(served, reads, request)
        begun = reads.recv(1)
        with connected(served) as new:
            new.sendall(WHOLE)
            assert read_answer(new)[0] == 200
            answer = begun + read_all(reads)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(rest)["id"] == "x" * 500_000


def test_more_than_are_being_answered_are_refused_with_when_to_come_back() -> None:
    predictor = Endless()
    with (
        serving(Served(limits=HttpLimits(max_connections=1), predictor=predictor)) as served,
        connected(served) as busy,
    ):
        busy.sendall(WHOLE)
        assert predictor.begun.wait(60)
        with connected(served) as third:
            status, headers, body = read_answer(third)
            assert (status, headers["retry-after"]) == (503, "1")
            assert body["error"]["code"] == "overloaded"
        assert not predictor.stopped.is_set()


def test_one_peer_can_not_take_the_room_of_all() -> None:
    limits = HttpLimits(max_connections=8, max_connections_of_peer=1)
    predictor = Endless()
    with (
        serving(Served(limits=limits, predictor=predictor)) as served,
        connected(served) as busy,
    ):
        busy.sendall(WHOLE)
        assert predictor.begun.wait(60)
        with connected(served) as second:
            assert read_answer(second)[0] == 503
        where, other = ("127.0.0.1", served.port), ("127.0.0.2", 0)
        with closing(socket.create_connection(where, 60, other)) as elsewhere:
            elsewhere.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert read_answer(elsewhere)[0] == 200


def test_a_caller_that_hangs_up_with_requests_behind_one_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    predictor = Endless()
    with serving(Served(predictor=predictor)) as served:
        with connected(served) as connection:
            connection.sendall(WHOLE * 3)
            assert predictor.begun.wait(60)
        assert predictor.stopped.wait(60)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


class CountingPredictor(FakePredictor):
    """Counts who asked for room."""

    asked = 0

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> list[Capacity]:
        self.asked += 1
        return super().capacities(endpoint, key, forced_version, space)


@contextmanager
def crowded() -> Iterator[Served]:
    """A server that has just begun to refuse."""
    predictor = FakePredictor.with_endpoints()
    predictor.full = OverloadedError("Full.", retry_after_seconds=2)
    with serving(Served(predictor=predictor)) as served:
        yield served


FRAMINGS = {
    "whole": [WHOLE],
    "head, then body": [WHOLE[: -len(BODY)], BODY],
    "in three": [WHOLE[:10], WHOLE[10:60], WHOLE[60:]],
    "chunked": [POST + b"transfer-encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"],
    "with a query": [WHOLE.replace(b"sentiment ", b"sentiment?a=b ")],
}


@pytest.mark.parametrize("name", [name for name in FRAMINGS if name != "chunked"])
@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("good", [True, False])
def test_an_answer_is_the_same_however_the_request_came(
    name: str, draining: bool, good: bool
) -> None:
    body = BODY if good else b"{".ljust(len(BODY))
    predictor = FakePredictor.with_endpoints()
    predictor.draining = draining
    with serving(Served(predictor=predictor)) as served, connected(served) as connection:
        for piece in FRAMINGS[name]:
            connection.sendall(piece.replace(BODY, body))
        status, headers, answer = read_answer(connection)
        assert ("x-headrace-version" in headers) is good
        assert headers.get("connection") == ("close" if draining else None)
        if good:
            assert (status, answer[0]["label"]) == (200, "positive")
        else:
            assert (status, answer["error"]["code"]) == (400, "bad_request")
            assert answer["error"]["request_id"] == headers["x-request-id"]
        if draining:
            assert read_all(connection) == b""
    assert served.metrics.finished == [("huggingface", status)]


@pytest.mark.parametrize("pieces", FRAMINGS.values(), ids=FRAMINGS)
def test_a_refusal_is_the_same_however_the_request_came(pieces: list[bytes]) -> None:
    times = 5
    with crowded() as served, connected(served) as connection:
        for _ in range(times):
            for piece in pieces:
                connection.sendall(piece)
            status, headers, body = read_answer(connection)
            assert (status, headers["retry-after"]) == (503, "2")
            assert "connection" not in headers
            request_id = headers["x-request-id"]
            expected = {"code": "overloaded", "message": "Full.", "request_id": request_id}
            assert body == {"error": expected}
    assert served.recorder.refusals == [("sentiment", 503, "overloaded")] * times
    assert served.metrics.finished == [("huggingface", 503)] * times


def test_a_refused_connection_goes_on_and_is_answered_once_there_is_room() -> None:
    with crowded() as served, connected(served) as connection:
        for _ in range(3):
            connection.sendall(WHOLE)
            assert read_answer(connection)[0] == 503
        served.predictor.full = None
        connection.sendall(WHOLE)
        assert read_answer(connection)[0] == 200


def test_who_still_sends_hears_a_refusal_that_ends_the_connection() -> None:
    old = WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"%d" % len(BODY), b"1000000")
    head = old[: -len(BODY)]
    with crowded() as served:
        for _ in range(3):
            with connected(served) as connection:
                connection.sendall(head)
                assert connection.recv(1, socket.MSG_PEEK)  # the answer is there
                connection.sendall(b" " * 1_000_000)
                assert read_answer(connection)[0] == 503
                assert connection.recv(1) == b""


def test_pipelined_refusals_come_in_order_and_the_last_one_closes() -> None:
    with crowded() as served, connected(served) as connection:
        connection.sendall(WHOLE)
        read_answer(connection)
        received = pipelined(connection)
    assert (received.count(b"HTTP/1.1 503 "), received.count(b"connection: close")) == (5, 1)


def test_other_routes_and_other_mistakes_are_not_taken_for_crowding() -> None:
    with crowded() as served, connected(served) as connection:
        connection.sendall(WHOLE)
        assert read_answer(connection)[0] == 503
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read_answer(connection)[0] == 200
        connection.sendall(WHOLE.replace(b"sentiment", b"nobodys00"))
        assert read_answer(connection)[0] == 404
        connection.sendall(WHOLE.replace(b"host: x", b"host: x\r\nx-request-timeout: soon"))
        assert read_answer(connection)[0] == 400
        connection.sendall(WHOLE.replace(b"/endpoints/sentiment", b"/v2/models/minilm/infer"))
        status, _, body = read_answer(connection)
        assert (status, body["error"]) == (503, "Full.")


def test_a_key_is_asked_for_before_there_is_any_talk_of_room() -> None:
    keys = FakeKeys({"good": {"sentiment"}})
    predictor = CountingPredictor(FakePredictor.with_endpoints().views)
    predictor.full = OverloadedError("Full.", retry_after_seconds=2)
    with serving(Served(predictor=predictor, keys=keys)) as served, connected(served) as connection:
        answers = []
        for key in (b"good", b"bad", b"good"):
            connection.sendall(WHOLE.replace(b"host: x", b"host: x\r\nx-api-key: " + key))
            answers.append(read_answer(connection)[0])
    assert answers == [503, 401, 503]
    assert predictor.asked == 2

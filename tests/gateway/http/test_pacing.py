"""What is read or written over several turns of the loop is what it would have been in one."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import NoReturn, cast

import pytest
from connection_fakes import POST, Connected
from front_fakes import FakePredictor
from front_server import Served, serving
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.http.body import HttpLimits
from gateway.http.pacing import WRITTEN_PIECE_BYTES, PacedFlow, PacedWriter, Turns

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


class Loop:
    """Its turns are taken by a test."""

    def __init__(self) -> None:
        self.next: list[asyncio.Handle] = []

    def call_soon(self, work: Callable[[], None]) -> asyncio.Handle:
        handle = asyncio.Handle(work, (), cast("asyncio.AbstractEventLoop", self))
        self.next.append(handle)
        return handle

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Goes on, as a real one does."""

    def take(self) -> None:
        """One of them."""
        turn, self.next = self.next, []
        for handle in turn:
            if not handle.cancelled():
                handle._run()


class Transport:
    """Takes what is written; has no room from some bytes on until a test makes it."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.room = 1 << 30
        self.paused = False
        self.closing = False
        self.writer: PacedWriter

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.taken += data
        self.room -= len(data)
        if self.room <= 0:
            self.writer.pause()

    def make_room(self, room: int) -> None:
        if self.room <= 0 < room:
            self.room = room
            self.writer.resume()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closing


def writing(
    loop: Loop | None = None, turns: Turns | None = None
) -> tuple[PacedWriter, Transport, Loop, FlowControl]:
    transport, loop = Transport(), loop or Loop()
    as_transport = cast("asyncio.Transport", transport)
    flow = FlowControl(as_transport)
    as_loop = cast("asyncio.AbstractEventLoop", loop)
    writer = PacedWriter(as_transport, flow, as_loop, turns or Turns())
    transport.writer = writer
    return writer, transport, loop, flow


TURN = 256 * 1024
SIZES = st.one_of(st.integers(0, 2000), st.integers(60_000, 70_000), st.integers(0, 1_000_000))


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), SIZES),
            st.tuples(st.just("turn"), st.just(0)),
            st.tuples(st.just("room"), SIZES),
        ),
        max_size=20,
    ),
    room=SIZES,
)
def test_what_is_written_comes_whole_and_in_order_whatever_room_there_is(
    steps: list[tuple[str, int]], room: int
) -> None:
    writer, transport, loop, flow = writing()
    transport.room = room + 1
    told = bytearray()
    for number, (step, size) in enumerate(steps):
        if step == "write":
            data = bytes([number % 256]) * size
            told += data
            writer.write(data)
        elif step == "turn":
            before = len(transport.taken)
            loop.take()
            assert len(transport.taken) - before < TURN + WRITTEN_PIECE_BYTES
        else:
            transport.make_room(size)
        assert bytes(transport.taken) == bytes(told[: len(transport.taken)])
        assert writer.waiting == len(told) - len(transport.taken)
        assert flow.write_paused or (writer.waiting == 0 and transport.room > 0)
        assert len(loop.next) <= 1
        assert loop.next or not writer.waiting or transport.room <= 0  # somebody goes on
    done: list[int] = []
    writer.then(lambda: done.append(len(transport.taken)))
    for _ in range(len(told) // TURN + 2):
        transport.make_room(1 << 30)
        loop.take()
    assert transport.taken == told
    assert done == [len(told)]
    assert not flow.write_paused
    assert not loop.next


def test_what_a_lost_connection_still_had_to_write_is_forgotten() -> None:
    writer, transport, loop, _ = writing()
    writer.write(bytes(1_000_000))
    writer.then(lambda: pytest.fail("the connection is lost"))
    transport.closing = True
    loop.take()
    assert writer.waiting == 0
    writer.forget()
    loop.take()
    assert len(transport.taken) == TURN


@given(sizes=st.lists(SIZES, min_size=2, max_size=5), fails=st.integers(0, 9))
def test_of_all_connections_one_piece_is_written_in_a_turn(sizes: list[int], fails: int) -> None:
    loop, turns = Loop(), Turns()

    def fail() -> NoReturn:
        raise OSError

    found = [writing(loop, turns) for _ in sizes]
    for number, ((writer, _, _, _), size) in enumerate(zip(found, sizes, strict=True)):
        if number == fails:
            turns.plan(cast("asyncio.AbstractEventLoop", loop), fail)
        writer.write(bytes(size))

    def written() -> int:
        return sum(len(transport.taken) for _, transport, _, _ in found)

    assert written() <= TURN + sum(min(size, WRITTEN_PIECE_BYTES) for size in sizes)
    while loop.next:
        before = written()
        assert len(loop.next) == 1
        loop.take()
        assert written() - before < TURN + WRITTEN_PIECE_BYTES
    assert written() == sum(sizes)
    assert not any(flow.write_paused for *_, flow in found)


async def test_connections_that_have_ended_take_no_turn() -> None:
    first = Connected(HttpLimits())
    callers = [first, *(first.another() for _ in range(5))]
    for caller in callers:
        caller.protocol.data_received(b"\r\n" * 50_000)
    for gone in callers[1:5]:
        gone.transport.closed = True
        gone.protocol.connection_lost(None)
    turns = 0
    while planned := [each for each in first.loop.timers if each.at == first.loop.now]:
        (turn,) = planned
        first.loop.timers.remove(turn)
        turn.ring()
        turns += 1
    assert turns == 2
    assert [caller.transport.reads for caller in callers] == [True, *[False] * 4, True]


async def test_of_all_who_send_as_fast_as_they_can_one_is_read_in_a_turn() -> None:
    first = Connected(HttpLimits())
    callers = [first, first.another(), first.another()]
    for _ in range(2):
        for caller in callers:
            caller.protocol.data_received(b"\r\n" * 50_000)
        reads = []
        while planned := [each for each in first.loop.timers if each.at == first.loop.now]:
            (turn,) = planned
            first.loop.timers.remove(turn)
            turn.ring()
            reads.append([caller.transport.reads for caller in callers])
        assert reads == [[True, False, False], [True, True, False], [True, True, True]]


def test_nothing_is_read_after_much_until_others_had_their_turn() -> None:
    transport = Transport()
    flow = PacedFlow(cast("asyncio.Transport", transport))
    paused = []
    for is_behind in (False, True):
        assert flow.rest()
        flow.pause_reading()  # the application is behind
        assert not flow.rest()  # its turn comes once
        flow.resume_reading()  # the application takes what there is
        paused.append(transport.paused)
        if is_behind:
            flow.pause_reading()
        flow.end_rest()
        paused.append(transport.paused)
    flow.resume_reading()
    assert [*paused, transport.paused] == [True, False, True, True, False]


@pytest.mark.parametrize("answered", [True, False])
async def test_who_sends_as_fast_as_it_can_is_read_once_a_turn(*, answered: bool) -> None:
    """Also what is dropped, as the answer went out before the body came."""
    connected = Connected(HttpLimits())
    connected.protocol.data_received(
        b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 9000000\r\n\r\n" if answered else b""
    )
    assert (connected.transport.written != b"") == answered
    for _ in range(3):
        connected.protocol.data_received(bytes(100_000) if answered else b"\r\n" * 50_000)
        read_at_once = connected.transport.reads
        connected.loop.advance(0)
        assert (read_at_once, connected.transport.reads) == (False, True)


async def test_what_waits_for_the_parser_is_read_before_more_of_the_socket() -> None:
    connected = Connected(HttpLimits())
    connected.protocol.data_received(_HEAD + b"1\r\na\r\n" * 20_000)
    assert connected.protocol.flow.unparsed
    loop = connected.loop
    first = next(timer for timer in loop.timers if timer.at == loop.now)
    loop.timers.remove(first)
    first.ring()  # what lets it read on, but for that
    reads = [connected.transport.reads]
    connected.loop.advance(0)
    assert [*reads, connected.transport.reads] == [False, True]


@pytest.mark.parametrize("half_closes", [True, False])
async def test_a_long_last_answer_goes_out_whole_and_nothing_is_asked_behind_it(
    *, half_closes: bool
) -> None:
    connected = Connected(HttpLimits())
    transport, answers = connected.transport, connected.answers
    transport.half_closes = half_closes
    answers.draining, answers.body = True, bytes(TURN * 3)
    connected.ask()
    connected.protocol.data_received(POST)
    assert TURN <= len(transport.written) < TURN + WRITTEN_PIECE_BYTES
    closed = [transport.closed]
    connected.loop.advance(0)
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert body == answers.body
    if not half_closes:  # it looks again whether the caller has all
        connected.loop.advance(1)
    assert [*closed, transport.closed] == [False, True]
    assert not transport.half_closed
    assert len(answers.plain) == 1
    assert answers.parsed == []


async def test_what_is_no_request_behind_a_long_answer_is_refused_behind_it() -> None:
    connected = Connected(HttpLimits())
    transport, answers = connected.transport, connected.answers
    answers.body = bytes(TURN * 3)
    connected.ask()
    for _ in range(3):
        connected.protocol.data_received(b"\x00 no request\r\n\r\n" * 1000)
    assert len(transport.written) < TURN + WRITTEN_PIECE_BYTES
    closed = [transport.closed]
    connected.loop.advance(0)
    body, _, refusal = transport.written.partition(b"\r\n\r\n")[2].partition(b"HTTP/1.1 400 ")
    assert body == answers.body
    assert b"connection: close" in refusal
    assert b"HTTP/1.1" not in refusal
    assert [*closed, transport.closed] == [False, True]


async def test_who_sends_no_more_has_what_was_written() -> None:
    """The loop closes a connection once its caller has: what the transport has goes out."""
    connected = Connected(HttpLimits())
    connected.answers.body = bytes(TURN * 3)
    connected.ask()
    connected.protocol.eof_received()
    assert connected.transport.written.endswith(connected.answers.body)


async def test_a_request_that_fails_cuts_no_answer_before_it() -> None:
    connected = Connected(HttpLimits())
    transport, answers = connected.transport, connected.answers
    answers.body = bytes(TURN * 3)
    connected.ask()
    answers.fails = True
    connected.protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    closed = [transport.closed]
    connected.loop.advance(0)
    connected.loop.go_on()
    connected.loop.advance(0)
    assert transport.written.partition(b"\r\n\r\n")[2].startswith(answers.body)
    assert [*closed, transport.closed] == [False, True]


async def test_an_answer_that_is_out_is_held_no_longer() -> None:
    connected = Connected(HttpLimits())
    connected.answers.body = bytes(TURN * 3)
    connected.ask()
    held = [len(connected.protocol.untaken_answers)]
    connected.loop.advance(0)
    assert [*held, len(connected.protocol.untaken_answers)] == [1, 0]


def test_who_waits_to_send_is_told_behind_a_long_answer_before_it(served: Served) -> None:
    long = "x" * 3_000_000
    text = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["good"]}
    body = json.dumps({"id": long, "inputs": [text]}).encode()
    head = b"POST /v2/models/sentiment/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
    second = json.dumps({"inputs": "good"}).encode()
    waits = b"POST /endpoints/sentiment HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
    waits += b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(second)
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(head % len(body) + body + waits)
        found = b""
        while b"100 Continue" not in found:
            found += connection.recv(65536)
        before, _, rest = found.partition(b"HTTP/1.1 100 Continue\r\n\r\n")
        first = before.partition(b"\r\n\r\n")[2]
        assert json.loads(first)["id"] == long
        assert rest == b""
        connection.sendall(second)
        while part := connection.recv(65536):
            rest += part
    assert rest.startswith(b"HTTP/1.1 200 OK")

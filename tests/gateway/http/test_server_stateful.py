"""One connection of the HTTP server and all that a caller may send on it, in any order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from loop_clocks import SteppedLoop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.http.body import HttpLimits
from gateway.http.messages import Reply, StreamReply
from gateway.http.plain_post import PlainPost
from gateway.http.server import uvicorn_options

pytestmark = pytest.mark.slow

LIMITS = HttpLimits(header_seconds=10, body_seconds=10, max_header_bytes=4000)
OFFER = "connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAA\r\nupgrade: h2c\r\n"
WHOLE = "content-length: 2\r\n\r\n{}"
CHUNKED = "transfer-encoding: chunked\r\n\r\n"
CHUNKS = "2\r\n{}\r\n0\r\n\r\n"
# What stands behind ``METHOD /number HTTP/1.1`` of requests that are good.
GOOD = {
    "plain": ("POST", f"host: x\r\n{WHOLE}"),
    "stream": ("POST", f"host: x\r\n{WHOLE}"),
    "offered": ("POST", f"host: x\r\n{OFFER}{WHOLE}"),
    "chunked": ("POST", f"host: x\r\n{CHUNKED}{CHUNKS}"),
    "early": ("POST", f"host: x\r\n{CHUNKED}{CHUNKS}"),  # answered before its body is there
    "parsed": ("GET", "host: x\r\n\r\n"),
    "last": ("GET", "host: x\r\nconnection: close\r\n\r\n"),
}
MALFORMED = [
    b"NONSENSE\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    b"GET / HTTP/1.1\r\na: " + b"b" * 5000,
]
kinds = st.sampled_from([*sorted(GOOD), "stream", "plain"])
REFUSALS = {400, 408, 431}


class Caller(asyncio.Transport):
    """The transport of a caller who takes all that is written."""

    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__()
        self._loop = loop
        self.protocol: Any = None
        self.written = b""
        self.is_over = self.is_closed = False

    def write(self, data: Any) -> None:
        """See ``asyncio.Transport``."""
        assert not self.is_over
        self.written += bytes(data)

    def write_eof(self) -> None:
        self.is_over = True

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """The test sends nothing meanwhile that it would not have sent before."""

    def resume_reading(self) -> None:
        """As above."""

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        """See ``asyncio.Transport``."""
        if not self.is_closed:
            self.is_over = self.is_closed = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    abort = close


class Parts:
    """The body of an answer that comes as the test has it."""

    status = 200

    def __init__(self, next_part: Callable[[], Awaitable[bytes]]) -> None:
        self._next_part = next_part

    def __aiter__(self) -> "Parts":
        return self

    async def __anext__(self) -> bytes:
        part = await self._next_part()
        if not part:
            raise StopAsyncIteration
        return part

    def close(self) -> None:
        """Nothing makes the parts."""


class Logged(logging.Handler):
    """Errors that servers log and go on."""

    def __init__(self, faults: list[object]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        self._faults.append(record)


class Connection(RuleBasedStateMachine):
    """Requests that are good, malformed, streamed and abandoned."""

    active = draining = False  # of the load shedder

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppedLoop()
        self.faults: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.logged = Logged(self.faults)
        logging.getLogger().addHandler(self.logged)
        options = uvicorn_options(LIMITS, self, self)
        config = uvicorn.Config(self.answer_asgi, interface="asgi3", **options)
        config.load()
        self.transport = Caller(self.loop)
        self.protocol = options["http"](config, ServerState(), {}, _loop=self.loop)
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self.kinds: list[str] = []  # of good requests, whose numbers are their places
        self.answered: list[int] = []  # by the application, to the end
        self.asked: dict[int, asyncio.Queue[bytes]] = {}
        self.whole = 0  # of them, as many as were sent to their end
        self.rest = b""  # of a request that was begun
        self.is_in_head = False  # of what was begun, the head is not all there
        self.is_broken = False  # what was sent last is no request
        self.has_hung_up = False

    # The application.

    async def answer_asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # its caller is gone
            await self.answer_parsed(scope, receive, send)

    async def answer_parsed(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = int(scope["path"][1:])
        while self.kinds[number] != "early" and (await receive()).get("more_body"):
            pass
        body = await self.next_part(number)
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self.answered.append(number)
        del self.asked[number]
        await send({"type": "http.response.body", "body": body})

    async def answer_post(
        self,
        post: PlainPost,
        send: Callable[[Reply, str], None],
        stream: Callable[[StreamReply, str], Awaitable[None]],
    ) -> None:
        number = int(post.path[1:])
        if self.kinds[number] == "stream":
            reply = StreamReply(Parts(lambda: self.next_part(number)), b"text/plain")
            await stream(reply, str(number))
            self.answered.append(number)
        else:
            body = await self.next_part(number)
            self.answered.append(number)
            send(Reply(body), str(number))
        self.asked.pop(number, None)

    async def next_part(self, number: int) -> bytes:
        return await self.asked.setdefault(number, asyncio.Queue()).get()

    def refusal(self, *_: object) -> None:
        """The load shedder lets all in."""

    # The caller.

    @property
    def may_send(self) -> bool:
        return not self.transport.is_closed

    def receive(self, data: bytes, cut: int = 0) -> None:
        for piece in (data[:cut], data[cut:]):
            if piece and self.may_send:
                self.protocol.data_received(piece)
        self.settle()

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def next_request(self, kind: str) -> bytes:
        method, rest = GOOD[kind]
        self.kinds.append(kind)
        return f"{method} /{len(self.kinds) - 1} HTTP/1.1\r\n{rest}".encode()

    @precondition(lambda self: self.may_send and not self.rest and not self.is_broken)
    @rule(kinds=st.lists(kinds, min_size=1, max_size=3), cut=st.integers(0))
    def send(self, kinds: list[str], cut: int) -> None:
        data = b"".join(self.next_request(kind) for kind in kinds)
        self.whole += len(kinds)
        self.receive(data, cut % len(data))

    @precondition(lambda self: self.may_send and not self.rest and not self.is_broken)
    @rule(kind=kinds, cut=st.integers(1))
    def begin(self, kind: str, cut: int) -> None:
        data = self.next_request(kind)
        at = 1 + cut % (len(data) - 1)
        self.rest = data[at:]
        self.is_in_head = b"\r\n\r\n" not in data[:at]
        self.receive(data[:at])

    @precondition(lambda self: self.may_send and self.rest)
    @rule()
    def end(self) -> None:
        data, self.rest = self.rest, b""
        self.whole += 1
        self.receive(data)

    @precondition(lambda self: self.may_send and self.rest)
    @rule()
    def wait_too_long(self) -> None:
        """The body of a request whose head is there ends by the application's word, not here."""
        if self.is_in_head:
            self.is_broken, self.rest = True, b""
            self.loop.run_until_complete(asyncio.sleep(11))
            self.settle()

    @precondition(lambda self: self.may_send and not self.rest and not self.is_broken)
    @rule(data=st.sampled_from(MALFORMED), cut=st.integers(0))
    def send_malformed(self, data: bytes, cut: int) -> None:
        self.is_broken = True
        self.receive(data, cut % len(data))

    @precondition(lambda self: self.may_send and not self.rest and not self.is_broken)
    @rule(kind=st.sampled_from(["chunked", "early"]))
    def send_malformed_body(self, kind: str) -> None:
        data = self.next_request(kind).removesuffix(CHUNKS.encode())
        self.is_broken = True
        self.receive(data)
        if kind == "early":
            self.answer()
        self.receive(b"no size\r\n")

    @precondition(lambda self: self.may_send and self.is_broken)
    @rule(data=st.sampled_from(MALFORMED))
    def send_more(self, data: bytes) -> None:
        self.receive(data)

    @precondition(lambda self: self.asked)
    @rule()
    def stream_a_part(self) -> None:
        (number,) = self.asked
        if self.kinds[number] == "stream":
            self.asked[number].put_nowait(b"%d " % number)
            self.settle()

    @rule()
    def answer(self) -> None:
        """The request that is being answered, to the end."""
        for number, parts in tuple(self.asked.items()):
            parts.put_nowait(b"%d " % number)
            if self.kinds[number] == "stream":
                parts.put_nowait(b"")
            self.settle()

    @precondition(lambda self: self.may_send and len(self.kinds) > 3)
    @rule()
    def hang_up(self) -> None:
        self.has_hung_up = True
        self.transport.close()
        self.settle()
        self.asked.clear()

    # What must hold.

    @invariant()
    def one_request_is_answered_at_a_time(self) -> None:
        assert self.transport.is_closed or len(self.asked) <= 1

    @invariant()
    def every_answer_is_its_requests_and_in_their_order(self) -> None:
        answers = list(answers_in(self.transport.written))
        refusals = [place for place, (status, *_) in enumerate(answers) if status in REFUSALS]
        assert refusals in ([], [len(answers) - 1])
        whole = answers[:-1] if refusals else answers
        for number, (status, body, is_whole) in enumerate(whole):
            assert status == 200
            assert set(body.split()) <= {b"%d" % number}
            assert is_whole or number == len(whole) - 1
        if refusals:
            assert self.is_broken
            assert self.transport.is_over
            assert len(whole) == self.whole

    @invariant()
    def a_connection_ends_after_what_is_malformed(self) -> None:
        if self.is_broken and not self.asked:
            assert self.transport.is_over

    @invariant()
    def nothing_fails_where_nobody_looks(self) -> None:
        assert not self.faults

    def teardown(self) -> None:
        try:
            for _ in self.kinds:
                self.answer()
            self.every_answer_is_its_requests_and_in_their_order()
            if not self.has_hung_up:
                ends = [*self.kinds[: self.whole], "last"].index("last") + 1
                answers = list(answers_in(self.transport.written))
                good = [status for status, _, is_whole in answers if status == 200 and is_whole]
                assert len(good) >= min(ends, self.whole)
        finally:
            logging.getLogger().removeHandler(self.logged)
            self.transport.close()
            self.settle()
            self.loop.close()


def answers_in(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Status and body of each answer, and whether it is whole."""
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0].startswith(b"HTTP/1.1 "), lines[0]
        status = int(lines[0].split()[1])
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        if headers.get(b"transfer-encoding") == b"chunked":
            body, data, is_whole = chunked(data)
        else:
            size = int(headers[b"content-length"])
            body, data, is_whole = data[:size], data[size:], len(data) >= size
        yield status, body, is_whole


def chunked(data: bytes) -> tuple[bytes, bytes, bool]:
    """A body in chunks, what follows, and whether it is whole."""
    body = b""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line, 16)
        part, end, data = data[:size], data[size : size + 2], data[size + 2 :]
        assert end == b"\r\n"
        if not size:
            return body, data, True
        body += part
    return body, b"", False


@contextmanager
def connection() -> Iterator[Connection]:
    made = Connection()
    try:
        yield made
        made.every_answer_is_its_requests_and_in_their_order()
        made.nothing_fails_where_nobody_looks()
    finally:
        made.teardown()


@pytest.mark.parametrize("data", MALFORMED)
@pytest.mark.parametrize("kind", ["plain", "stream", "parsed"])
def test_what_is_malformed_behind_a_request_ends_the_connection_after_its_answer(
    kind: str, data: bytes
) -> None:
    with connection() as one:
        one.send([kind], 0)
        one.stream_a_part()
        before = one.transport.written
        one.send_malformed(data, 0)
        assert one.transport.written == before
        one.answer()
        ((status, _, is_whole),) = answers_in(one.transport.written)
        assert (status, is_whole, one.transport.is_over) == (200, True, True)


def test_a_head_that_is_late_behind_a_request_ends_the_connection_after_its_answer() -> None:
    with connection() as one:
        one.send(["plain"], 0)
        one.begin("parsed", 5)
        one.wait_too_long()
        assert one.transport.written == b""
        one.answer()
        assert [status for status, *_ in answers_in(one.transport.written)] == [200]
        assert one.transport.is_over


def test_a_body_that_is_late_ends_no_other_request() -> None:
    with connection() as one:
        one.send(["plain"], 0)
        one.send(["parsed"], 0)
        one.is_broken = True
        one.receive(one.next_request("chunked").removesuffix(CHUNKS.encode()))
        one.answer()  # now the caller is heard again, and the second request runs
        one.loop.run_until_complete(asyncio.sleep(11))
        one.settle()
        one.answer()
        assert [status for status, *_ in answers_in(one.transport.written)] == [200, 200]
        assert one.transport.is_over


def test_a_malformed_body_is_refused_in_its_requests_place() -> None:
    with connection() as one:
        one.send(["plain"], 0)
        one.answer()
        one.send_malformed_body("chunked")
        assert [status for status, *_ in answers_in(one.transport.written)] == [200, 400]


def test_a_malformed_body_behind_its_own_answer_gets_no_other() -> None:
    with connection() as one:
        one.send_malformed_body("early")
        assert [status for status, *_ in answers_in(one.transport.written)] == [200]
        assert one.transport.is_over


TestConnection = Connection.TestCase
TestConnection.settings = settings(max_examples=60, stateful_step_count=30)

"""How much of a connection's bytes is read and written in one turn of the event loop.

A body may come in chunks of one byte, or a head in fields of none: each costs a call, so that one
read of the socket would hold the loop for long. The parser is given such bytes in pieces, and what
is left waits for the next turn. Nothing is read from the socket meanwhile. A body that comes as
fast as it is read would hold the loop too, as libuv reads up to 32 times 256 KiB in one turn; and
so would TLS with a long answer. Others get their turn between the pieces of both: of all
connections together, one piece is read or written in one turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from uvicorn.protocols.http.flow_control import FlowControl

# What the parser is given at once: of the smallest chunks or fields less than a millisecond's work.
PIECE_BYTES = 8 * 1024
# After this many calls of the parser in one turn, the next piece is for the next one. A body in one
# part makes a call a piece, and never gets there.
MOST_CALLS = 2048
# After so much in one turn the next read is for the next one.
MUCH_BYTES = 64 * 1024
# A larger answer is written in pieces of so much: of one piece TLS makes a copy that it keeps.
WRITTEN_PIECE_BYTES = 64 * 1024
# Of an answer in one turn: half a millisecond's work of TLS.
_TURN_BYTES = 256 * 1024


class Turns:
    """What connections have to do in pieces: one piece in a turn of their loop, as they came.

    Attributes:
        pieces: that wait for their turns.
    """

    def __init__(self) -> None:
        self.pieces: deque[Callable[[], bool]] = deque()

    def plan(self, loop: asyncio.AbstractEventLoop, piece: Callable[[], bool]) -> None:
        """Does a piece in a later turn, behind those that were planned before.

        It gives whether there was something to do: a connection that has ended takes no turn.
        """
        self.pieces.append(piece)
        if len(self.pieces) == 1:
            loop.call_soon(partial(self._do_next, loop))

    def _do_next(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self.pieces and not self.pieces[0]():
                self.pieces.popleft()
        finally:
            if self.pieces:
                self.pieces.popleft()
            if self.pieces:
                loop.call_soon(partial(self._do_next, loop))


class PacedFlow(FlowControl):
    """Reads from the socket only while nothing waits for the parser."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.unparsed = b""
        self._rests = False

    def keep(self, data: bytes) -> None:
        """Bytes for the next turn; until they are taken, nothing is read."""
        self.unparsed += data
        self._transport.pause_reading()

    def take(self) -> bytes:
        """The bytes that were kept. ``go_on`` has to follow if not all are parsed now."""
        kept, self.unparsed = self.unparsed, b""
        return kept

    def rest(self) -> bool:
        """Reads no more before its turn; whether ``end_rest`` has to follow in one."""
        if self._rests or self._transport.is_closing():
            return False
        self._rests = True
        self._transport.pause_reading()
        return True

    def end_rest(self) -> bool:
        """Its turn has come; whether it reads on."""
        self._rests = False
        return self.go_on()

    def go_on(self) -> bool:
        """Reads again, unless it rests, something is kept, or the application is behind."""
        if self._rests or self.unparsed or self.read_paused or self._transport.is_closing():
            return False
        self._transport.resume_reading()
        return True

    def resume_reading(self) -> None:
        """The application takes more; what waits for the parser, or for its turn, comes first."""
        if self.unparsed or self._rests:
            self.read_paused = False
        else:
            super().resume_reading()


class PacedWriter:
    """Gives a transport long answers in turns, and no more than it has room for.

    While any of it waits, the flow says that nothing may be written.

    Attributes:
        waiting: bytes that the transport was not given yet.
        on_given: is called once it was given all.
    """

    __slots__ = (
        "_flow", "_is_full", "_is_planned", "_loop", "_pieces", "_then", "_transport", "_turns",
        "on_given", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
    ) -> None:
        self.waiting = 0
        self.on_given: Callable[[], None] = lambda: None
        self._transport = transport
        self._flow = flow
        self._loop = loop
        self._turns = turns
        self._pieces: deque[bytes | memoryview] = deque()
        self._is_full = self._is_planned = False
        self._then: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        """Writes behind what waits; of a long answer the first pieces now, if nobody's wait."""
        view = memoryview(data)
        starts = range(0, len(data), WRITTEN_PIECE_BYTES)
        self._pieces.extend(view[start : start + WRITTEN_PIECE_BYTES] for start in starts)
        self.waiting += len(data)
        if self._turns.pieces:
            self._flow.pause_writing()
            self._plan()
        else:
            self._write_on()

    def then(self, work: Callable[[], None]) -> None:
        """Does what is to come behind all that was written: now if nothing waits, or later."""
        if self._pieces:
            self._then = work
        else:
            work()

    def pause(self) -> None:
        """The transport has no room."""
        self._is_full = True
        self._flow.pause_writing()

    def resume(self) -> None:
        """It has room again."""
        self._is_full = False
        if self._pieces:
            self._plan()
        else:
            self._flow.resume_writing()

    def flush(self) -> None:
        """Gives the transport all that waits, before it is closed by others."""
        while self._pieces:
            self._give()

    def forget(self) -> None:
        """The connection is lost, and what waits with it."""
        self._pieces.clear()
        self.waiting = 0
        self._then = None
        self.on_given = lambda: None

    def _plan(self) -> None:
        if not self._is_planned and not self._is_full:
            self._is_planned = True
            self._turns.plan(self._loop, self._write_on)

    def _write_on(self) -> bool:
        self._is_planned = False
        if self._transport.is_closing():
            self.forget()
            return False
        left = _TURN_BYTES
        while self._pieces and left > 0 and not self._is_full:
            left -= self._give()
        if self._pieces:
            self._flow.pause_writing()
            self._plan()
            return True
        if not self._is_full:
            self._flow.resume_writing()
        self.on_given()
        if self._then is not None:
            work, self._then = self._then, None
            work()
        return True

    def _give(self) -> int:
        piece = self._pieces.popleft()
        self.waiting -= len(piece)
        self._transport.write(piece)
        return len(piece)

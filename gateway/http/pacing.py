"""How much of a connection's bytes its parser reads in one turn of the event loop.

A body may come in chunks of one byte, or a head in fields of none: each costs a call, so that one
read of the socket would hold the loop for long. The parser is given such bytes in pieces, and what
is left waits for the next turn. Nothing is read from the socket meanwhile.
"""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

# What the parser is given at once: of the smallest chunks or fields less than a millisecond's work.
PIECE_BYTES = 8 * 1024
# After this many calls of the parser in one turn, the next piece is for the next one. A body in one
# part makes a call a piece, and never gets there.
MOST_CALLS = 2048


class PacedFlow(FlowControl):
    """Reads from the socket only while nothing waits for the parser."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.unparsed = b""

    def keep(self, data: bytes) -> None:
        """Bytes for the next turn; until they are taken, nothing is read."""
        self.unparsed += data
        self._transport.pause_reading()

    def take(self) -> bytes:
        """The bytes that were kept. ``go_on`` has to follow if not all are parsed now."""
        kept, self.unparsed = self.unparsed, b""
        return kept

    def go_on(self) -> None:
        """All that was kept is parsed: reads again, unless the application is behind."""
        if not self.read_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        """The application takes more; what waits for the parser comes first."""
        if self.unparsed:
            self.read_paused = False
        else:
            super().resume_reading()

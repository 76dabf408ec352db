"""Takes a file of requests in: line by line, each looked at once, and none of them kept here.

A line is ``{"custom_id": ..., "method": "POST", "url": "/v1/embeddings", "body": {...}}``. All
name one model, so that a batch is of one vector space. Of a body nothing is made but its model:
what its texts would become is bounded when it is answered.
"""

from hashlib import blake2b
from typing import Annotated, Literal

import msgspec

from gateway.batch_jobs.store import BatchStore, PieceWriter
from gateway.errors import BadRequestError, InvalidInputError, TooLargeError
from gateway.http.messages import decode

MOST_LINES = 50_000  # of a file, as at OpenAI
URL = "/v1/embeddings"
# Of a piece, whose answers are held together by the gateway that runs it.
_PIECE_BYTES = 256 * 1024
_PIECE_LINES = 128
_PIECE_TEXTS = 1024


class _Body(msgspec.Struct, frozen=True):
    model: str
    input: msgspec.Raw


class RequestLine(msgspec.Struct, frozen=True):
    """A line of the input."""

    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: Literal["/v1/embeddings"]
    body: msgspec.Raw


_lines = msgspec.json.Decoder(RequestLine)
_bodies = msgspec.json.Decoder(_Body)


class Intake:
    """The lines of one file. Its methods block on the store.

    Args:
        store: where they go.
        owner: whose they are.
        file: the file's id.
        most_line_bytes: of a line, as of any other request.

    Attributes:
        lines: taken so far.
        model: that all of them name.
        held: bytes that are not written yet.
    """

    def __init__(self, store: BatchStore, owner: str, file: str, most_line_bytes: int) -> None:
        self._most = most_line_bytes
        self._writer = PieceWriter(
            store, owner, file, most_bytes=_PIECE_BYTES, most_lines=_PIECE_LINES
        )
        self._rest = bytearray()
        self._ids: set[bytes] = set()
        self._texts = 0  # of the piece, at most
        self.lines = 0
        self.model = ""

    @property
    def held(self) -> int:
        """See the class."""
        return len(self._rest) + self._writer.size

    def feed(self, data: bytes) -> None:
        """Takes bytes of the file.

        Raises:
            GatewayError: a line that can't be asked, or the store is away.
        """
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._rest) + whole[0]
            self._rest = bytearray()
        for line in whole:
            self._take(line)
        self._rest += rest
        if len(self._rest) > self._most:
            raise self._too_long()

    def finish(self) -> PieceWriter:
        """Takes what is left; gives the pieces.

        Raises:
            GatewayError: as ``feed``; or there was no line.
        """
        self._take(bytes(self._rest))
        self._rest.clear()
        if not self.lines:
            raise InvalidInputError("file: it holds no request.")
        self._writer.flush()
        return self._writer

    def _take(self, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        if len(line) > self._most:
            raise self._too_long()
        if self.lines >= MOST_LINES:
            raise TooLargeError(f"The file has more than {MOST_LINES} requests: send several.")
        try:
            found = decode(_lines, line)
            body = decode(_bodies, bytes(found.body))
        except (BadRequestError, InvalidInputError) as error:
            raise type(error)(f"file, line {self.lines + 1}: {error.message}") from None
        key = blake2b(found.custom_id.encode(), digest_size=16).digest()
        if key in self._ids:
            raise InvalidInputError(
                f"file, line {self.lines + 1}: a line before it has the same custom_id "
                f"{found.custom_id[:80]!r}."
            )
        if self.model and body.model != self.model:
            raise InvalidInputError(
                f"file, line {self.lines + 1}: it names the model {body.model[:80]!r} and the "
                f"first one {self.model[:80]!r}; all lines of a file have to name one."
            )
        self._ids.add(key)
        self.model = body.model
        self.lines += 1
        self._writer.add(line)
        self._texts += 1 + bytes(body.input).count(b",")  # a comma in a text counts too
        if self._texts >= _PIECE_TEXTS:
            self._writer.flush()
        if not self._writer.size:
            self._texts = 0

    def _too_long(self) -> TooLargeError:
        return TooLargeError(
            f"file, line {self.lines + 1}: it is longer than {self._most} bytes, which no request "
            "may be."
        )

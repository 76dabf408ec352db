"""What is written about files and batches: small JSON objects, each written once but a lease.

Ids hold the time when they were made, so that what is old is found by its name.
"""

import hashlib
import re
import secrets
from typing import Literal

import msgspec

FILE_ID = re.compile(r"file-[0-9a-f]{32}")
BATCH_ID = re.compile(r"batch_[0-9a-f]{32}")
_NOBODY = "everybody"  # the folder of callers without keys

Outcome = Literal["completed", "failed", "expired", "cancelled"]


class Piece(msgspec.Struct, frozen=True):
    """A part of a file that is read at once: whole lines."""

    bytes: int
    lines: int


class FileRecord(msgspec.Struct, frozen=True):
    """A file, which is there once this is. ``model``: the endpoint that all its lines name."""

    id: str
    created_at: int  # unix seconds
    filename: str
    purpose: Literal["batch", "batch_output"]
    pieces: list[Piece]
    model: str = ""

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(each.bytes for each in self.pieces)

    @property
    def lines(self) -> int:
        """Its lines that hold anything."""
        return sum(each.lines for each in self.pieces)


class BatchRecord(msgspec.Struct, frozen=True):
    """What was asked for. ``caller``: the key's name; ``space``: that the caller named."""

    id: str
    created_at: int
    expires_at: int
    input_file_id: str
    model: str
    pieces: list[Piece]  # of the input
    metadata: dict[str, str] | None = None
    caller: str | None = None
    space: str | None = None

    @property
    def lines(self) -> int:
        """Its requests."""
        return sum(each.lines for each in self.pieces)


class BatchLease(msgspec.Struct, frozen=True):
    """Who runs a batch, and how far that is.

    ``beat`` is another each time; one that stays tells that the holder is gone, or it was
    ``released``. Nobody's clock is compared with another's.
    """

    holder: str
    beat: int = 0
    released: bool = False
    since: int = 0  # unix seconds
    completed: int = 0
    failed: int = 0


class BatchEnd(msgspec.Struct, frozen=True):
    """What became of a batch. It is over once this is there."""

    outcome: Outcome
    at: int
    completed: int = 0
    failed: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    reason: str = ""  # of a batch that failed as a whole


class PartHead(msgspec.Struct, frozen=True):
    """The first line of a part: how many lines of answers follow it, then how many of errors."""

    completed: int
    failed: int


def new_id(kind: Literal["file-", "batch_"], now: float) -> str:
    """An id that nobody can guess."""
    return f"{kind}{int(now):08x}{secrets.token_hex(12)}"


def derived_file_id(batch: str, expires_at: int, kind: Literal["o", "e"]) -> str:
    """The id of a batch's output or errors: always the same, so that it is written once.

    It counts as made when the batch expires, so that it is kept for long enough after that.
    """
    name = f"{batch}/{kind}".encode()
    return f"file-{expires_at:08x}{hashlib.sha256(name).hexdigest()[:24]}"


def made_at(name: str) -> int:
    """When an id was made, unix seconds."""
    return int(name.partition("-" if name.startswith("file-") else "_")[2][:8], 16)


def folder_of(caller: str | None) -> str:
    """The folder of all that a key has here, by the key's name."""
    if caller is None:
        return _NOBODY
    return hashlib.sha256(caller.encode()).hexdigest()[:32]

"""Files and batches of all keys, in a store that all gateways share.

``files/OWNER/ID/`` holds a file's pieces and, written last, ``file.json``; ``batches/OWNER/ID/`` a
batch: ``batch.json``, ``space`` (the vector space that answered first), ``lease-N``,
``part-N`` (the answers to piece N of its input), ``cancel``, and ``end.json``. ``open/OWNER.ID`` is
there as long as a batch may have to be run. Each of them is created once and never changed, but
``lease-N`` by its holder; if a batch is run twice, no id is lost or doubled.

Everybody sees only what lies in the own folder.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from gateway.batch_jobs.objects import ObjectFolder
from gateway.batch_jobs.records import (
    BATCH_ID,
    FILE_ID,
    BatchEnd,
    BatchLease,
    BatchRecord,
    FileRecord,
    PartHead,
    Piece,
    made_at,
)
from gateway.errors import RETRY_AFTER_SECONDS, BatchStoreUnavailableError, UnknownFileError

T = TypeVar("T")

_MOST_FILES = 100
_MOST_OPEN = 16
MOST_BATCHES = 1000  # of a key, with those that are over
_THREADS = 8
_MOST_WAITING = 256  # calls of the store
_CALL_SECONDS = 60.0  # of one; drivers have shorter times of their own
_GRACE_SECONDS = 3600  # after which what was never finished is nobody's
_encode = msgspec.json.encode


class BatchStore:
    """The store. Its methods block; ``ask`` has one done in a thread.

    Args:
        objects: where all lies.
        file_bytes: of one file at most.
        days: after which files and batches are removed.
        most_files: of a key, outputs among them.
        most_open: batches of a key that are not over.

    Attributes:
        on_new: is called, in the event loop, once a batch was made here.
    """

    def __init__(
        self,
        objects: ObjectFolder,
        *,
        file_bytes: int,
        days: float,
        most_files: int = _MOST_FILES,
        most_open: int = _MOST_OPEN,
    ) -> None:
        self._objects = objects
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="batch-store")
        self._waiting = 0
        self.on_new: Callable[[], None] = lambda: None
        self.file_bytes = file_bytes
        self.days = days
        self.most_files = most_files
        self.most_open = most_open

    async def ask(self, work: Callable[[], T]) -> T:
        """What a method gives, in time.

        Raises:
            BatchStoreUnavailableError: it takes too long, or too much waits already.
            GatewayError: what the method raises.
        """
        if self._waiting >= _MOST_WAITING:
            raise _busy()
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._note_done)
        try:
            # Not by ``wait_for``, which before Python 3.12 forgets that it was cancelled.
            async with asyncio.timeout(_CALL_SECONDS):
                return await asyncio.shield(future)
        except TimeoutError:
            raise _busy() from None

    def _note_done(self, future: "asyncio.Future[Any]") -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # somebody has seen it, or nobody waits any more

    def soon(self, work: Callable[[], object]) -> None:
        """Has a method done, whatever it gives; nobody waits for it."""
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._note_done)

    def close(self) -> None:
        """Ends the threads, without waiting for the store."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Files.

    def put_piece(self, owner: str, file: str, number: int, data: bytes) -> None:
        """Writes a piece of a file that is not there yet."""
        self._objects.put(_piece(owner, file, number), data)

    def add_file(self, owner: str, record: FileRecord) -> None:
        """Makes a file of pieces that have been written."""
        self._objects.put(f"files/{owner}/{record.id}/file.json", _encode(record))

    def file(self, owner: str, name: str) -> FileRecord:
        """A file; raises ``UnknownFileError``."""
        found = None
        if FILE_ID.fullmatch(name):
            found = self._objects.read(f"files/{owner}/{name}/file.json")
        return _record(found, FileRecord, f"file {name[:80]!r}")

    def piece(self, owner: str, file: str, number: int) -> bytes:
        """A piece of a file; raises ``UnknownFileError``: it was removed."""
        found = self._objects.read(_piece(owner, file, number))
        if found is None:
            raise UnknownFileError(f"The file {file} was removed.")
        return found

    def file_ids(self, owner: str) -> list[str]:
        """All files, the newest first, and those that are being written."""
        return self._ids(f"files/{owner}", FILE_ID.fullmatch)

    def remove_file(self, owner: str, name: str) -> None:
        """Removes a file, or what there is of one."""
        self._objects.remove(f"files/{owner}/{name}/file.json")
        self._objects.remove(f"files/{owner}/{name}")

    # Batches, as their callers see them.

    def add_batch(self, owner: str, record: BatchRecord) -> None:
        """Makes a batch, which gateways find from now on."""
        self._objects.put(f"open/{owner}.{record.id}", b"{}")
        self._objects.put(_in(owner, record.id, "batch.json"), _encode(record))

    def batch(self, owner: str, name: str) -> BatchRecord:
        """What was asked for; raises ``UnknownFileError``."""
        found = None
        if BATCH_ID.fullmatch(name):
            found = self._objects.read(_in(owner, name, "batch.json"))
        return _record(found, BatchRecord, f"batch {name[:80]!r}")

    def batch_ids(self, owner: str) -> list[str]:
        """All batches, the newest first."""
        return self._ids(f"batches/{owner}", BATCH_ID.fullmatch)

    def cancel(self, owner: str, name: str, now: float) -> None:
        """Asks for a batch to be cancelled; one that is over stays as it is."""
        self._objects.create(_in(owner, name, "cancel"), str(int(now)).encode())

    def cancelled_at(self, owner: str, name: str) -> int | None:
        """When that was asked for, unix seconds; None: it was not."""
        found = self._objects.read(_in(owner, name, "cancel"))
        return None if found is None else int(found)

    def end(self, owner: str, name: str) -> BatchEnd | None:
        """What became of a batch; None while it is not over."""
        found = self._objects.read(_in(owner, name, "end.json"))
        return None if found is None else msgspec.json.decode(found, type=BatchEnd)

    def space(self, owner: str, name: str) -> str | None:
        """The space of a batch's vectors, maybe empty; None until one has answered."""
        found = self._objects.read(_in(owner, name, "space"))
        return None if found is None else found.decode()

    # Batches, as gateways run them.

    def open_batches(self) -> list[tuple[str, str]]:
        """Owner and id of each that may have to be run, the oldest first."""
        found = [name.partition(".")[::2] for name in self._objects.names("open")]
        return sorted(
            ((owner, name) for owner, name in found if BATCH_ID.fullmatch(name)),
            key=lambda each: each[1],
        )

    def lease(self, owner: str, name: str) -> tuple[int, BatchLease | None]:
        """The newest lease of a batch and its number; 0 and None if there is none."""
        names = self._objects.names(f"batches/{owner}/{name}")
        numbers = [int(each[6:]) for each in names if each.startswith("lease-")]
        newest = max(numbers, default=0)
        found = self._objects.read(_lease(owner, name, newest)) if newest else None
        try:
            return newest, None if found is None else msgspec.json.decode(found, type=BatchLease)
        except msgspec.DecodeError:
            # Nobody's, which runs out as any other does.
            return newest, BatchLease("", since=made_at(name))

    def take(self, owner: str, name: str, number: int, lease: BatchLease) -> bool:
        """Takes a batch by a new lease; False: another gateway has."""
        return self._objects.create(_lease(owner, name, number), _encode(lease))

    def renew(self, owner: str, name: str, number: int, lease: BatchLease) -> bool:
        """Says that the holder lives; False: another gateway has taken the batch meanwhile."""
        newest, found = self.lease(owner, name)
        if newest != number or (found is not None and found.holder != lease.holder):
            return False
        self._objects.put(_lease(owner, name, number), _encode(lease))
        return True

    def pin(self, owner: str, name: str, space: str) -> str:
        """Keeps the space that answered first; gives the one that did."""
        self._objects.create(_in(owner, name, "space"), space.encode())
        found = self.space(owner, name)
        return space if found is None else found

    def parts(self, owner: str, name: str) -> set[int]:
        """Numbers of the pieces that are answered."""
        names = self._objects.names(f"batches/{owner}/{name}")
        return {int(each[5:]) for each in names if each.startswith("part-")}

    def put_part(
        self, owner: str, name: str, number: int, answers: list[bytes], errors: list[bytes]
    ) -> None:
        """Keeps the answers to a piece, unless another gateway has done so; lines without ends."""
        head = _encode(PartHead(len(answers), len(errors)))
        data = b"\n".join([head, *answers, *errors])
        self._objects.create(_in(owner, name, f"part-{number:06d}"), data)

    def part(self, owner: str, name: str, number: int) -> tuple[list[bytes], list[bytes]]:
        """The lines of a part: answers and errors."""
        data = self._objects.read(_in(owner, name, f"part-{number:06d}"))
        if data is None:
            raise UnknownFileError(f"Part {number} of batch {name} was removed.")
        lines = data.split(b"\n")
        head = msgspec.json.decode(lines[0], type=PartHead)
        return lines[1 : 1 + head.completed], lines[1 + head.completed :]

    def finish(self, owner: str, name: str, end: BatchEnd) -> None:
        """Ends a batch, once; what is of no use any more goes."""
        self._objects.create(_in(owner, name, "end.json"), _encode(end))
        for each in self._objects.names(f"batches/{owner}/{name}"):
            if each.startswith("part-"):
                self._objects.remove(_in(owner, name, each))
        self.close_batch(owner, name)

    def close_batch(self, owner: str, name: str) -> None:
        """Nobody need run it any more."""
        self._objects.remove(f"open/{owner}.{name}")

    # What is old.

    def sweep(self, now: float) -> None:
        """Removes files and batches that are older than they may become, and uploads that broke."""
        oldest, unfinished = now - self.days * 86400, now - _GRACE_SECONDS
        read = self._inputs()
        for owner in self._objects.names("files"):
            for name in self._ids(f"files/{owner}", FILE_ID.fullmatch):
                is_old = made_at(name) < oldest and (owner, name) not in read
                if is_old or (made_at(name) < unfinished and not self._is_file(owner, name)):
                    self.remove_file(owner, name)
        for owner in self._objects.names("batches"):
            for name in self._ids(f"batches/{owner}", BATCH_ID.fullmatch):
                if made_at(name) < oldest and self._find_expiry(owner, name) < oldest:
                    self.close_batch(owner, name)
                    self._objects.remove(f"batches/{owner}/{name}")

    def _find_expiry(self, owner: str, name: str) -> float:
        """When a batch has to have ended, so that its caller has time to read that."""
        try:
            return self.batch(owner, name).expires_at
        except UnknownFileError:  # it was never made
            return made_at(name)

    def _inputs(self) -> set[tuple[str, str]]:
        """Owner and id of each file that a batch reads."""
        found = set()
        for owner, name in self.open_batches():
            with suppress(UnknownFileError):
                found.add((owner, self.batch(owner, name).input_file_id))
        return found

    def _is_file(self, owner: str, name: str) -> bool:
        return self._objects.read(f"files/{owner}/{name}/file.json") is not None

    def _ids(self, folder: str, is_id: Callable[[str], object]) -> list[str]:
        return [each for each in reversed(self._objects.names(folder)) if is_id(each)]


def _record(found: bytes | None, kind: type[T], what: str) -> T:
    try:
        if found is not None:
            return msgspec.json.decode(found, type=kind)
    except msgspec.DecodeError:
        raise UnknownFileError(f"What is kept of {what} can't be read.") from None
    raise UnknownFileError(f"There is no {what} of this API key.")


class PieceWriter:
    """Cuts lines into pieces of a file, and writes them. A piece is small; one line is never cut.

    Args:
        store: where they go.
        owner: whose file it is.
        file: its id.
        most_bytes: of a piece, unless its last line is longer.
        most_lines: of a piece.

    Attributes:
        size: bytes that wait to be written.
        pieces: those that are.
    """

    def __init__(
        self, store: BatchStore, owner: str, file: str, *, most_bytes: int, most_lines: int
    ) -> None:
        self._write = partial(store.put_piece, owner, file)
        self._most_bytes, self._most_lines = most_bytes, most_lines
        self._lines: list[bytes] = []
        self.size = 0
        self.pieces: list[Piece] = []

    def add(self, line: bytes) -> None:
        """Takes a line, without its end."""
        self._lines.append(line)
        self.size += len(line) + 1
        if self.size >= self._most_bytes or len(self._lines) >= self._most_lines:
            self.flush()

    def flush(self) -> None:
        """Writes what was not."""
        if self._lines:
            self._write(len(self.pieces), b"\n".join([*self._lines, b""]))
            self.pieces.append(Piece(self.size, len(self._lines)))
            self._lines, self.size = [], 0


def lines_of(piece: bytes) -> Iterator[bytes]:
    """The lines of a piece."""
    return iter(piece.removesuffix(b"\n").split(b"\n"))


def _piece(owner: str, file: str, number: int) -> str:
    return f"files/{owner}/{file}/{number:06d}.jsonl"


def _in(owner: str, batch: str, name: str) -> str:
    return f"batches/{owner}/{batch}/{name}"


def _lease(owner: str, batch: str, number: int) -> str:
    return _in(owner, batch, f"lease-{number:06d}")


def _busy() -> BatchStoreUnavailableError:
    return BatchStoreUnavailableError(
        "The store of files and batches does not answer in time; try again.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )

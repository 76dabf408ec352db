"""Tokenisers that are opened when asked for: in threads in place of processes, as tests tell."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway_world import manifest_of, tokenizer_json
from tokenizers import Tokenizer, models, pre_tokenizers

from contracts.manifest import MANIFEST, TOKENIZER, PackageFile
from contracts.model import ModelRef
from gateway.packages import HereOrApart, PackageError, ServedModel, StorePackages
from gateway.tokenising.on_demand import OnDemand
from preprocess.tokeniser_process.serving import serve

MEGABYTE = 1_000_000
SIZE = 10 * MEGABYTE  # of each tokeniser, as it measures itself


class ThreadSpawner:
    """Answers on each socket in a thread, and counts."""

    def __init__(self, size: Callable[[], int] = lambda: SIZE) -> None:
        self.started = 0
        self.running = 0
        self.most_running = 0
        self.go_on = asyncio.Event()  # cleared: none is started until it is set
        self.go_on.set()
        self.asked_for = asyncio.Event()
        self.away = False
        self.sockets: list[socket.socket] = []
        self._size = size
        self._lock = threading.Lock()
        self.ahead = 0  # times that it was started before anybody asked

    async def start(self) -> None:
        self.ahead += 1
        if self.away:
            raise PackageError("no process can be started")

    async def connect(self) -> socket.socket:
        self.asked_for.set()
        await self.go_on.wait()
        if self.away:
            raise PackageError("no process can be started")
        ours, theirs = socket.socketpair()
        self.started += 1
        self.sockets.append(theirs)
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        ours.setblocking(False)
        return ours

    def _serve(self, connection: socket.socket) -> None:
        with (
            suppress(OSError, ValueError),
            connection,
            connection.makefile("rb") as source,
            connection.makefile("wb") as target,
        ):
            try:
                serve(source, target, self._size)
            finally:  # before the owner reads the end: it opens the next one then
                with self._lock:
                    self.running -= 1

    def kill(self, index: int) -> None:
        """Ends one as a crash would."""
        self.sockets[index].shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        pass


class Openings:
    """Keeps how long openings took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def tokeniser_opened(self, seconds: float) -> None:
        self.seconds.append(seconds)


def words_of(number: int) -> bytes:
    """A tokeniser that differs from any other's."""
    return tokenizer_json().replace(b'"w49"', b'"v%d"' % number)


def large_words(number: int, words: int = 30_000) -> bytes:
    """One of the usual size: some 10 MB of a process's memory."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, f"v{number}": 2 + number}
    vocabulary |= {f"word{at}": 100 + at for at in range(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    content: str = tokenizer.to_str()
    return content.encode()


def huge_pieces(pieces: int = 150_000) -> bytes:
    """One of a multilingual model's kind: a second of a processor to open, 100 MB and more."""
    scored = [
        ("<unk>", 0.0),
        *((f"\u2581p{at}x{at * 7919}", -1.0 - at % 13) for at in range(pieces)),
    ]
    content: str = Tokenizer(models.Unigram(scored, unk_id=0)).to_str()
    return content.encode()


class Shelf:
    """A store of packages that differ in their tokenisers, and what opens them.

    Args:
        folder: scratch.
        most_here: bytes of those that are opened in this process.
    """

    def __init__(self, folder: Path, most_here: int = 0) -> None:
        self.store = folder / "store"
        self.here = HereOrApart(most_here)
        self.packages = StorePackages(self.store.as_uri(), folder / "cache", here=self.here)

    def put(self, version: str, content: bytes | None = None) -> ModelRef:
        """A package whose tokeniser is its own, or this one."""
        content = words_of(int(version)) if content is None else content
        proof = PackageFile(sha256=_digest(content), bytes=len(content))
        manifest = manifest_of(version).model_copy(update={"files": {TOKENIZER: proof}})
        folder = self.store / manifest.package_id()
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_bytes(manifest.canonical())
        (folder / TOKENIZER).write_bytes(content)
        return manifest.ref()

    def model(self, version: str) -> ServedModel:
        """The same, opened."""
        return self.packages.open(self.put(version))


def _digest(content: bytes) -> str:

    return hashlib.sha256(content).hexdigest()


@asynccontextmanager
async def on_demand(
    shelf: Shelf, spawner: ThreadSpawner, most_bytes: int = 100 * SIZE
) -> AsyncIterator[OnDemand]:
    """The owner of these tokenisers; all are closed at the end."""
    owner = OnDemand(most_bytes, spawner, Openings(), shelf.packages.open)
    try:
        async with asyncio.timeout(120):
            yield owner
    finally:
        await owner.close()
    assert owner.room.callers == 0

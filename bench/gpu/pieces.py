"""Folders as archives, and archives as pieces that are small enough to travel one by one.

An archive of the same files has the same bytes, so that one which is there already is not made
again. The first archive is one that any machine unpacks; it brings what unpacks the others, which
are compressed ten times as fast. ``unpack.sh`` beside this module undoes it. It knows nothing of
what the folders hold.
"""

import hashlib
import lzma
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import zstandard

PIECE_BYTES = 57 * 2**20  # a little less than what may travel at once
_BLOCK = 2**20
_OF_DIGESTS = 1000  # bytes of a piece that are kept for them
_UNUSED = {"__pycache__"}
EVERYWHERE, FAST = ".tar.xz", ".tar.zst"
_LEVEL, _WINDOW = 12, 27


@dataclass(frozen=True)
class Archive:
    """A packed folder; ``name`` has its ending."""

    name: str
    file: Path
    sha256: str

    @property
    def size(self) -> int:
        """Bytes."""
        return self.file.stat().st_size


def pack(name: str, folder: Path, into: Path, ending: str = FAST) -> Archive:
    """Packs what the folder holds, unless ``into`` has the same already."""
    plain = _Digest()
    _write(folder, plain)
    file = into / f"{name}-{plain.sha256[:16]}{ending}"
    if not file.is_file():
        into.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".aside")
        with _compress(aside, ending) as packed:
            _write(folder, packed)
        for old in into.glob(f"{name}-{'?' * 16}{ending}"):
            old.unlink()
        aside.rename(file)
    return Archive(f"{name}{ending}", file, _sha256(file))


@contextmanager
def _compress(file: Path, ending: str) -> Iterator[object]:
    if ending == EVERYWHERE:
        with lzma.open(file, "wb", preset=6) as packed:
            yield packed
        return
    told = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW, enable_ldm=True, threads=-1
    )
    compressor = zstandard.ZstdCompressor(compression_params=told)
    with file.open("wb") as plain, compressor.stream_writer(plain) as packed:
        yield packed


def divide(archives: Sequence[Archive], into: Path, most: int = PIECE_BYTES) -> list[Path]:
    """Writes the archives as folders ``piece-01`` and so on of at most this many bytes, in order.

    Pieces are full, so that they are few: an archive may go on in the next. The piece in which it
    ends has its digest.
    """
    for old in into.glob("piece-*"):
        shutil.rmtree(old)
    pieces: list[Path] = []
    room = 0
    for archive in archives:
        parts: list[tuple[Path, int]] = []
        left = archive.size
        while left or not parts:
            if room == 0:
                pieces.append(into / f"piece-{len(pieces) + 1:02}")
                pieces[-1].mkdir(parents=True)
                room = most - _OF_DIGESTS
            parts.append((pieces[-1], min(left, room)))
            left -= parts[-1][1]
            room -= parts[-1][1]
        with archive.file.open("rb") as source:
            for number, (piece, size) in enumerate(parts, start=1):
                _copy(source, piece / f"{archive.name}.{number:02}of{len(parts):02}", size)
        told = f"{archive.sha256}  -\n"
        (pieces[-1] / f"{archive.name}.sha256").write_text(told, encoding="ascii")
    return pieces


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class _Digest:
    """A file that only counts and digests what is written."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """See ``IO``."""
        self._hash.update(data)
        return len(data)

    @property
    def sha256(self) -> str:
        """Of all that was written."""
        return self._hash.hexdigest()


def _write(folder: Path, file: object) -> None:
    """The folder as a tar; its order, times and owners say nothing of when and by whom."""
    target = cast("IO[bytes]", file)  # it only has to write
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in _below(folder):
            info = tar.gettarinfo(path, str(path.relative_to(folder)))
            info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
            with _content(path, info) as content:
                tar.addfile(info, content)


@contextmanager
def _content(path: Path, info: tarfile.TarInfo) -> Iterator[IO[bytes] | None]:
    if not info.isreg():
        info.size = 0
        if info.islnk():  # a second name of the same content is content too
            info.type, info.linkname = tarfile.REGTYPE, ""
        else:
            yield None
            return
    info.size = path.stat().st_size
    with path.open("rb") as content:
        yield content


def _below(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _UNUSED:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _copy(source: IO[bytes], target: Path, size: int) -> None:
    with target.open("wb") as piece:
        while size and (block := source.read(min(_BLOCK, size))):
            size -= piece.write(block)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

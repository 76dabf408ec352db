"""A version's model and its packages as one file of its package: equal bytes for equal files.

This file is copied beside Triton's model, which unpacks there: it needs only the standard library.
It never runs any of what it packs.
"""

import fcntl
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

MODEL = "model"  # MLflow's folder of the version
SITE = "site"  # the packages that it needs

MOST_FILES = 200_000
MOST_BYTES = 8 << 30  # of all files together
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file, since the archive's digest names it
_LEVEL = 1  # packages hardly become smaller by more


class PyfuncArchiveError(Exception):
    """The files can't be packed or unpacked; the message says why."""


def pack(folders: Mapping[str, Path], target: Path) -> dict[str, int]:
    """Writes an archive of all files of some folders; returns the bytes of each, by its name.

    Raises:
        PyfuncArchiveError: too many files, too large, or a link.
        OSError: a file can't be read, or the archive can't be written.
    """
    count = total = 0
    sizes = dict.fromkeys(folders, 0)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, folder in sorted(folders.items()):
            for path in sorted(folder.rglob("*")):
                place = f"{name}/{path.relative_to(folder).as_posix()}"
                if path.is_symlink():
                    raise PyfuncArchiveError(f"it has a link: {place}")
                if not path.is_file():
                    continue
                size = path.stat().st_size
                count, total = count + 1, total + size
                sizes[name] += size
                _check_size(count, total)
                entry = zipfile.ZipInfo(place, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.file_size = size  # so that ZIP64 is used if it is needed
                with path.open("rb") as source, archive.open(entry, "w") as written:
                    shutil.copyfileobj(source, written)
    return sizes


def unpack(archive: Path, folder: Path, most_bytes: int | None = None) -> None:
    """Writes an archive's files into ``folder``, which appears whole; nothing if it is there.

    Several processes may do so at the same time. ``most_bytes``: of all files, if that is known.

    Raises:
        PyfuncArchiveError: it is none, too large, or a name leads out of the folder.
        OSError: the folder can't be written.
    """
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            _extract(archive, aside, most_bytes)
            aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _extract(path: Path, folder: Path, most_bytes: int | None) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            _check_size(len(members), size)
            if most_bytes is not None and size > most_bytes:
                raise PyfuncArchiveError(
                    f"{path.name} unpacks to {size:,} bytes, and its package tells "
                    f"of {most_bytes:,}"
                )
            for member in members:
                name = PurePosixPath(member.filename)
                if not name.parts or ".." in name.parts or name.is_absolute():
                    raise PyfuncArchiveError(f"{member.filename} lies outside the archive's folder")
                target = folder.joinpath(*name.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                # No more is read than the size that was counted.
                with archive.open(member) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise PyfuncArchiveError(f"{path.name} can't be read: {error}") from error


def _check_size(files: int, size: int) -> None:
    if files > MOST_FILES or size > MOST_BYTES:
        raise PyfuncArchiveError(
            f"the model and its packages have {files} files of {size:,} bytes; "
            f"{MOST_FILES} of {MOST_BYTES:,} may be there"
        )

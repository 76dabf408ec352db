"""The code of a version as one file of its package: a ZIP archive, equal bytes for equal code.

A version brings code by a file ``headrace_preprocessor.py`` in its folder ``code``, where MLflow
puts what its ``code_paths`` name. All of that folder is taken. It never runs any of it.
"""

import io
import shutil
import zipfile
from pathlib import Path, PurePosixPath

FOLDER = "code"
MODULE = "headrace_preprocessor"
CLASS = "Preprocessor"

MOST_FILES = 500
MOST_BYTES = 20_000_000  # of all files together
_COMPILED = ("__pycache__", ".pyc", ".pyo")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file, since the archive's digest names it


class ArchiveError(Exception):
    """The code can't be packed or unpacked; the message says why."""


def brings_code(version: Path) -> bool:
    """Whether a downloaded version brings code that is meant for gateways."""
    return (version / FOLDER / f"{MODULE}.py").is_file()


def pack(folder: Path) -> bytes:
    """The archive of all files of a folder.

    Raises:
        ArchiveError: too many files, too large, or a link.
    """
    made = io.BytesIO()
    total = 0
    names = sorted(path for path in folder.rglob("*") if not _is_compiled(path))
    files = [path for path in names if path.is_symlink() or path.is_file()]
    if len(files) > MOST_FILES:
        raise ArchiveError(f"its code has {len(files)} files, and {MOST_FILES} may be there")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                raise ArchiveError(f"its code has a link: {name}")
            total += path.stat().st_size
            if total > MOST_BYTES:
                raise ArchiveError(f"its code has more than {MOST_BYTES // 1_000_000} MB")
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    return made.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Writes an archive's files into an empty folder.

    Raises:
        ArchiveError: it is none, too large, or a name leads out of the folder.
        OSError: the folder can't be written.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > MOST_FILES or size > MOST_BYTES:
                raise ArchiveError("the archive of the code is too large")
            for member in members:
                parts = PurePosixPath(member.filename).parts
                if not parts or ".." in parts or PurePosixPath(member.filename).is_absolute():
                    raise ArchiveError(f"{member.filename} lies outside the code's folder")
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise ArchiveError(f"the archive of the code can't be read: {error}") from error


def _is_compiled(path: Path) -> bool:
    return any(part.endswith(_COMPILED) for part in path.parts)

"""Which JSON files a folder holds now, for those that follow one by looking at it again and again.

A folder that is not there, or can't be listed, is an error and never an empty one: a program that
took it for empty would stop serving, or remove, what nobody asked to be removed. ``Path.glob``
hides both.
"""

import os
from contextlib import suppress
from pathlib import Path

SUFFIX = ".json"

Stamp = tuple[int, int, int]  # inode, size, nanoseconds of the last change


def stamps(folder: Path) -> dict[str, Stamp]:
    """The folder's ``*.json`` files by name, hidden ones left out; a stamp changes with its file.

    Raises:
        OSError: the folder can't be listed, so that nobody knows what it holds.
    """
    found: dict[str, Stamp] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.name.endswith(SUFFIX):
                continue
            with suppress(FileNotFoundError):  # taken away since it was listed
                status = entry.stat()
                found[entry.name] = status.st_ino, status.st_size, status.st_mtime_ns
    folder.stat()  # one that went away meanwhile took its files along
    return dict(sorted(found.items()))

"""Writes a small file whole or not at all.

A reader sees the old bytes or the new ones, never half of them, also across a crash.
"""

import os
import threading
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Writes beside ``path``, syncs, and renames over it; raises ``OSError``."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        aside.write_bytes(data)
        sync(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, with their names on the disk; raises ``OSError``."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Waits until a file's bytes, or a folder's names, are on the disk; raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

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
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)

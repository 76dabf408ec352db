"""The services' log files: kept under a bound, and read for the end of one that failed.

The files are written by the services themselves.
"""

import asyncio
import contextlib
import os
from collections.abc import Collection
from pathlib import Path

_LIMIT_BYTES = 20_000_000
_CHECK_SECONDS = 15.0
_TAIL_BYTES = 1_500


def tail(path: Path) -> str:
    """The end of a log."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _TAIL_BYTES))
        return log.read().decode(errors="replace").strip()


async def keep_bounded(paths: Collection[Path]) -> None:
    """Keeps each log under 20 MB, with one older file beside it, until it is cancelled."""
    while True:
        for path in paths:
            # A full disk is no reason to look no more.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(bound, path, _LIMIT_BYTES)
        await asyncio.sleep(_CHECK_SECONDS)


def bound(path: Path, limit_bytes: int) -> None:
    """Moves a log that has grown past the limit to ``<name>.1`` and empties it.

    The writers hold it open for appending, so it is copied and cut rather than renamed.
    """
    try:
        if path.stat().st_size <= limit_bytes:
            return
    except FileNotFoundError:
        return
    older = path.with_name(f"{path.name}.1")
    older.write_bytes(path.read_bytes())
    os.truncate(path, 0)

"""A folder of JSON files, one object a file, watched by looking at it every quarter of a second.

The local stack's endpoints and reports lie in such folders. A file that can't be read keeps its
last good object, a folder that is away keeps them all; both are logged once. Nothing is told before
the folder was listed once: a gateway that has not learnt what to serve is not ready. Never writes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from service import json_files
from service.json_files import Stamp

log = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Seen(Generic[T]):
    stamp: Stamp
    value: T | None  # None: never read whole


class FolderSource(Generic[T]):
    """Objects of one type, from the ``*.json`` files of one folder.

    Args:
        folder: need not exist yet.
        kind: the pydantic model of one file.
        poll_seconds: time between two looks.
    """

    def __init__(self, folder: Path, kind: type[T], poll_seconds: float = POLL_SECONDS) -> None:
        self._folder = folder
        self._kind = kind
        self._poll_seconds = poll_seconds
        self._seen: dict[str, _Seen[T]] = {}
        self._away = False
        self._listed = False  # at least once

    async def watch(self) -> AsyncGenerator[tuple[T, ...], None]:
        """See ``EndpointSource.watch``; objects come in the order of their file names."""
        told = False
        while True:
            changed = await asyncio.to_thread(self.look)
            if changed or (self._listed and not told):
                told = True
                yield self.objects()
            await asyncio.sleep(self._poll_seconds)

    def objects(self) -> tuple[T, ...]:
        """The last good object of every file."""
        seen = sorted(self._seen.items())
        return tuple(entry.value for _, entry in seen if entry.value is not None)

    def look(self) -> bool:
        """Reads what is new; true if any object changed, came or went. Blocks on the disk."""
        try:
            stamps = json_files.stamps(self._folder)
        except OSError as error:
            if not self._away:
                log.warning("folder is not there", extra={"reason": str(error)})
            self._away = True
            return False
        self._away, self._listed = False, True
        gone = self._seen.keys() - stamps.keys()
        for name in gone:
            del self._seen[name]
        changed = bool(gone)
        for name, stamp in stamps.items():
            old = self._seen.get(name)
            if old is None or old.stamp != stamp:
                changed |= self._read(name, stamp, old)
        return changed

    def _read(self, name: str, stamp: Stamp, old: _Seen[T] | None) -> bool:
        last = old.value if old is not None else None
        try:
            value = self._kind.model_validate_json((self._folder / name).read_bytes())
        except (OSError, ValidationError) as error:
            log.warning(
                "file can't be read; its last good object stays",
                extra={"file": name, "reason": str(error)},
            )
            self._seen[name] = _Seen(stamp, last)
            return False
        self._seen[name] = _Seen(stamp, value)
        return value != last

"""Keeps the last endpoints and reports on disk, for a start while the API server is unreachable.

The file is replaced atomically, by one process, and only with what the sources themselves have
sent. What was read from the file is never written again, so that nothing newer is replaced by
something older. The file is read if no source has answered in time, and a gateway that serves from
it reports how old it is.
"""

import asyncio
import fcntl
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from service import durable

log = logging.getLogger(__name__)


class SavedState(BaseModel):
    """The content of the file: the last endpoints and reports, their source and their time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    kept_at: float  # unix time, seconds
    endpoints: tuple[ModelEndpoint, ...]
    reports: tuple[LoaderReport, ...]


@dataclass(frozen=True, slots=True)
class KeeperPace:
    """Times of reading and writing.

    Attributes:
        wait_seconds: how long a start waits for the sources before it reads the file.
        pause_seconds: between two writes, because reports change every other second. Endpoints
            that have changed are written at once.
    """

    wait_seconds: float = 5.0
    pause_seconds: float = 10.0


class Keeper:
    """Reads and writes the file."""

    def __init__(
        self,
        file: Path,
        source: str,
        pace: KeeperPace | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._source = source
        self.pace = pace or KeeperPace()
        self._now = now
        self._noted: tuple[tuple[ModelEndpoint, ...], tuple[LoaderReport, ...]] | None = None
        self._news = asyncio.Event()  # endpoints or reports
        self._changed = asyncio.Event()  # endpoints
        self._lock: IO[bytes] | None = None  # held for as long as this process lives
        self._failing = False

    def read(self) -> SavedState | None:
        """The content of the file; None if it can't be used. Blocks on the disk."""
        try:
            kept = SavedState.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("what was kept can't be read", extra={"reason": str(error)})
            return None
        if kept.source != self._source:
            log.warning("what was kept is of another source", extra={"source": kept.source})
            return None
        return kept

    def note(self, endpoints: tuple[ModelEndpoint, ...], reports: tuple[LoaderReport, ...]) -> None:
        """Schedules a write. Both must be from the sources themselves, not from the file."""
        if self._noted is None or self._noted[0] != endpoints:
            self._changed.set()
        self._noted = (endpoints, reports)
        self._news.set()

    async def run(self) -> None:
        """Writes what ``note`` was given, until it is cancelled. Failed writes are repeated."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                self._changed.clear()
                await self._keep()
                await self._pause()
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self.pace.pause_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _keep(self) -> None:
        if self._noted is None:
            return
        endpoints, reports = self._noted
        kept = SavedState(
            source=self._source, kept_at=self._now(), endpoints=endpoints, reports=reports
        )
        try:
            await asyncio.to_thread(self._write, kept)
        except OSError as error:
            if not self._failing:
                log.warning("what is served can't be kept", extra={"reason": str(error)})
            self._failing = True
            self._news.set()  # to write again after the pause
        else:
            self._failing = False

    def _write(self, kept: SavedState) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._locked():
            durable.write(self._file, kept.model_dump_json(by_alias=True).encode())

    def _locked(self) -> bool:
        """Whether this process holds the file's lock, which ends with the process."""
        if self._lock is not None:
            return True
        file = self._file.with_suffix(".lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock = file
        return True

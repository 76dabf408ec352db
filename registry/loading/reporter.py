"""Reports what one loader sees: at once if it is new; a report that stands gets heartbeats.

During a long load each heartbeat looks again. A report that can't be written is no reason to stop:
the next one says it all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from contracts.loading import LoaderReport
from registry.stores.reports import Reports

log = logging.getLogger(__name__)

_LEAST_SECONDS = 1e-3  # between the times of two reports


class Reporter:
    """The one writer of a loader's report."""

    def __init__(
        self, reports: Reports, name: str, heartbeat_seconds: float, now: Callable[[], float]
    ) -> None:
        self._reports = reports
        self._name = name
        self._heartbeat_seconds = heartbeat_seconds
        self._now = now
        self._last: LoaderReport | None = None
        self._writing = asyncio.Lock()  # a heartbeat never overtakes news
        self._failing = False

    async def report(self, seen: LoaderReport) -> None:
        """Writes what is seen now if it is new, or a heartbeat if one is due."""
        async with self._writing:
            await self._take(seen)

    async def run(self, look: Callable[[], Awaitable[LoaderReport]]) -> None:
        """Reports what is seen during a long load, until it is cancelled."""
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            async with self._writing:
                if self._last is not None and self._is_due():
                    await self._take(await look())

    def leave(self) -> None:
        """Takes the report away, if a loader that ends leaves none."""
        try:
            self._reports.leave(self._name)
        except OSError as error:
            log.warning("the report can't be removed: %s", error)

    async def _take(self, seen: LoaderReport) -> None:
        last = self._last
        report = seen.model_copy(update={"at": self._time()})
        if last is None or last.model_copy(update={"at": report.at}) != report:
            await self._write(self._reports.put, report)
        elif self._is_due():
            await self._write(self._reports.beat, report)

    def _time(self) -> float:
        """The time of the next report: later than the last one's, whatever the clock does.

        Readers take the latest of a report and its heartbeats for the last sign of life.
        """
        now = self._now()
        return now if self._last is None else max(now, self._last.at + _LEAST_SECONDS)

    def _is_due(self) -> bool:
        return self._last is None or abs(self._now() - self._last.at) >= self._heartbeat_seconds

    async def _write(self, write: Callable[[LoaderReport], None], report: LoaderReport) -> None:
        try:
            await asyncio.to_thread(write, report)
        except OSError as error:
            if not self._failing:
                log.warning("the report can't be written: %s", error)
            self._failing = True
        else:
            self._last = report
            self._failing = False

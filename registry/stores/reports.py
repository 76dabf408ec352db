"""The loaders' reports: one JSON file a loader, written whole.

Of a report that can't be read the last good one stays, and the log names it. A folder that is away
keeps them all, and says so (``disconnected``): it is never taken for one in which nobody reports.
"""

import logging
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contracts.loading import LoaderReport
from service import durable, json_files

log = logging.getLogger(__name__)


class Reports(Protocol):
    """What the loaders say."""

    @property
    def disconnected(self) -> bool:
        """Whether no report can reach us now, so that a missing heartbeat means nothing."""

    def list(self) -> tuple[LoaderReport, ...]:
        """The last report of every loader, old ones included.

        Raises:
            OSError: they could not be listed even once: their folder or the cluster is away.
        """

    def get(self, loader: str) -> LoaderReport | None:
        """One loader's last report, if it left one that can be read."""

    def put(self, report: LoaderReport) -> None:
        """Replaces the loader's report.

        Raises:
            OSError: it is not written, or not whole; put it again.
        """

    def beat(self, report: LoaderReport) -> None:
        """Says that the loader lives, and that its report stands but for its time.

        Raises:
            OSError: it can't be written.
        """

    def leave(self, loader: str) -> None:
        """Called when a loader ends as it was told to.

        If its Triton ends with it, nobody should count on either from now on.
        """


class FileReports:
    """Reports in a folder that loaders and controller share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, LoaderReport] | None = None  # by loader; None: never listed
        self._disconnected = False

    @property
    def disconnected(self) -> bool:
        """Whether the folder was away when it was last listed."""
        return self._disconnected

    def list(self) -> tuple[LoaderReport, ...]:
        """The last good report of every loader, by the loaders' names; see the Protocol."""
        try:
            loaders = [Path(name).stem for name in json_files.stamps(self._folder)]
        except OSError as error:
            if self._known is None:
                self._disconnected = True
                raise
            if not self._disconnected:
                log.warning("the loaders' reports are away, the last stay: %s", error)
            self._disconnected = True
            return tuple(self._known.values())
        self._disconnected = False
        known = self._known or {}
        found = {loader: self.get(loader) or known.get(loader) for loader in loaders}
        self._known = {loader: report for loader, report in found.items() if report is not None}
        return tuple(self._known.values())

    def get(self, loader: str) -> LoaderReport | None:
        """One loader's last report."""
        path = self._folder / f"{loader}.json"
        try:
            return LoaderReport.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            log.warning("the report %s can't be read: %s", path, error)
            return None

    def put(self, report: LoaderReport) -> None:
        """Replaces the loader's report."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{report.loader}.json"
        durable.write(path, (report.model_dump_json(indent=2) + "\n").encode())

    def beat(self, report: LoaderReport) -> None:
        """Writes the report with its new time: on one machine that is cheap."""
        self.put(report)

    def leave(self, loader: str) -> None:
        """Keeps the report: here Triton is a process of its own, and goes on without its loader."""

"""The loaders' reports: one JSON file a loader, written whole.

Called by the loader (writes its own) and the controller (reads all). A report that can't be read
is left out and named in the log.
"""

import logging
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contracts.loading import LoaderReport
from service import durable

log = logging.getLogger(__name__)


class Reports(Protocol):
    """What the loaders say."""

    @property
    def deaf(self) -> bool:
        """Whether no report can reach us now, so that silence means nothing."""
        ...

    def list(self) -> tuple[LoaderReport, ...]:
        """The last report of every loader, old ones included."""
        ...

    def get(self, loader: str) -> LoaderReport | None:
        """One loader's last report, if it left one that can be read."""
        ...

    def put(self, report: LoaderReport) -> None:
        """Replaces the loader's report."""
        ...

    def leave(self, loader: str) -> None:
        """Told when a loader ends as it was told to.

        Where its Triton ends with it, nobody should count on either from now on.
        """
        ...


class FileReports:
    """Reports in a folder that loaders and controller share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def deaf(self) -> bool:
        """A folder is always there."""
        return False

    def list(self) -> tuple[LoaderReport, ...]:
        """All that can be read, by the loaders' names."""
        found = (self.get(path.stem) for path in sorted(self._folder.glob("[!.]*.json")))
        return tuple(report for report in found if report is not None)

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

    def leave(self, loader: str) -> None:
        """Keeps the report: here Triton is a process of its own, and goes on without its loader."""

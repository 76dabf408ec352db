"""Reads a model version, its run and its files from an MLflow server.

For the length of one conversion, through MLflow's own client. It never writes to MLflow.
"""

import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.manifest import DataSet
from contracts.model import name_within
from registry.convert.errors import EnvironmentFaultError, SourceGoneError, VersionError
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.client import Answer, ForeignSourceError, MlflowConnection, UnsafePathError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

Skip = Callable[[str], bool]

_MOST_FILES = 2000
_SILENCE_SECONDS = 30.0  # of the server


@dataclass(frozen=True)
class SourceRun:
    """The run behind a version: where its files are, and where it came from itself."""

    artifacts: str
    tags: Mapping[str, str]
    data_sets: tuple[DataSet, ...]


@dataclass(frozen=True)
class SourceVersion:
    """A registered version. ``created`` is unix time in seconds."""

    source: str
    artifacts: str
    run_id: str
    created: float


class TrackingServer:
    """One MLflow server, for the length of one conversion."""

    def __init__(
        self,
        uri: str,
        *,
        deadline_seconds: float = 600.0,
        sources: Sequence[str] = (),
        workspace: str = "",
    ) -> None:
        """Takes the server's address.

        Args:
            uri: ``http://`` or ``https://``.
            deadline_seconds: after which nothing more is asked for. A file that is on its way then
                still comes: what bounds the whole conversion bounds it.
            sources: as in ``MlflowConnection``.
            workspace: the same.

        Raises:
            EnvironmentFaultError: another kind of address.
        """
        self._ends = time.monotonic() + deadline_seconds
        try:
            self._server = MlflowConnection(
                uri, timeout_seconds=_SILENCE_SECONDS, sources=sources, workspace=workspace
            )
        except SourceUnavailableError as error:
            raise EnvironmentFaultError(str(error)) from error

    def version(self, name: str, version: str) -> SourceVersion:
        """The registered version.

        Raises:
            VersionError: its source leads to no files.
            EnvironmentFaultError: MLflow does not answer, or does not know it.
        """
        what, name = f"{name} {version}", name_within(name)
        found = self._ask(what, lambda client: client.get_model_version(name, version))
        self._check_own(what, (found.name, str(found.version)), (name, version))
        location = self._ask(
            what, lambda client: client.get_model_version_download_uri(name, version)
        )
        if not location and found.source:
            raise EnvironmentFaultError(f"MLflow does not say where the files of {what} are")
        return SourceVersion(
            source=found.source or "",
            artifacts=self._resolve(location or ""),
            run_id=found.run_id or "",
            created=(found.creation_timestamp or 0) / 1000,
        )

    def run(self, run_id: str) -> SourceRun:
        """The run, with the data sets that it logged.

        Raises:
            EnvironmentFaultError: MLflow does not answer, or does not know it.
        """
        run = self._ask(run_id, lambda client: client.get_run(run_id))
        self._check_own(run_id, run.info.run_id, run_id)
        inputs = run.inputs.dataset_inputs if run.inputs else ()
        return SourceRun(
            artifacts=run.info.artifact_uri or "",
            tags=dict(run.data.tags),
            data_sets=tuple(_data_set(item) for item in inputs),
        )

    def download(self, artifacts: str, folder: Path, *, skip: Skip) -> tuple[str, ...]:
        """Copies a folder of artifacts.

        Args:
            artifacts: as in ``SourceVersion.artifacts`` or ``SourceRun.artifacts``.
            folder: made if it isn't there.
            skip: whether a file, by its path within ``artifacts``, stays where it is.

        Returns:
            The paths that were skipped.

        Raises:
            EnvironmentFaultError: the artifacts can't be reached, the deadline is over, or what
                came is not what was listed: something before MLflow may answer in its place.
            VersionError: a name that leads out of the folder, or far too many files.
        """
        skipped = []
        folder.mkdir(parents=True, exist_ok=True)
        try:
            source = self._server.folder(artifacts)
            listed = list(islice(source.files(), _MOST_FILES + 1))
            if len(listed) > _MOST_FILES:
                raise VersionError(f"the version has more than {_MOST_FILES} files")
            if list(islice(source.files(), _MOST_FILES)) != listed:
                raise EnvironmentFaultError("MLflow lists other files of the version each time")
            for name, size in listed:
                if skip(name):
                    skipped.append(name)
                    continue
                if not (folder / name).resolve().is_relative_to(folder.resolve()):
                    raise VersionError(f"the artifact {name} lies outside the version's folder")
                self._check_deadline()
                source.fetch(name, folder)
                if size not in (None, got := (folder / name).stat().st_size):
                    raise EnvironmentFaultError(
                        f"MLflow says that {name} has {size} bytes, and hands out {got}"
                    )
        except (UnsafePathError, ForeignSourceError) as error:
            raise VersionError(f"an artifact lies outside the version's folder: {error}") from error
        except (OSError, ValueError, SourceRefusedError, SourceUnavailableError) as error:
            raise EnvironmentFaultError(f"can't download the version's files: {error}") from error
        return tuple(skipped)

    def _resolve(self, artifacts: str) -> str:
        """The place behind ``runs:/...`` and ``models:/...``."""
        parts = urllib.parse.urlsplit(artifacts)
        path = parts.path.lstrip("/")
        if parts.scheme == "runs":
            run_id, _, inside = path.partition("/")
            return f"{self.run(run_id).artifacts.rstrip('/')}/{inside}"
        if parts.scheme == "models" and "/" not in path:
            model = self._ask(path, lambda client: client.get_logged_model(path))
            if not model.artifact_location:
                raise EnvironmentFaultError(f"MLflow does not say where the model {path} is")
            return str(model.artifact_location)
        if not artifacts or parts.scheme == "models":
            raise VersionError(f"the version's source {artifacts!r} leads to no files")
        return artifacts

    def _ask(self, what: str, question: Callable[["MlflowClient"], Answer]) -> Answer:
        self._check_deadline()
        try:
            return self._server.ask(question)
        except SourceRefusedError as error:
            if error.missing:
                raise SourceGoneError(f"MLflow does not know {what}") from error
            raise EnvironmentFaultError(str(error)) from error
        except SourceUnavailableError as error:
            raise EnvironmentFaultError(str(error)) from error

    @staticmethod
    def _check_own(what: str, told: object, asked: object) -> None:
        """Refuses an answer that is about something else: another server may have given it."""
        if told != asked:
            raise EnvironmentFaultError(f"what was asked of MLflow about {what} was not answered")

    def _check_deadline(self) -> None:
        if time.monotonic() >= self._ends:
            raise EnvironmentFaultError("MLflow took too long to hand out the version's files")


def _data_set(item: "DatasetInput") -> DataSet:
    tags = {tag.key: tag.value for tag in item.tags}
    return DataSet(
        name=item.dataset.name,
        digest=item.dataset.digest,
        context=tags.get("mlflow.data.context", ""),
    )

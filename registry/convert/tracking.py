"""Reads a model version, its run and its files from an MLflow server.

Called once a conversion, by ``registry.convert.walk``. It speaks MLflow's REST interface itself:
importing MLflow's client takes longer (4 s) than the whole conversion of a small ONNX version. It
never writes to MLflow. Artifacts come through the server where it serves them, else from where they
lie, by fsspec.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from contracts.manifest import DataSet
from registry.convert.errors import EnvironmentFaultError, VersionError
from service import replies

Json = Mapping[str, Any]
Skip = Callable[[str], bool]

_API = "api/2.0/mlflow"
_ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts"
_MOST_FILES = 2000


@dataclass(frozen=True)
class Run:
    """The run behind a version: where its files are, and where it came from itself."""

    run_id: str
    artifacts: str
    tags: Mapping[str, str]
    data_sets: tuple[DataSet, ...]


@dataclass(frozen=True)
class Version:
    """A registered version. ``created`` is unix time in seconds."""

    source: str
    artifacts: str
    run_id: str
    created: float
    tags: Mapping[str, str]


class Tracking:
    """One MLflow server, for the length of one conversion."""

    def __init__(
        self,
        uri: str,
        *,
        authorization: str = "",
        timeout_seconds: float = 30.0,
        deadline_seconds: float = 600.0,
    ) -> None:
        """Takes the server's address.

        Args:
            uri: ``http://`` or ``https://``.
            authorization: value of the header, if the server wants one.
            timeout_seconds: of each read.
            deadline_seconds: of everything together.

        Raises:
            EnvironmentFaultError: another kind of address.
        """
        if urllib.parse.urlsplit(uri).scheme not in ("http", "https"):
            raise EnvironmentFaultError(f"MLflow's address must begin with http, not {uri}")
        self._root = uri.rstrip("/")
        self._headers = {"Authorization": authorization} if authorization else {}
        self._timeout = timeout_seconds
        self._ends = time.monotonic() + deadline_seconds

    def version(self, name: str, version: str) -> Version:
        """The registered version.

        Raises:
            VersionError: MLflow does not know it.
            EnvironmentFaultError: MLflow does not answer.
        """
        where = {"name": name, "version": version}
        found = self._get(f"{_API}/model-versions/get", where).get("model_version", {})
        location = self._get(f"{_API}/model-versions/get-download-uri", where)
        tags = {tag["key"]: tag.get("value", "") for tag in found.get("tags", ())}
        return Version(
            source=found.get("source", ""),
            artifacts=self._resolve(location.get("artifact_uri", "")),
            run_id=found.get("run_id", ""),
            created=int(found.get("creation_timestamp", 0)) / 1000,
            tags=tags,
        )

    def run(self, run_id: str) -> Run:
        """The run, with the data sets that it logged.

        Raises:
            VersionError: MLflow does not know it.
            EnvironmentFaultError: MLflow does not answer.
        """
        run = self._get(f"{_API}/runs/get", {"run_id": run_id}).get("run", {})
        inputs = run.get("inputs", {}).get("dataset_inputs", ())
        return Run(
            run_id=run_id,
            artifacts=run.get("info", {}).get("artifact_uri", ""),
            tags={tag["key"]: tag.get("value", "") for tag in run.get("data", {}).get("tags", ())},
            data_sets=tuple(_data_set(item) for item in inputs),
        )

    def download(self, artifacts: str, folder: Path, *, skip: Skip) -> tuple[str, ...]:
        """Copies a folder of artifacts.

        Args:
            artifacts: as in ``Version.artifacts`` or ``Run.artifacts``.
            folder: made if it isn't there.
            skip: whether a file, by its path within ``artifacts``, stays where it is.

        Returns:
            The paths that were skipped.

        Raises:
            EnvironmentFaultError: the artifacts can't be reached, or the deadline is over.
            VersionError: a name that leads out of the folder, or far too many files.
        """
        skipped = []
        folder.mkdir(parents=True, exist_ok=True)
        for count, name in enumerate(self._list(artifacts)):
            if count >= _MOST_FILES:
                raise VersionError(f"the version has more than {_MOST_FILES} files")
            if skip(name):
                skipped.append(name)
                continue
            target = (folder / name).resolve()
            if not target.is_relative_to(folder.resolve()):
                raise VersionError(f"the artifact {name} lies outside the version's folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fetch(artifacts, name, target)
        return tuple(skipped)

    def _resolve(self, artifacts: str) -> str:
        """The place behind ``runs:/...`` and ``models:/...``."""
        parts = urllib.parse.urlsplit(artifacts)
        path = parts.path.lstrip("/")
        if parts.scheme == "runs":
            run_id, _, inside = path.partition("/")
            return f"{self.run(run_id).artifacts.rstrip('/')}/{inside}"
        if parts.scheme == "models" and "/" not in path:
            logged = self._get(f"{_API}/logged-models/{path}", {})
            return str(logged.get("model", {}).get("info", {}).get("artifact_uri", ""))
        if not artifacts or parts.scheme == "models":
            raise VersionError(f"the version's source {artifacts!r} leads to no files")
        return artifacts

    def _proxied(self, artifacts: str) -> str | None:
        """The path behind the server's own artifact routes, if that is where the files are."""
        parts = urllib.parse.urlsplit(artifacts)
        if parts.scheme == "mlflow-artifacts":
            return parts.path.strip("/")
        if artifacts.startswith(f"{self._root}/{_ARTIFACTS}/"):
            return artifacts.removeprefix(f"{self._root}/{_ARTIFACTS}/").strip("/")
        return None

    def _list(self, artifacts: str) -> Iterator[str]:
        """Paths of all files within, folders walked through, in a fixed order."""
        base = self._proxied(artifacts)
        if base is None:
            yield from self._list_store(artifacts)
            return
        folders = [""]
        while folders:
            folder = folders.pop()
            path = str(PurePosixPath(base, folder))
            entries = self._get(_ARTIFACTS, {"path": path}).get("files", ())
            for entry in sorted(entries, key=lambda item: str(item["path"])):
                name = str(PurePosixPath(folder, str(entry["path"])))
                if entry.get("is_dir"):
                    folders.append(name)
                else:
                    yield name

    def _list_store(self, artifacts: str) -> Iterator[str]:
        try:
            store, base = fsspec.core.url_to_fs(artifacts)
            found = sorted(str(path) for path in store.find(base))
        except Exception as error:  # a store's driver raises what it likes: botocore no OSError
            raise EnvironmentFaultError(f"can't list {artifacts}: {error}") from error
        for path in found:
            yield path.removeprefix(base).lstrip("/")

    def _fetch(self, artifacts: str, name: str, target: Path) -> None:
        base = self._proxied(artifacts)
        if base is None:
            self._fetch_store(artifacts, name, target)
            return
        try:
            path = urllib.parse.quote(str(PurePosixPath(base, name)))
            with self._open(f"{_ARTIFACTS}/{path}") as answer, target.open("wb") as out:
                replies.copy(answer, out, self._left)
        except (OSError, ValueError) as error:
            raise EnvironmentFaultError(f"can't download {name}: {error}") from error

    def _fetch_store(self, artifacts: str, name: str, target: Path) -> None:
        self._left()
        try:
            store, root = fsspec.core.url_to_fs(artifacts)
            store.get_file(f"{root.rstrip('/')}/{name}", str(target))
        except Exception as error:  # as above
            raise EnvironmentFaultError(f"can't download {name}: {error}") from error

    def _get(self, route: str, query: Mapping[str, str]) -> Json:
        try:
            with self._open(f"{route}?{urllib.parse.urlencode(query)}") as answer:
                data = json.loads(replies.read(answer))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise VersionError(f"MLflow does not know {' '.join(query.values())}") from error
            raise EnvironmentFaultError(f"MLflow answered {error.code} to {route}") from error
        except (OSError, ValueError) as error:
            raise EnvironmentFaultError(f"MLflow does not answer: {error}") from error
        if not isinstance(data, dict):
            raise EnvironmentFaultError(f"MLflow's answer to {route} is not an object")
        return data

    def _open(self, rest: str) -> HTTPResponse:
        request = urllib.request.Request(f"{self._root}/{rest}", headers=self._headers)  # noqa: S310  # http alone, checked above
        return replies.ask(request, self._left())

    def _left(self) -> float:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise EnvironmentFaultError("MLflow took too long to hand out the version's files")
        return min(left, self._timeout)


def _data_set(item: Json) -> DataSet:
    data = item.get("dataset", {})
    tags = {tag["key"]: tag.get("value", "") for tag in item.get("tags", ())}
    return DataSet(
        name=data.get("name", ""),
        digest=data.get("digest", ""),
        context=tags.get("mlflow.data.context", ""),
    )

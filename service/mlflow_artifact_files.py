"""MLflow's artifact store as a file system of fsspec: ``mlflow-artifacts+http://HOST:PORT/FOLDER``.

The package store of an installation that has no object store and no shared disk. fsspec opens it by
the entry point in ``pyproject.toml``; the package store and its readers know it only by its URL.
Each call is one or two questions to MLflow's own artifact routes, so that MLflow's proxy decides
where the bytes lie. As in object stores a folder is there while something is in it. It keeps no
connection, caches nothing, and repeats nothing: its callers do.

It asks by itself and not through MLflow's client because gateways and loaders read packages too:
each would start some 2 s of CPU later and hold 40 MB more (docs/decisions/0026-mlflow-client.md).
The variables that sign in and say whom to trust are the client's all the same.
"""

# ruff: noqa: FBT001, FBT002 - the signatures are fsspec's

import base64
import io
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any

from fsspec.spec import AbstractFileSystem

from service import replies
from service.timed_answers import LEAST_SECONDS

PREFIX = "mlflow-artifacts+"
SCHEMES = (f"{PREFIX}http", f"{PREFIX}https")
ROUTE = "api/2.0/mlflow-artifacts/artifacts"
_REFUSAL_BYTES = 4096
_NO_WORKSPACE = "Workspace "  # nothing is known then of what was asked for

Entry = dict[str, Any]


class MlflowArtifactFiles(AbstractFileSystem):
    """The artifacts that one MLflow server serves. Threads may share it.

    Args:
        server: its address, ``http://`` or ``https://``.
        environment: how to sign in and what to trust, in the variables of MLflow's own client, as
            every file system of fsspec finds its credentials in its service's; None: the process'.
        options: of fsspec; ``seconds`` is the time of an answer, or of what lets it go on.
    """

    protocol = SCHEMES
    cachable = True

    def __init__(
        self, server: str = "", *, environment: Mapping[str, str] | None = None, **options: object
    ) -> None:
        super().__init__(**options)
        self._server = server.rstrip("/")
        self._environment = os.environ if environment is None else environment

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        text = path
        if text.startswith(PREFIX):
            text = urllib.parse.urlsplit(text.removeprefix(PREFIX)).path
        return text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        parts = urllib.parse.urlsplit(path.removeprefix(PREFIX))
        return {"server": f"{parts.scheme}://{parts.netloc}"}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"{PREFIX}{self._server}/{self._strip_protocol(name)}"

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """What is in a folder, or the file itself.

        Raises:
            FileNotFoundError: neither is there.
            OSError: MLflow can't be asked.
        """
        where = self._strip_protocol(path)
        found = self._list(where)
        if not found and where:
            found = [entry for entry in self._list(_parent(where)) if entry["name"] == where]
            if not found:
                raise FileNotFoundError(self.unstrip_protocol(where))
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: object) -> Entry:
        """Name, size and type of a file or folder.

        Raises:
            FileNotFoundError: it is not there.
            OSError: MLflow can't be asked.
        """
        where = self._strip_protocol(path)
        if not where:
            return {"name": "", "size": 0, "type": "directory"}
        for entry in self._list(_parent(where)):
            if entry["name"] == where:
                return entry
        raise FileNotFoundError(self.unstrip_protocol(where))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: object
    ) -> bytes:
        """A file's content, or bytes ``start`` to ``end`` of it."""
        with self._begin_download(path) as reply:
            return replies.read(reply)[start:end]

    def get_file(self, rpath: str, lpath: str, *_: object, **__: object) -> None:
        """Copies a file here, in pieces. A download that ends early leaves no file."""
        aside = Path(f"{lpath}.part")
        try:
            with self._begin_download(rpath) as reply, aside.open("wb") as file:
                replies.copy(reply, file)
            aside.replace(lpath)
        finally:
            aside.unlink(missing_ok=True)

    def pipe_file(self, path: str, value: bytes, *_: object, **__: object) -> None:
        """Writes a file, over what was there."""
        self._call("PUT", self._file(path), io.BytesIO(value), len(value)).close()

    def put_file(self, lpath: str, rpath: str, *_: object, **__: object) -> None:
        """Copies a file there, in pieces."""
        local = Path(lpath)
        with local.open("rb") as file:
            self._call("PUT", self._file(rpath), file, local.stat().st_size).close()

    def cp_file(self, path1: str, path2: str, **_: object) -> None:
        """Copies a file within the store, by way of this process."""
        self.pipe_file(path2, self.cat_file(path1))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.rm(path)

    def rm(self, path: str | list[str], recursive: bool = False, **_: object) -> None:  # noqa: ARG002
        """Removes files, or folders with all that is in them: MLflow knows no other way.

        Raises:
            FileNotFoundError: there is none.
            OSError: MLflow can't be asked, or refuses.
        """
        for item in path if isinstance(path, list) else [path]:
            self.info(item)
            self._call("DELETE", self._file(item)).close()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: a folder is there once something is in it."""

    def mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:
        """Does nothing: a folder is there once something is in it."""

    def _open(self, path: str, mode: str = "rb", **_: object) -> io.BytesIO:
        if mode != "rb":
            raise NotImplementedError("files of MLflow's artifact store are opened to be read only")
        return io.BytesIO(self.cat_file(path))

    def _begin_download(self, path: str) -> HTTPResponse:
        """The answer with a file; a 404 that is not in MLflow's own format has its list asked.

        Raises:
            FileNotFoundError: MLflow does not list it.
            OSError: MLflow can't be asked.
        """
        try:
            return self._call("GET", self._file(path))
        except _ForeignAnswerError:
            where = self._strip_protocol(path)
            if any(entry["name"] == where for entry in self._list(_parent(where))):
                raise
            raise FileNotFoundError(self.unstrip_protocol(where)) from None

    def _list(self, folder: str) -> list[Entry]:
        query = f"?{urllib.parse.urlencode({'path': folder})}" if folder else ""
        try:
            with self._call("GET", query) as reply:
                told = json.loads(replies.read(reply))
            if not isinstance(told, dict) or (told and "files" not in told):
                raise ValueError(told)
            files = told.get("files", [])
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise OSError(f"MLflow at {self._server} did not answer with a list") from error
        return [
            {
                "name": f"{folder}/{file['path']}".lstrip("/"),
                "size": int(file.get("file_size", 0)),
                "type": "directory" if file.get("is_dir") else "file",
            }
            for file in files
        ]

    def _file(self, path: str) -> str:
        return f"/{urllib.parse.quote(self._strip_protocol(path))}"

    def _call(
        self, method: str, route: str, body: IO[bytes] | None = None, size: int = 0
    ) -> HTTPResponse:
        headers = _authorization(self._environment)
        if body is not None:
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        url = f"{self._server}/{ROUTE}{route}"
        request = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - an operator's setting
        try:
            seconds = self.storage_options.get("seconds", LEAST_SECONDS)
            return replies.ask(request, seconds, _trust(self._environment))
        except urllib.error.HTTPError as error:
            text = replies.refusal_text(error, _REFUSAL_BYTES)
            said, missing = _own_message(text), error.code == HTTPStatus.NOT_FOUND
            if missing and said is not None and not said.startswith(_NO_WORKSPACE):
                raise FileNotFoundError(url) from error
            if missing and said is None:
                told = "does not answer, and something before it says 404"
                raise _ForeignAnswerError(f"MLflow at {self._server} {told}") from error
            told = f"answered {error.code}: {text[:300]}"
            raise OSError(f"MLflow at {self._server} {told}") from error


class _ForeignAnswerError(OSError):
    """A 404 that is not in MLflow's own format: maybe of a proxy without a backend."""


def _own_message(text: str) -> str | None:
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return str(said.get("message")) if isinstance(said, dict) and "error_code" in said else None


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _authorization(environment: Mapping[str, str]) -> dict[str, str]:
    """What MLflow's client would send to sign in, and to say which workspace is meant."""
    workspace = environment.get("MLFLOW_WORKSPACE", "").strip()
    meant = {"X-MLFLOW-WORKSPACE": workspace} if workspace else {}
    user = environment.get("MLFLOW_TRACKING_USERNAME")
    password = environment.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}", **meant}
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}", **meant}
    return meant


def _trust(environment: Mapping[str, str]) -> ssl.SSLContext | None:
    """Whose certificates count; None: those that count for all of the process."""
    bundle = environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    return ssl.create_default_context(cafile=bundle) if bundle else None

"""Puts small files into the artifacts of an MLflow run.

Called by ``write_back.py``. Through the server where it serves artifacts, else to where they lie,
by fsspec. It reads none and removes none.
"""

import asyncio
import urllib.parse
from typing import Protocol

import fsspec

from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow_rest import API, ARTIFACTS, MlflowRest


class RunArtifacts(Protocol):
    """Files of runs."""

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """Writes one file, over what was there.

        Raises:
            SourceRefusedError: it can't be written there, and trying again soon would not help.
            SourceUnavailableError: MLflow or its store is away.
        """
        ...


class MlflowArtifacts:
    """Files of runs of one MLflow server."""

    def __init__(self, rest: MlflowRest, *, timeout_seconds: float) -> None:
        self._rest = rest
        self._timeout = timeout_seconds

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """Writes one file; see the Protocol."""
        query = urllib.parse.urlencode({"run_id": run_id})
        run = (await self._rest.get(f"{API}/runs/get?{query}")).get("run", {})
        root = str(run.get("info", {}).get("artifact_uri", "")).rstrip("/")
        if not root:
            raise SourceRefusedError(f"MLflow at {self._rest.uri} does not know the run {run_id}")
        proxied = _proxied(self._rest.uri, root)
        if proxied is not None:
            quoted = urllib.parse.quote(f"{proxied}/{path}")
            await self._rest.put(f"{ARTIFACTS}/{quoted}", data)
            return
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.to_thread(_write, f"{root}/{path}", data)
        except TimeoutError as error:
            raise SourceUnavailableError(f"the run's artifacts at {root} take too long") from error
        except Exception as error:  # a store's driver raises what it likes: botocore no OSError
            raise SourceRefusedError(f"the run's artifacts at {root}: {error}") from error


def _proxied(uri: str, root: str) -> str | None:
    """The path behind the server's own artifact routes, if that is where the run's files are."""
    parts = urllib.parse.urlsplit(root)
    if parts.scheme == "mlflow-artifacts":
        return parts.path.strip("/")
    served = f"{uri}/{ARTIFACTS}/"
    return root.removeprefix(served).strip("/") if root.startswith(served) else None


def _write(url: str, data: bytes) -> None:
    files, path = fsspec.core.url_to_fs(url)
    files.makedirs(path.rpartition("/")[0], exist_ok=True)
    files.pipe_file(path, data)

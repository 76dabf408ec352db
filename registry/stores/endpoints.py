"""Where endpoints are kept: read whole, written only against the revision that was read.

The file implementation serves the local stack; the custom resource in Kubernetes has the same
Protocol. It never decides anything about an endpoint, never hides that a file is broken, and never
takes a folder that is away for one without endpoints.
"""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contracts.endpoint import ModelEndpoint
from registry.errors import EndpointConflictError, EndpointUnreadableError
from service import durable, json_files
from service.json_files import Stamp

log = logging.getLogger(__name__)


class EndpointStore(Protocol):
    """All endpoints, by name.

    ``unreadable`` names those that the last ``list`` left out, because what is stored is not an
    endpoint and never was while this process has run. Nobody knows what they want.
    """

    unreadable: frozenset[str]

    def list(self) -> tuple[ModelEndpoint, ...]:
        """Every endpoint, by name. One that can't be read keeps its last good state.

        Raises:
            OSError: nobody can know them now: their folder is away, or the cluster never answered.
        """

    def get(self, name: str) -> ModelEndpoint | None:
        """One endpoint, or None if there is none.

        Raises:
            EndpointUnreadableError: what is stored is not an endpoint.
        """

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """Writes against ``metadata.revision``; an empty revision creates.

        Returns:
            The endpoint with its new revision.

        Raises:
            EndpointConflictError: someone else wrote, created or removed it in the meantime.
        """

    def delete(self, name: str) -> None:
        """Removes an endpoint; one that is not there is no error."""

    def tell_refused(self) -> None:
        """Writes the reason where people look, for each endpoint that can't be read."""


class FileEndpointStore:
    """One JSON file an endpoint, ``<folder>/<name>.json``; many processes on one machine."""

    def __init__(self, folder: Path) -> None:
        self.unreadable: frozenset[str] = frozenset()
        self._folder = folder
        self._read: dict[str, tuple[Stamp, ModelEndpoint | None]] = {}

    def list(self) -> tuple[ModelEndpoint, ...]:
        """Every endpoint, by name; cheap if nothing changed, so that polling is."""
        stamps = {Path(name).stem: stamp for name, stamp in json_files.stamps(self._folder).items()}
        for gone in set(self._read) - stamps.keys():
            self._read.pop(gone, None)  # another thread may list too
        endpoints = {name: self._last_good(name, stamp) for name, stamp in stamps.items()}
        self.unreadable = frozenset(name for name, found in endpoints.items() if found is None)
        return tuple(endpoint for endpoint in endpoints.values() if endpoint is not None)

    def get(self, name: str) -> ModelEndpoint | None:
        """One endpoint, read now; see the Protocol."""
        path = self._path(name)
        try:
            endpoint = ModelEndpoint.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise EndpointUnreadableError(f"{path}: {where}: {first['msg']}") from error
        if endpoint.name != name:
            raise EndpointUnreadableError(f"{path} holds the endpoint {endpoint.name}")
        return endpoint

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """Writes against the revision that was read; see the Protocol."""
        with self._lock():
            stored = self.get(endpoint.name)
            revision = stored.metadata.revision if stored else ""
            if revision != endpoint.metadata.revision:
                raise EndpointConflictError(
                    f"endpoint {endpoint.name} is at revision {revision or 'none'}, "
                    f"not {endpoint.metadata.revision or 'none'}"
                )
            metadata = endpoint.metadata.model_copy(update={"revision": str(_next(revision))})
            written = endpoint.model_copy(update={"metadata": metadata})
            text = written.model_dump_json(by_alias=True, indent=2) + "\n"
            durable.write(self._path(endpoint.name), text.encode())
            return written

    def delete(self, name: str) -> None:
        """Removes the endpoint's file."""
        with self._lock():
            self._path(name).unlink(missing_ok=True)

    def tell_refused(self) -> None:
        """Nothing: commands refuse such an endpoint before they write, and ``list`` logs it."""

    def _last_good(self, name: str, stamp: Stamp) -> ModelEndpoint | None:
        seen, endpoint = self._read.get(name, (None, None))
        if seen == stamp:
            return endpoint
        try:
            found = self.get(name)
        except EndpointUnreadableError as error:
            log.warning("endpoint can't be read, its last good state stays: %s", error)
        else:
            if found is None:  # taken away since it was listed; the next list shows by whom
                return endpoint
            endpoint = found
        self._read[name] = (stamp, endpoint)
        return endpoint

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Holds every other writer off; the kernel lets go however this process ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _next(revision: str) -> int:
    return int(revision) + 1 if revision.isdigit() else 1

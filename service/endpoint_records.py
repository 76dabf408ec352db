"""Where the records of endpoints lie: files beside the endpoints, or objects that they own.

What a record is and when it is written is said by ``contracts/endpoint_record.py``. Nothing here
knows what is in one. Only the controller writes records; programs that show evidence read them.
"""

from pathlib import Path
from typing import Protocol

from contracts import endpoint_record
from contracts.endpoint import ModelEndpoint
from service import durable
from service.cluster import records
from service.cluster.client import ClusterClient
from service.cluster.errors import ApiUnavailableError, ConflictError, MissingError

# In a folder of endpoints: one of its own, hidden from those who list endpoints.
FOLDER = ".records"
_SLOTS = ("a", "b")


class ForeignRecordError(OSError):
    """A record that another release wrote."""


class Records(Protocol):
    """The two records of each endpoint, by slot. Threads may share it."""

    def read(self, endpoint: ModelEndpoint, slot: str) -> str | None:
        """A record's text; None if there is none.

        Raises:
            OSError: nobody can know it now.
        """

    def look(self, endpoint: ModelEndpoint) -> None:
        """Notes of which revisions both records are, before the first of them is written.

        Raises:
            OSError: nobody can know it now.
        """
        ...

    def write(self, endpoint: ModelEndpoint, slot: str, text: str) -> None:
        """Writes a record over what it was at ``look``, or as this process wrote it since.

        Raises:
            ConflictError: someone else wrote the record.
            OSError: it can't be written.
        """

    def forget(self, endpoint: str) -> None:
        """Removes the records of an endpoint that is gone, if nothing else does."""


class FileRecords:
    """Files ``<endpoints>/.records/<endpoint>.<slot>.json``; one process at a time writes them."""

    def __init__(self, endpoints: Path) -> None:
        self._folder = endpoints / FOLDER

    def read(self, endpoint: ModelEndpoint, slot: str) -> str | None:
        """A record's text; see the Protocol."""
        try:
            return self._path(endpoint.name, slot).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):  # damaged is as good as gone
            return None

    def look(self, endpoint: ModelEndpoint) -> None:
        """Nothing: there is one writer."""

    def write(self, endpoint: ModelEndpoint, slot: str, text: str) -> None:
        """Writes a record; see the Protocol."""
        # Not the endpoints' folder: one that is away must not come back empty.
        self._folder.mkdir(exist_ok=True)
        durable.write(self._path(endpoint.name, slot), text.encode())

    def forget(self, endpoint: str) -> None:
        """Removes the endpoint's files."""
        for slot in _SLOTS:
            self._path(endpoint, slot).unlink(missing_ok=True)

    def _path(self, endpoint: str, slot: str) -> Path:
        return self._folder / f"{endpoint}.{slot}.json"


class ClusterRecords:
    """Objects in the endpoints' namespace."""

    def __init__(self, client: ClusterClient, namespace: str) -> None:
        self._client = client
        self._collection = records.collection(namespace)
        self._revisions: dict[str, str] = {}  # by name; none: there is no record

    def read(self, endpoint: ModelEndpoint, slot: str) -> str | None:
        """A record's text; see the Protocol."""
        name = records.name(endpoint, slot)
        try:
            item = self._client.get(self._collection, name)
        except MissingError:
            return None
        found = item.get("text")
        return found if isinstance(found, str) else None

    def look(self, endpoint: ModelEndpoint) -> None:
        """Notes both revisions; see the Protocol."""
        for slot in _SLOTS:
            name = records.name(endpoint, slot)
            try:
                self._revisions[name] = _revision(self._client.get(self._collection, name))
            except MissingError:
                self._revisions[name] = ""

    def write(self, endpoint: ModelEndpoint, slot: str, text: str) -> None:
        """Writes a record; see the Protocol."""
        name = records.name(endpoint, slot)
        revision = self._revisions[name]
        body = records.build_record(endpoint, slot, text, revision)
        try:
            if revision:
                item = self._client.replace(self._collection, name, body)
            else:
                item = self._client.create(self._collection, body)
        except MissingError as error:
            if revision:  # removed since it was written: the next try makes it
                raise ConflictError(f"the record {name} is gone", error.status) from error
            raise
        self._revisions[name] = _revision(item)

    def forget(self, endpoint: str) -> None:
        """Nothing: Kubernetes removes what a deleted endpoint owned."""


def _revision(item: dict[str, object]) -> str:
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise ApiUnavailableError("a record was answered without its resourceVersion")
    return str(metadata["resourceVersion"])


def join_record(endpoint: ModelEndpoint, found: Records) -> ModelEndpoint | None:
    """The endpoint with its whole status; None if the record that it names is not there.

    Raises:
        OSError: nobody can know it now; a ``ForeignRecordError``: only another release can.
    """
    ref = endpoint.status.record
    if ref is None:
        return endpoint
    text = found.read(endpoint, ref.slot)
    try:
        status = endpoint_record.read(ref, text)
    except ValueError as error:
        said = " ".join(str(error).split())[:300]
        raise ForeignRecordError(f"it is of another release: {said}") from error
    if status is None:
        return None
    status = status.model_copy(update={"outdated": endpoint.status.outdated})
    return endpoint.model_copy(update={"status": status})

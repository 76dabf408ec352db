"""All objects of one kind in one namespace, and what it takes to keep a copy of them current.

``ClusterClient`` (``client.py``) is a ``Reader`` on the official client; a gateway in a pod has a
light one of its own (``gateway/state/pod_reader.py``). Both pass the same contract tests.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from service.cluster.errors import ApiUnavailableError

Object = dict[str, Any]

# A list may take this many times as long as an answer about one object: of 1,000 endpoints it is
# megabytes, and all gateways may ask for it at once. Asking again would make the server begin
# again.
LIST_PATIENCE = 6


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of an API group in one namespace.

    Attributes:
        version: a group and its version, such as ``coordination.k8s.io/v1``.
        plural: the kind's name in URLs.
        namespace: of the objects.
        selector: labels that an object must have; empty: any.
    """

    version: str
    plural: str
    namespace: str
    selector: str = ""

    @property
    def path(self) -> str:
        """Where they are listed, watched and created."""
        return f"/apis/{self.version}/namespaces/{self.namespace}/{self.plural}"

    def path_of(self, name: str, part: str = "") -> str:
        """Where one object is, or a part of it such as ``status``."""
        return f"{self.path}/{name}/{part}" if part else f"{self.path}/{name}"


def read_list(answer: object, what: str) -> tuple[list[Object], str]:
    """The objects of a list, and the revision from which a watch goes on.

    Raises:
        ApiUnavailableError: it is no list of objects: something before the API server answered.
    """
    try:
        found, revision = answer["items"] or [], answer["metadata"]["resourceVersion"]  # type: ignore[index]
        for item in found:
            check_own(item, item["metadata"]["name"], what)
        return list(found), str(revision)
    except (KeyError, TypeError) as error:
        raise ApiUnavailableError(f"{what} is no list: {error!r}") from error


def check_own(answer: Object, name: str, what: str) -> None:
    """Refuses an answer that is not about the object that was asked for.

    Raises:
        ApiUnavailableError: something before the API server answered, in JSON too.
    """
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        raise ApiUnavailableError(f"{what} was answered by something else than the API server")


def check_watch(length: str | None, what: str) -> None:
    """Refuses an answer that says its length, which no watch knows.

    Raises:
        ApiUnavailableError: something before the API server answered.
    """
    if length is not None:
        raise ApiUnavailableError(f"{what} is not watched: something else answered")


class WatchStream(Protocol):
    """A watch that has begun."""

    def events(self) -> Generator[tuple[str, Object], None, None]:
        """Each event's type and object, until the server ends the watch or ``close`` is called.

        Raises:
            ApiUnavailableError: the connection broke, or the server did not end the watch in time.
            UnreadableEventError: an event is not what the API promises.
            ApiRefusedError: the server said so in an event, such as ``ExpiredError``.
        """

    def close(self) -> None:
        """Ends the watch for its reader. May be called from any thread, and twice."""


class Reader(Protocol):
    """Reads collections of one API server. Threads may share it."""

    def list(self, collection: Collection, revision: str = "") -> tuple[list[Object], str]:
        """All objects, and the revision from which a watch goes on.

        Args:
            collection: what to list.
            revision: the list is at least as new, and comes from the server's cache; ``0``: as it
                is there now; empty: the newest, which the server may have to read from etcd.

        Raises:
            RevisionAheadError: the server's cache does not come as far as ``revision``.
            ApiUnavailableError: no answer in time, or the server can't serve now.
            ApiRefusedError: the server will not.
            AccessError: this process can't sign in.
        """

    def watch(
        self, collection: Collection, revision: str, *, seconds: int, most_seconds: float
    ) -> WatchStream:
        """Begins a watch with bookmarks; raises as ``list``.

        Args:
            collection: what to watch.
            revision: events after it are told.
            seconds: time after which the server ends the watch.
            most_seconds: time after which the stream breaks, if the server has not ended it.
        """

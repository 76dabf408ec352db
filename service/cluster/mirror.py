"""A collection as our own objects, always at hand.

An object that can't be read keeps its last good value and is named in the log once; one that never
could be is named in ``unreadable``.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from service.cluster.collection import Collection, Object, Reader
from service.cluster.watch import Watch, WatchPace

log = logging.getLogger(__name__)

T = TypeVar("T")


class CollectionMirror(Generic[T]):
    """What a collection holds, read.

    ``read`` raises ValueError for what is no such object.
    """

    def __init__(
        self,
        reader: Reader,
        collection: Collection,
        read: Callable[[Object], T],
        pace: WatchPace | None = None,
    ) -> None:
        self._read = read
        self._plural = collection.plural
        self._watch = Watch(reader, collection, self._take, pace)
        self._lock = threading.Lock()  # of what follows
        self._known: dict[str, tuple[Object, T | None]] = {}
        self._refused: dict[str, str] = {}
        self._listeners: tuple[Callable[[], None], ...] = ()

    def start(self) -> None:
        """Begins to watch; ``close`` ends it."""
        self._watch.start()

    def close(self) -> None:
        """Stops; what was known stays."""
        self._watch.close()

    def wait(self, seconds: float) -> bool:
        """Whether the collection was listed once, waiting for it at most ``seconds``."""
        return self._watch.wait(seconds)

    def listen(self, listener: Callable[[], None]) -> None:
        """Has a function called after each change, from the watch's thread."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def learn(self, item: Object) -> None:
        """Takes note of what a write was answered with."""
        self._watch.learn(item)

    def values(self) -> tuple[T, ...]:
        """The last good value of each object, by name; none before the first list."""
        with self._lock:
            return tuple(value for _, value in self._known.values() if value is not None)

    def item(self, name: str, revision: str) -> Object | None:
        """The object itself as the API server gave it, if it is known at just this revision.

        It belongs to the mirror: a caller that changes anything makes a copy.
        """
        with self._lock:
            item, _ = self._known.get(name, (None, None))
        if item is None or item["metadata"].get("resourceVersion") != revision:
            return None
        return item

    @property
    def disconnected(self) -> bool:
        """Whether the API server is away, so that nothing that changes is seen."""
        return self._watch.disconnected

    @property
    def unreadable(self) -> frozenset[str]:
        """Names of the objects that never could be read."""
        with self._lock:
            return frozenset(name for name, (_, value) in self._known.items() if value is None)

    def list_refused(self) -> tuple[tuple[Object, str], ...]:
        """The objects that can't be read as they are now, each with the reason.

        They belong to the mirror, as those of ``item``.
        """
        with self._lock:
            return tuple((self._known[name][0], reason) for name, reason in self._refused.items())

    def _take(self, items: tuple[Object, ...]) -> None:
        with self._lock:
            known, refused = self._known, dict(self._refused)
        fresh = {
            item["metadata"]["name"]: (item, self._value(item, known, refused)) for item in items
        }
        with self._lock:
            self._known = fresh
            self._refused = {name: refused[name] for name in refused.keys() & fresh.keys()}
            listeners = self._listeners
        for listener in listeners:
            listener()

    def _value(
        self, item: Object, known: dict[str, tuple[Object, T | None]], refused: dict[str, str]
    ) -> T | None:
        name = item["metadata"]["name"]
        before, last = known.get(name, (None, None))
        if before is item:
            return last
        refused.pop(name, None)
        try:
            return self._read(item)
        except ValueError as error:
            refused[name] = str(error)
            log.warning(
                "%s %s can't be read; its last good state stays: %s", self._plural, name, error
            )
            return last

"""Keeps a copy of a collection current: lists it, watches it, and begins again when that ends.

One thread a collection. What is listed comes from the API server's cache, and is never older than
what was seen before: a server that can't tell how new its cache is reads a list of the newest from
etcd, object by object, and a hundred gateways that start at once would have it do so a hundred
times. While the API server is away the copy stays as it is, and the thread asks
again with growing pauses; a revision that has become too old (410) only
means to list again. An object that is deleted is told by an event; one that a list lacks, and that
was there, stays until a second list lacks it too. It writes nothing.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from contracts.backoff import Backoff
from service.cluster.collection import Collection, Object, Reader, WatchStream
from service.cluster.errors import (
    ExpiredError,
    KubernetesError,
    RevisionAheadError,
    UnreadableEventError,
)
from service.cluster.listing import ObjectListing

log = logging.getLogger(__name__)
_PAUSES = Backoff(0.25, 10.0)


@dataclass(frozen=True, slots=True)
class WatchPace:
    """How long things take. A watch is ended by the server, else by us."""

    watch_seconds: float = 60.0
    most_seconds: float = 75.0
    second_look_seconds: float = 10.0  # at what a list has lost
    pauses: Backoff = _PAUSES


class Watch:
    """A copy of a collection.

    ``changed`` is called, in the watch's thread, with all objects after the first list and every
    change.
    """

    def __init__(
        self,
        reader: Reader,
        collection: Collection,
        changed: Callable[[tuple[Object, ...]], None],
        pace: WatchPace | None = None,
    ) -> None:
        self._reader = reader
        self._collection = collection
        self._changed = changed
        self._pace = pace or WatchPace()
        self._lock = threading.RLock()  # of the listing, and of the order in which changes are told
        self._listing = ObjectListing()
        self._at_least = "0"  # the revision of the next list; empty: the newest
        self._listed = threading.Event()
        self._stop = threading.Event()
        self._untold = True
        self._lost: dict[str, float] = {}  # what lists lack, since when by our clock
        self._stream: WatchStream | None = None
        self._failures = 0
        self._thread = threading.Thread(
            target=self._run, name=f"watch {collection.plural}", daemon=True
        )

    def start(self) -> None:
        """Begins; ``close`` ends it."""
        self._thread.start()

    def close(self) -> None:
        """Ends the watch and waits for its thread."""
        self._stop.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Whether the collection was listed once, waiting for it at most ``seconds``."""
        return self._listed.wait(seconds)

    @property
    def disconnected(self) -> bool:
        """Whether the API server did not answer when it was last asked."""
        return self._failures > 0

    def learn(self, item: Object) -> None:
        """Takes note of what a write was answered with, so that it is read at once."""
        with self._lock:
            if self._listing.learn(item) and self._listed.is_set():
                self._tell()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if self._lost or not self._listing.revision:
                    self._list()
                self._follow()
            except ExpiredError:
                self._listing.begin_again()
            except KubernetesError as error:
                if isinstance(error, UnreadableEventError | RevisionAheadError):
                    self._listing.begin_again()  # rather than with half of it, or never
                self._note_failure(error)
                continue
            except Exception:
                log.exception("a bug: the watch of %s begins again", self._collection.plural)
                self._listing.begin_again()
                self._stop.wait(self._pace.pauses.most)
            # A server that ends every watch at once must not be asked without pause.
            if time.monotonic() - began < self._pace.pauses.first:
                self._stop.wait(self._pace.pauses.first)

    def _note_failure(self, error: KubernetesError) -> None:
        """Says so once for each outage, and waits."""
        if self._stop.is_set():
            return
        if self._failures == 0:
            log.warning("%s can't be watched, the last stay: %s", self._collection.plural, error)
        self._failures += 1
        self._stop.wait(self._pace.pauses.after(self._failures))

    def _note_answer(self) -> None:
        if self._failures:
            log.info("%s are watched again", self._collection.plural)
        self._failures = 0

    def _list(self) -> None:
        try:
            items, revision = self._reader.list(self._collection, self._at_least)
        except (RevisionAheadError, ExpiredError):
            self._at_least = ""  # etcd came back from a backup, for one
            raise
        self._note_answer()
        self._at_least = revision
        with self._lock:
            changed = self._listing.replace(items, revision, self._find_lost(items))
            if changed or self._untold:
                self._tell()
            self._listed.set()

    def _find_lost(self, items: Iterable[Object]) -> frozenset[str]:
        """What a list lacks and is not believed to be gone: no second look has missed it."""
        now, pace = time.monotonic(), self._pace
        before = self._lost
        lost = {name: before.get(name, now) for name in self._listing.lacking(items)}
        for name in lost.keys() - before.keys():
            log.warning("a list of %s lacks %s: asking again", self._collection.plural, name)
        kept = {name for name, since in lost.items() if now - since < pace.second_look_seconds}
        self._lost = {name: lost[name] for name in kept}
        return frozenset(kept)

    def _follow(self) -> None:
        pace = self._pace
        seconds = min(pace.watch_seconds, pace.second_look_seconds if self._lost else math.inf)
        stream = self._reader.watch(
            self._collection,
            self._listing.revision,
            seconds=max(1, round(seconds)),
            most_seconds=pace.most_seconds,
        )
        with self._lock:
            self._stream = stream
            if self._stop.is_set():
                stream.close()
        self._note_answer()
        with closing(stream.events()) as events:
            for kind, item in events:
                self._take(kind, item)
                self._at_least = self._listing.revision

    def _take(self, kind: str, item: Object) -> None:
        try:
            with self._lock:
                if self._listing.apply(kind, item):
                    self._tell()
        except (KeyError, TypeError) as error:
            raise UnreadableEventError(f"an event that can't be read: {error!r}") from error

    def _tell(self) -> None:
        self._untold = True
        self._changed(tuple(item for _, item in sorted(self._listing.items.items())))
        self._untold = False

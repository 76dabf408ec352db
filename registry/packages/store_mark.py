"""Whose a package store is: one release's, which marks it.

Two releases on one store would collect each other's packages, for each knows its own endpoints
only. The mark is made of the key that signs the index of conversions, so that a release needs no
other name; it says nothing about the key. Beside it lies who that is, for people, and when its
controller last gave a sign of life. A mark without signs of life for a month is taken over, or at
once by ``headrace packages free``. It never decides by the file beside the mark alone whose the
store is: a controller may be killed between the two.
"""

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.durations import humanise
from contracts.instants import date_and_time
from registry.packages.store import (
    StoreError,
    StoreUnavailableError,
    check_size,
    list_sizes,
    translate_errors,
    write_file,
)

log = logging.getLogger(__name__)

FILE = "release.mark"
FACTS = "release.json"  # beside it
RENEW_SECONDS = 3600.0
LIVE_SECONDS = 3 * RENEW_SECONDS  # so long after its last sign of life a controller may run
# Much longer than any clock is wrong, and than an outage that a release comes back from.
STALE_SECONDS = 30 * 86400.0


class StoreTakenError(StoreError):
    """Another release has the store."""


class MarkFacts(BaseModel):
    """Who has a store; times are unix seconds by its controller's clock."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    mark: str
    owner: str = ""
    since: float
    seen: float

    def describe(self, now: float) -> str:
        """Who, since when, and when it last gave a sign of life."""
        since = f"{date_and_time(self.since)} UTC"
        seen = humanise(max(0.0, now - self.seen))
        return f"{self.owner or 'unnamed'}, since {since}, last sign of life {seen} ago"


class _MarkFiles:
    """The two files in one store; whatever fails is a ``StoreUnavailableError``."""

    def __init__(self, store_url: str) -> None:
        self._what = f"the mark of the package store {store_url}"
        with translate_errors(self._what):
            self._files, root = fsspec.core.url_to_fs(store_url)
        self._root = root.rstrip("/")
        is_local = isinstance(self._files, LocalFileSystem)
        self.local = Path(self._root, FILE) if is_local else None
        self._sizes: Mapping[str, int | None] | None = None  # as listed since the last write

    def read(self, name: str) -> str:
        """What a file holds; empty if there is none. It must be listed so, too."""
        with translate_errors(self._what):
            try:
                found = self._files.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                found = None
            size = -1 if found is None else len(found)
            if self._sizes is None:  # of all packages' folders too: once is enough
                self._sizes = list_sizes(self._files, self._root)
            check_size(name, size, self._sizes)
        return "" if found is None else str(found, "utf-8", "replace").strip()

    def write(self, name: str, text: str) -> None:
        """Replaces a file."""
        self._sizes = None
        with translate_errors(self._what):
            write_file(self._files, f"{self._root}/{name}", text.encode())

    def remove(self, name: str) -> None:
        """Removes a file; one that is not there is no error."""
        self._sizes = None
        with translate_errors(self._what):
            try:
                self._files.rm_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return

    def facts(self) -> MarkFacts | None:
        """Who has the store, if the file beside the mark is of the mark that is there."""
        try:
            found = MarkFacts.model_validate_json(self.read(FACTS))
        except ValidationError:
            return None
        return found if found.mark == self.read(FILE) else None


def read_facts(store_url: str) -> MarkFacts | None:
    """Who has a store, as far as it is known; raises ``StoreUnavailableError``."""
    return _MarkFiles(store_url).facts()


def free(store_url: str) -> None:
    """Takes the mark away, so that the next controller that asks has the store.

    Raises:
        registry.packages.store.StoreUnavailableError: the store can't be read or written.
    """
    files = _MarkFiles(store_url)
    for name in (FILE, FACTS):
        files.remove(name)


class StoreMark:
    """The mark in one store.

    Args:
        store_url: of the packages.
        keys: of this release, the newest first; never empty.
        owner: who this is, for people.
        now: unix time, seconds.
    """

    def __init__(
        self,
        store_url: str,
        keys: Sequence[bytes],
        *,
        owner: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._url = store_url
        self._marks = [_mark(key) for key in keys]
        self._owner = owner
        self._now = now
        self._on_disk: Path | None = None  # once this process has made it

    def claim(self) -> str:
        """Marks a store that has no mark, or one without signs of life, and renews its own.

        Returns:
            Why this release can't have it, else nothing.

        Raises:
            registry.packages.store.StoreUnavailableError: the store can't be read or written.
        """
        self.check_mounted()
        files, now = _MarkFiles(self._url), self._now()
        found, facts = files.read(FILE), files.facts()
        is_own = found in self._marks
        if found and not is_own:
            if facts is None or now - facts.seen < STALE_SECONDS:
                return self._refusal(facts)
            log.warning(
                "takes over the package store %s of another release: %s",
                self._url,
                facts.describe(now),
            )
        if found != self._marks[0]:
            files.write(FILE, self._marks[0])
        since = facts.since if facts is not None and is_own else now
        mine = MarkFacts(mark=self._marks[0], owner=self._owner, since=since, seen=now)
        files.write(FACTS, mine.model_dump_json())
        self._on_disk = files.local
        return "" if files.read(FILE) in self._marks else self._refusal(files.facts())

    def check_mounted(self) -> None:
        """Whether the mark that this process made in a folder is still there.

        Raises:
            registry.packages.store.StoreUnavailableError: it is not.
        """
        if self._on_disk is not None and not self._on_disk.is_file():
            raise StoreUnavailableError(
                f"the package store {self._url} has lost {FILE}: its disk may not be mounted; if "
                "it was emptied or freed on purpose, restart the controller"
            )

    def foreign(self) -> str:
        """Why this release can't have the store, else nothing; writes nothing.

        Raises:
            registry.packages.store.StoreUnavailableError: the store can't be read.
        """
        files = _MarkFiles(self._url)
        found = files.read(FILE)
        return self._refusal(files.facts()) if found not in ("", *self._marks) else ""

    def _refusal(self, facts: MarkFacts | None) -> str:
        who = "" if facts is None else f" ({facts.describe(self._now())})"
        return (
            f"the package store {self._url} belongs to another release of Headrace{who}, and each "
            f"would remove the other's packages: give each a URL of its own, such as "
            f"{self._url}/NAME; if the other release is gone, or this one lost its key, remove "
            f"{FILE} there: headrace packages free --store {self._url}"
        )


def _mark(key: bytes) -> str:
    return hmac.digest(key, b"headrace/store", "sha256").hex()

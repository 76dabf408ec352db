"""The manifests of packages: reference profile, labels and lineage of each version.

A thread of its own reads the package store, so that asking never waits; what could not be read is
asked for again. A manifest is proved against its package's name, which is its digest. It never
writes to the store.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

import fsspec
from pydantic import ValidationError

from contracts.manifest import MANIFEST, Manifest

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 30.0
_MOST = 1000  # packages that are remembered; the one that was not asked for longest is forgotten


@dataclass(frozen=True, slots=True)
class Known:
    """What the store says of a package; ``manifest`` None: it has no such package (any more)."""

    manifest: Manifest | None


class References(Protocol):
    """Manifests by package."""

    def of(self, package: str) -> Known | None:
        """What is known of it; None: not yet."""
        ...


class StoredReferences:
    """Out of the package store. Start it once, close it once."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.monotonic, most: int = _MOST
    ) -> None:
        """Takes any fsspec URL; nothing is read before it is asked for."""
        self._url = url
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()  # of the next two
        self._known: dict[str, Known] = {}
        self._asked: dict[str, float] = {}  # package -> not to be read before; asked for last, last
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="references", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stops; a store that does not answer is not waited for longer."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def of(self, package: str) -> Known | None:
        """See ``References``."""
        with self._lock:
            known = self._known.get(package)
            is_new = package not in self._asked
            self._asked[package] = self._asked.pop(package, 0.0)
            if len(self._asked) > self._most:
                forgotten = next(iter(self._asked))
                del self._asked[forgotten]
                self._known.pop(forgotten, None)
        if is_new:
            self._wake.set()
        return known

    def read(self) -> None:
        """Reads what was asked for and is not known, once; one failure holds up no other."""
        now = self._clock()
        with self._lock:
            due = [
                package
                for package, at in self._asked.items()
                if at <= now and package not in self._known
            ]
        for package in due:
            found = self._read(package)
            with self._lock:
                if package not in self._asked:
                    continue
                if found is None:
                    self._asked[package] = self._clock() + _AGAIN_SECONDS
                else:
                    self._known[package] = found

    def packages(self) -> Set[str]:
        """Those that are known."""
        with self._lock:
            return set(self._known)

    def _read(self, package: str) -> Known | None:
        """What the store says; None where it can't be asked now."""
        try:
            return Known(manifest(self._url, package))
        except FileNotFoundError:
            log.warning("the store has no such package", extra={"package": package})
            return Known(None)
        # fsspec's implementations raise errors of their own libraries.
        except Exception as error:  # noqa: BLE001
            log.warning(
                "a manifest can't be read now",
                extra={"package": package, "reason": f"{type(error).__name__}: {error}"},
            )
            return None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.read()
            self._wake.wait(_AGAIN_SECONDS)


def manifest(url: str, package: str) -> Manifest:
    """A package's manifest.

    Raises:
        FileNotFoundError: there is none.
        ValueError: what lies there is not what the package's name promises.
    """
    files, root = fsspec.core.url_to_fs(url)
    data: bytes = files.cat_file(f"{root.rstrip('/')}/{package}/{MANIFEST}")
    if hashlib.sha256(data).hexdigest() != package:
        raise ValueError("its digest is not its name")
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise ValueError("it has another schema") from error

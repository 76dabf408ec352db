"""Packages on this machine's disk, each proved on every use.

What was fetched once is used without the store, so that a Triton restarts into service while the
store is away. It never trusts a byte that it did not check. A fetch may take as long as bytes come;
a store that gives nothing for a minute is away, and what it gives later is there for the next try.
"""

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Protocol

from contracts.manifest import MANIFEST, Manifest
from contracts.model import ModelRef
from registry.errors import RegistryError
from registry.packages.store import (
    ASIDE,
    PackageDamagedError,
    PackageStore,
    StoreError,
    StoreUnavailableError,
)

log = logging.getLogger(__name__)

_AT_ONCE = 4  # questions to the store; a file system that hangs keeps their threads


class PackageUnavailableError(RegistryError):
    """The package can't be had now: the store is away, or does not hold it."""


class PackageBrokenError(PackageUnavailableError):
    """What the store holds is not what was published: no Triton can load it."""


class PackageCache(Protocol):
    """Verified packages on this machine's disk. All calls may block."""

    def manifest(self, ref: ModelRef) -> Manifest:
        """A package's manifest, without its other files.

        Raises:
            RegistryError: it can't be had now.
        """
        ...

    def fetch(self, ref: ModelRef) -> Path:
        """The folder of a package whose every byte was checked.

        Raises:
            RegistryError: it can't be had now.
        """
        ...

    def forget(self, ref: ModelRef) -> None:
        """Removes the local copy."""
        ...


class LocalPackages:
    """One folder a package under ``folder``, which is one process' own, filled from the store."""

    def __init__(self, store: PackageStore, folder: Path, *, silent_seconds: float = 60.0) -> None:
        self._store = store
        self._folder = folder
        self._silent_seconds = silent_seconds
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="package-store")
        self._hanging: dict[str, tuple[Future[Manifest], object]] = {}
        for begun in folder.glob(f"{ASIDE}*"):  # by a process that was killed
            shutil.rmtree(begun, ignore_errors=True)

    def fetch(self, ref: ModelRef) -> Path:
        """The package's folder, proved; from the store if it is not here or was damaged here.

        Raises:
            PackageBrokenError: the store holds other bytes than were published.
            PackageUnavailableError: with the store's reason, or a damaged copy can't be removed.
        """
        folder = self._folder / ref.package
        try:
            fetch, key = partial(self._store.fetch, ref.package, folder), _fetch_of(ref)
            if folder.is_dir() and key not in self._hanging:
                fetch()  # which asks no store
            else:
                self._ask(key, fetch)
        except PackageDamagedError as error:
            if not folder.is_dir():
                raise PackageBrokenError(str(error)) from error
            log.warning("the local copy is fetched again: %s", error)
            self.forget(ref)
            if folder.is_dir():
                raise PackageUnavailableError(f"{error}, and {folder} can't be removed") from error
            return self.fetch(ref)
        except StoreError as error:
            raise PackageUnavailableError(str(error)) from error
        return folder

    def manifest(self, ref: ModelRef) -> Manifest:
        """The package's manifest, from here or from the store.

        Raises:
            PackageUnavailableError: with the store's reason.
        """
        try:
            data = (self._folder / ref.package / MANIFEST).read_bytes()
            return Manifest.model_validate_json(data)
        except (OSError, ValueError):  # not here, or damaged
            pass
        try:
            manifest = partial(self._store.manifest, ref.package)
            return self._ask(f"manifest {ref.package}", manifest)
        except StoreError as error:
            raise PackageUnavailableError(str(error)) from error

    def forget(self, ref: ModelRef) -> None:
        """Removes the local copy."""
        self._hanging.pop(_fetch_of(ref), None)
        shutil.rmtree(self._folder / ref.package, ignore_errors=True)

    def _ask(self, key: str, question: Callable[[], Manifest]) -> Manifest:
        """The store's answer; of one that hangs, at once the same error until something comes.

        Raises:
            StoreError: the store's, or that it gives nothing.
        """
        asked, seen = self._hanging.get(key) or (self._threads.submit(question), None)
        while not asked.done() and (found := look_at_fetches(self._folder)) != seen:
            seen = found
            wait((asked,), self._silent_seconds)
        if not asked.done():
            self._hanging[key] = asked, seen
            raise StoreUnavailableError(
                f"the package store has given nothing for {self._silent_seconds:g} s"
            )
        self._hanging.pop(key, None)
        return asked.result()


def _fetch_of(ref: ModelRef) -> str:
    return f"fetch {ref.package}"


def look_at_fetches(folder: Path) -> object:
    """What has come of packages that are fetched: another value whenever they have got on.

    So it is at each look once all of one is here and is proved.
    """
    try:
        sizes = [(path, path.stat().st_size) for path in folder.glob(f"{ASIDE}*/*")]
    except OSError:  # it has taken its place meanwhile
        return object()
    return object() if any(path.name == MANIFEST for path, _ in sizes) else sizes

"""Packages on this machine's disk, each proved on every use.

What was fetched once is used without the store, so that a Triton restarts into service while the
store is away. It never trusts a byte that it did not check.
"""

import logging
import shutil
from pathlib import Path
from typing import Protocol

from contracts.manifest import MANIFEST, Manifest
from contracts.model import ModelRef
from registry.errors import RegistryError
from registry.packages.store import ASIDE, PackageDamagedError, PackageStore, StoreError

log = logging.getLogger(__name__)


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

    def __init__(self, store: PackageStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
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
            self._store.fetch(ref.package, folder)
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
            return self._store.manifest(ref.package)
        except StoreError as error:
            raise PackageUnavailableError(str(error)) from error

    def forget(self, ref: ModelRef) -> None:
        """Removes the local copy."""
        shutil.rmtree(self._folder / ref.package, ignore_errors=True)

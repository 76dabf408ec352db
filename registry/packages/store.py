"""Keeps packages under any fsspec URL: published whole or not at all, proved on every fetch.

A package exists when its ``manifest.json`` does. On a local disk a package is written aside and
moved into place; object stores can't move a folder, so there the manifest is written last and
deleted first. Since a package's name is the digest of its content, two publishers of the same
package write the same bytes. It never changes a package that exists.
"""

import hashlib
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from contracts.manifest import MANIFEST, Manifest
from contracts.model import PACKAGE_ID, ModelRef

_ASIDE = ".aside-"
_MOST_MANIFEST_BYTES = 64 << 20
# What a file of a package may be called: no name leads out of the package's folder.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class StoreError(Exception):
    """The root of the store's errors."""


class StoreUnavailableError(StoreError):
    """The store can't be reached; trying again may help."""


class PackageMissingError(StoreError):
    """The store does not hold the package."""


class PackageDamagedError(StoreError):
    """What the store holds is not what the package's name promises."""


class PackageStore:
    """Packages under one URL."""

    def __init__(self, url: str, *, write_only: bool = False) -> None:
        """Takes any fsspec URL; nothing is read or written yet.

        Args:
            url: of the folder that holds the packages.
            write_only: publish without looking what is there, as credentials that can't read must.

        Raises:
            StoreUnavailableError: a kind of URL that can't be opened here.
        """
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            raise StoreUnavailableError(f"the package store {url} can't be opened: {error}") from (
                error
            )
        self._url = url
        self._write_only = write_only

    def publish(self, folder: Path, manifest: Manifest) -> ModelRef:
        """Stores the files that the manifest lists, out of ``folder``.

        Harmless to repeat, and while another does the same.

        Raises:
            StoreUnavailableError: the store can't be written.
            PackageDamagedError: a file in ``folder`` is not what the manifest says.
        """
        ref = manifest.ref()
        for name, proof in manifest.files.items():
            if digest(folder / name) != proof.sha256:
                raise PackageDamagedError(f"{name} changed after its digest was taken")
        with self._reached():
            if not self._write_only and self._files.exists(self._path(ref.package, MANIFEST)):
                return ref
            if isinstance(self._files, LocalFileSystem):
                self._publish_by_move(folder, manifest, ref.package)
            else:
                for name in manifest.files:
                    self._files.put_file(str(folder / name), self._path(ref.package, name))
                self._files.pipe_file(self._path(ref.package, MANIFEST), manifest.canonical())
        return ref

    def fetch(self, package: str, folder: Path, *, most_bytes: int | None = None) -> Manifest:
        """Copies a package into ``folder``, which appears only when every byte is proved.

        A ``folder`` that is there already is taken as it is, once it has been proved.

        Args:
            package: its name.
            folder: where it goes.
            most_bytes: of all its files; whoever published it is not trusted to be brief.

        Raises:
            PackageMissingError: there is no such package.
            PackageDamagedError: a file is not what the manifest says.
            StoreUnavailableError: the store can't be read.
        """
        if folder.is_dir():
            return prove(folder, package)
        if most_bytes is not None:
            self._check_sizes(package, most_bytes)
        manifest = self.manifest(package)
        with _made_aside(folder) as aside:
            with self._reached():
                for name in manifest.files:
                    self._files.get_file(self._path(package, name), str(aside / name))
            (aside / MANIFEST).write_bytes(manifest.canonical())
            prove(aside, package)
        return manifest

    def manifest(self, package: str) -> Manifest:
        """A package's manifest, proved against its name.

        Raises:
            PackageMissingError: there is no such package.
            PackageDamagedError: the manifest is not the one that the name was taken from.
            StoreUnavailableError: the store can't be read.
        """
        with self._reached():
            try:
                data = self._files.cat_file(self._path(package, MANIFEST))
            except FileNotFoundError as error:
                raise PackageMissingError(f"{self._url} holds no package {package}") from error
        return _parsed(data, package)

    def packages(self) -> list[str]:
        """Names of all packages, in order.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        names = self.names()
        with self._reached():
            return [
                name
                for name in names
                if PACKAGE_ID.fullmatch(name) and self._files.exists(self._path(name, MANIFEST))
            ]

    def names(self) -> list[str]:
        """Names of all that lies in the folder, packages or not, in order.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        with self._reached():
            self._files.invalidate_cache(self._root)  # some drivers keep what they once listed
            try:
                found = self._files.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return sorted(PurePosixPath(str(path)).name for path in found)

    def delete(self, package: str) -> None:
        """Takes a package away; harmless if there is none.

        Raises:
            StoreUnavailableError: the store can't be written.
        """
        with self._reached():
            # The manifest first: what is left over from here on is no package any more.
            for path in (self._path(package, MANIFEST), self._path(package)):
                try:
                    self._files.rm(path, recursive=True)
                except FileNotFoundError:
                    continue

    def remove_all(self) -> None:
        """Takes away the whole folder with all that is in it; harmless if there is none.

        Raises:
            StoreUnavailableError: the store can't be written.
        """
        with self._reached():
            try:
                self._files.rm(self._root, recursive=True)
            except FileNotFoundError:
                return

    def _check_sizes(self, package: str, most_bytes: int) -> None:
        with self._reached():
            try:
                listed = self._files.ls(self._path(package), detail=True)
            except FileNotFoundError as error:
                raise PackageMissingError(f"{self._url} holds no package {package}") from error
        sizes = {PurePosixPath(str(item["name"])).name: int(item["size"] or 0) for item in listed}
        if sizes.get(MANIFEST, 0) > _MOST_MANIFEST_BYTES or sum(sizes.values()) > most_bytes:
            raise PackageDamagedError(
                f"package {package} has {sum(sizes.values()):,} bytes, which is more than it may"
            )

    def _publish_by_move(self, folder: Path, manifest: Manifest, package: str) -> None:
        with _made_aside(Path(self._root) / package) as aside:
            for name in manifest.files:
                shutil.copyfile(folder / name, aside / name)
            (aside / MANIFEST).write_bytes(manifest.canonical())

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _reached(self) -> AbstractContextManager[None]:
        return reached(f"the package store {self._url}")


@contextmanager
def reached(what: str) -> Iterator[None]:
    """Makes one error of all that a store's driver raises.

    Drivers have no root of errors in common: those of S3's (botocore) are no OSErrors.

    Raises:
        StoreUnavailableError: ``what`` failed, and how.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreUnavailableError(f"{what}: {str(error) or repr(error)}") from error


def digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prove(folder: Path, package: str) -> Manifest:
    """The manifest of a package in a local folder, once every byte is shown to be right.

    Raises:
        PackageDamagedError: it is not.
    """
    try:
        manifest = _parsed((folder / MANIFEST).read_bytes(), package)
        for name, proof in manifest.files.items():
            if digest(folder / name) != proof.sha256:
                raise PackageDamagedError(f"{name} of package {package} is not what was published")
    except OSError as error:
        raise PackageDamagedError(f"package {package} is not whole: {error}") from error
    return manifest


def _parsed(data: bytes, package: str) -> Manifest:
    if hashlib.sha256(data).hexdigest() != package:
        raise PackageDamagedError(f"the manifest of package {package} is not what was published")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        raise PackageDamagedError(f"package {package} has a manifest of another schema") from error
    if any(not _FILE_NAME.fullmatch(name) or name == MANIFEST for name in manifest.files):
        raise PackageDamagedError(f"package {package} names files that no package has")
    return manifest


@contextmanager
def _made_aside(target: Path) -> Iterator[Path]:
    """A new folder beside ``target``, which takes its place once it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{_ASIDE}{uuid.uuid4().hex}")
    aside.mkdir()
    try:
        yield aside
        try:
            aside.rename(target)
        except OSError:
            # Another was first: the same name means the same bytes. Else it is a real failure.
            if not (target / MANIFEST).is_file():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)

"""Keeps packages under any fsspec URL: published whole or not at all, proved on every fetch.

A package exists when its ``manifest.json`` does. On a local disk a package is written aside,
synced, and moved into place, and moved aside before it is deleted; object stores can't move a
folder, so there the manifest is written last and deleted first. Since a package's name is the
digest of its content, two publishers of the same package write the same bytes. Publishing proves
what is there already and replaces what is not as it should be, file by file. It never changes a
byte that is right. Bytes that are wrong are damage only if the store's list has them in that size:
else something that stands before the store has answered, and the store is away.
"""

import hashlib
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from contracts.backoff import Backoff
from contracts.manifest import MANIFEST, Manifest
from contracts.model import PACKAGE_ID, ModelRef
from service import durable

ASIDE = ".aside-"
_MOST_MANIFEST_BYTES = 64 << 20
_LOOKS, _LOOK_PAUSES = 5, Backoff(0.02, 0.2)  # at what was written, before it is doubted
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

    def __init__(
        self,
        url: str,
        *,
        write_only: bool = False,
        check_mounted: Callable[[], object] = lambda: None,
    ) -> None:
        """Takes any fsspec URL; nothing is read or written yet.

        Args:
            url: of the folder that holds the packages.
            write_only: publish without looking what is there, as credentials that can't read must.
            check_mounted: raises ``StoreUnavailableError`` where the store only looks empty.

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
        self.check_mounted = check_mounted

    def publish(self, folder: Path, manifest: Manifest) -> ModelRef:
        """Stores the files that the manifest lists, out of ``folder``.

        Harmless to repeat, and while another does the same. What is there already is read and
        compared; a file that is missing or damaged is replaced.

        Raises:
            StoreUnavailableError: the store can't be written, or does not hold what was written.
            PackageDamagedError: a file in ``folder`` is not what the manifest says.
        """
        ref = manifest.ref()
        for name, proof in manifest.files.items():
            if digest(folder / name) != proof.sha256:
                raise PackageDamagedError(f"{name} changed after its digest was taken")
        with self._reach():
            self.check_mounted()
            if self._is_local and self._publish_by_move(folder, manifest, ref.package):
                return ref
            wrong = [*manifest.files, MANIFEST]
            if not self._write_only:
                wrong = [name for name, _ in self._wrong(manifest, ref.package)]
            for name in wrong:  # the manifest is the last
                if self._is_local:
                    self._replace(folder, name, manifest, ref.package)
                elif name == MANIFEST:
                    self._files.pipe_file(self._path(ref.package, MANIFEST), manifest.canonical())
                else:
                    self._files.put_file(str(folder / name), self._path(ref.package, name))
            if wrong and not self._write_only:
                self._check_written(folder, manifest, ref.package)
        return ref

    def verify(self, package: str) -> Manifest:
        """Reads a whole package; returns its manifest if every byte is right.

        Raises:
            PackageMissingError: there is no such package.
            PackageDamagedError: a file is missing, or is not what the manifest says.
            StoreUnavailableError: the store can't be read.
        """
        manifest = self.manifest(package)
        with self._reach():
            for name, size in self._wrong(manifest, package):
                check_size(name, size, self._sizes(package))
                raise PackageDamagedError(f"{name} of package {package} is not what was published")
        return manifest

    def fetch(self, package: str, folder: Path, *, most_bytes: int | None = None) -> Manifest:
        """Copies a package into ``folder``, which appears only when every byte is proved.

        A ``folder`` that is there already is taken as it is, once it has been proved.

        Args:
            package: its name.
            folder: where it goes.
            most_bytes: of all its files; the publisher is not trusted to be brief.

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
        with _make_aside(folder) as aside:
            with self._reach():
                for name in manifest.files:
                    try:
                        self._files.get_file(self._path(package, name), str(aside / name))
                    except FileNotFoundError as error:
                        self.manifest(package)  # or it was deleted meanwhile
                        raise PackageDamagedError(f"{name} of package {package} is missing") from (
                            error
                        )
            (aside / MANIFEST).write_bytes(manifest.canonical())
            try:
                prove(aside, package)
            except PackageDamagedError:
                with self._reach():
                    sizes = self._sizes(package)
                    for name in manifest.files:
                        check_size(name, (aside / name).stat().st_size, sizes)
                raise
        return manifest

    def manifest(self, package: str) -> Manifest:
        """A package's manifest, proved against its name.

        Raises:
            PackageMissingError: there is no such package.
            PackageDamagedError: the manifest is not the one that the name was taken from.
            StoreUnavailableError: the store can't be read.
        """
        with self._reach():
            try:
                data = self._files.cat_file(self._path(package, MANIFEST))
            except FileNotFoundError as error:
                self.check_mounted()
                raise PackageMissingError(f"{self._url} holds no package {package}") from error
            try:
                return _parse_manifest(data, package)
            except PackageDamagedError:
                check_size(MANIFEST, len(data), self._sizes(package))
                raise

    def packages(self) -> list[str]:
        """Names of all packages, in order.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        names = self.names()
        with self._reach():
            return [name for name in names if self._has_manifest(name)]

    def leftovers(self) -> list[str]:
        """Names of what publishers and deleters that were killed left behind, in order.

        Also of what one is busy with now.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        names = self.names()
        with self._reach():
            return [
                name
                for name in names
                if name.startswith(ASIDE)
                or (PACKAGE_ID.fullmatch(name) and not self._has_manifest(name))
            ]

    def names(self) -> list[str]:
        """Names of all that lies in the folder, packages or not, in order.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        with self._reach():
            self.check_mounted()
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
        with self._reach():
            if self._is_local:
                self._delete_by_move(Path(self._path(package)))
                return
            # The manifest first: what is left over from here on is no package any more.
            for path in (self._path(package, MANIFEST), self._path(package)):
                with suppress(FileNotFoundError):
                    self._files.rm(path, recursive=True)

    def remove_all(self) -> None:
        """Takes away the whole folder with all that is in it; harmless if there is none.

        Raises:
            StoreUnavailableError: the store can't be written.
        """
        with self._reach(), suppress(FileNotFoundError):
            self._files.rm(self._root, recursive=True)

    def _check_sizes(self, package: str, most_bytes: int) -> None:
        with self._reach():
            sizes = {name: int(size or 0) for name, size in self._sizes(package).items()}
        if not sizes:
            raise PackageMissingError(f"{self._url} holds no package {package}")
        if sizes.get(MANIFEST, 0) > _MOST_MANIFEST_BYTES or sum(sizes.values()) > most_bytes:
            raise PackageDamagedError(
                f"package {package} has {sum(sizes.values()):,} bytes, which is more than it may"
            )

    def _has_manifest(self, name: str) -> bool:
        """Whether a folder of that name is a package."""
        # Not by ``exists``: some drivers' says no if the store is away.
        with suppress(FileNotFoundError, NotADirectoryError):
            return bool(PACKAGE_ID.fullmatch(name) and self._files.info(self._path(name, MANIFEST)))
        return False

    @property
    def _is_local(self) -> bool:
        return isinstance(self._files, LocalFileSystem)

    def _publish_by_move(self, folder: Path, manifest: Manifest, package: str) -> bool:
        """Moves the whole package into place; false if there is a folder of its name already."""
        target = Path(self._root) / package
        if target.exists():
            return False
        try:
            with _make_aside(target, on_disk=True) as aside:
                for name in manifest.files:
                    shutil.copyfile(folder / name, aside / name)
                (aside / MANIFEST).write_bytes(manifest.canonical())
        except OSError:
            if not target.is_dir():
                raise
            return False  # another was first
        return True

    def _replace(self, folder: Path, name: str, manifest: Manifest, package: str) -> None:
        """Puts one file in the place of what is there; readers see the one or the other."""
        target = Path(self._path(package, name))
        aside = Path(self._root) / f"{ASIDE}{uuid.uuid4().hex}"
        try:
            if name == MANIFEST:
                aside.write_bytes(manifest.canonical())
            else:
                shutil.copyfile(folder / name, aside)
            durable.sync(aside)
            aside.replace(target)
            durable.sync(target.parent)
        finally:
            aside.unlink(missing_ok=True)

    def _delete_by_move(self, target: Path) -> None:
        """Out of the way first, so that a kill leaves its name free."""
        aside = target.with_name(f"{ASIDE}{uuid.uuid4().hex}")
        try:
            target.rename(aside)
        except FileNotFoundError:
            return
        durable.sync(target.parent)
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink()

    def _wrong(self, manifest: Manifest, package: str) -> Iterator[tuple[str, int]]:
        """Files of a package that the store lacks, or holds otherwise, each with its size.

        The manifest is the last; the size of one that is not there is -1.
        """
        for name, proof in manifest.files.items():
            found, size = self._digest(package, name)
            if found != proof.sha256:
                yield name, size
        data: bytes | None = None
        with suppress(FileNotFoundError):
            data = self._files.cat_file(self._path(package, MANIFEST))
        if data != manifest.canonical():
            yield MANIFEST, -1 if data is None else len(data)

    def _check_written(self, folder: Path, manifest: Manifest, package: str) -> None:
        """Whether the store says that it holds what was written.

        Some stores list a file that another publisher writes just now with less: so it looks again.
        """
        wanted = {name: (folder / name).stat().st_size for name in manifest.files}
        lacking: list[str] = []
        for look in range(1, _LOOKS + 1):
            sizes = self._sizes(package)
            lacking = [name for name in wanted if sizes.get(name, -1) not in (None, wanted[name])]
            if not lacking:
                return
            time.sleep(_LOOK_PAUSES.after(look))
        raise StoreUnavailableError(
            f"the package store {self._url} does not hold {lacking[0]} of package {package} as "
            "it was written"
        )

    def _sizes(self, package: str) -> dict[str, int | None]:
        return list_sizes(self._files, self._path(package))

    def _digest(self, package: str, name: str) -> tuple[str, int]:
        """SHA-256 and size of a file in the store; empty and -1 if there is none."""
        path = self._path(package, name)
        try:
            if self._is_local:
                return digest(Path(path)), Path(path).stat().st_size
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder, name)
                self._files.get_file(path, str(copy))
                return digest(copy), copy.stat().st_size
        except FileNotFoundError:
            return "", -1
        except IsADirectoryError:
            return "", Path(path).stat().st_size

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _reach(self) -> AbstractContextManager[None]:
        return translate_errors(f"the package store {self._url}")


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
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


def write_file(files: fsspec.AbstractFileSystem, path: str, data: bytes) -> None:
    """Replaces a small file of a store: whole, and on the disk once this returns."""
    folder = Path(path).parent
    if not isinstance(files, LocalFileSystem):
        files.makedirs(str(folder), exist_ok=True)
        files.pipe_file(path, data)
        return
    durable.make_folder(folder)
    durable.write(Path(path), data)
    durable.sync(folder)


def list_sizes(files: fsspec.AbstractFileSystem, folder: str) -> dict[str, int | None]:
    """Sizes of the files of a folder as its store lists them; None if the driver does not say."""
    files.invalidate_cache(folder)
    try:
        listed = files.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {PurePosixPath(str(item["name"])).name: item.get("size") for item in listed}


def check_size(name: str, received: int, sizes: Mapping[str, int | None]) -> None:
    """Refuses to believe bytes that can't be right and that the store does not list so.

    Args:
        name: of a file.
        received: its size as it came; -1 if it is said not to be there.
        sizes: of the files of its folder, as they are listed.

    Raises:
        StoreUnavailableError: the file is listed with another size, or is not listed.
    """
    listed = sizes.get(name, -1)
    if listed not in (None, received):
        raise StoreUnavailableError(
            f"the package store lists {name} with {_size(listed)} and gave {_size(received)}: "
            "something before it may have answered"
        )


def _size(bytes_: int | None) -> str:
    return "no such file" if bytes_ in (None, -1) else f"{bytes_:,} bytes"


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
        manifest = _parse_manifest((folder / MANIFEST).read_bytes(), package)
        for name, proof in manifest.files.items():
            if digest(folder / name) != proof.sha256:
                raise PackageDamagedError(f"{name} of package {package} is not what was published")
    except OSError as error:
        raise PackageDamagedError(f"package {package} is not whole: {error}") from error
    return manifest


def _parse_manifest(data: bytes, package: str) -> Manifest:
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
def _make_aside(target: Path, *, on_disk: bool = False) -> Iterator[Path]:
    """A new folder beside ``target``, which takes its place once it is complete.

    ``on_disk``: and synced. A copy that is proved at each use need not be.
    """
    durable.make_folder(target.parent)
    aside = target.with_name(f"{ASIDE}{uuid.uuid4().hex}")
    aside.mkdir()
    try:
        yield aside
        if on_disk:
            for path in (*aside.iterdir(), aside):
                durable.sync(path)
        try:
            aside.rename(target)
        except OSError:
            # Another was first: the same name means the same bytes. Else it is a real failure.
            if on_disk or not (target / MANIFEST).is_file():
                raise
        if on_disk:
            durable.sync(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)

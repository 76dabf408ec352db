"""Small objects under one fsspec URL: a folder, or a prefix of a bucket. Blocks on the store.

What decides who does what is ``create``: of several who create one object, one succeeds. A store
that lets two succeed is refused before anything is kept in it.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gateway.errors import RETRY_AFTER_SECONDS, BatchStoreUnavailableError
from service import durable


class StoreUrlError(Exception):
    """A URL that can't be opened here."""


class ObjectFolder:
    """The objects. Threads may share it.

    Args:
        url: any fsspec URL. Nothing is asked of it yet.

    Raises:
        StoreUrlError: a kind of URL that can't be opened here.
    """

    def __init__(self, url: str) -> None:
        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, OSError, ValueError) as error:
            raise StoreUrlError(f"--batches-url={url} can't be opened: {error}") from error
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._files, LocalFileSystem)
        self._is_proved = self._is_local

    def create(self, name: str, data: bytes) -> bool:
        """Writes an object whole, unless another is there: then False.

        One of the same bytes counts as written here: the answer to the first try may be lost.

        Raises:
            BatchStoreUnavailableError: as all methods do.
        """
        with self._reach():
            self._prove()
            return self._create(name, data)

    def put(self, name: str, data: bytes) -> None:
        """Writes an object whole, whatever was there."""
        with self._reach():
            if self._is_local:
                path = Path(self._path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                durable.write(path, data)
            else:
                self._files.pipe_file(self._path(name), data)

    def read(self, name: str) -> bytes | None:
        """An object's bytes; None if there is none."""
        with self._reach():
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, in order: without the folder's own name."""
        with self._reach():
            path = self._path(folder)
            self._files.invalidate_cache(path)  # some drivers keep what they once listed
            self._files.invalidate_cache(self._root)
            try:
                found = self._files.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
            names = {PurePosixPath(str(each)).name for each in found}
            return sorted(each for each in names if each and not each.startswith("."))

    def remove(self, name: str) -> None:
        """Removes an object, or a folder with all in it; harmless if there is none."""
        with self._reach(), suppress(FileNotFoundError):
            self._files.rm(self._path(name), recursive=True)

    def _create(self, name: str, data: bytes) -> bool:
        if self._is_local:
            return _link(Path(self._path(name)), data)
        try:
            self._files.pipe_file(self._path(name), data, mode="create")
        except OSError as error:  # that it is there, said in one way or another
            try:
                found = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                raise error from None
            return bool(found == data)
        return True

    def _prove(self) -> None:
        """Asks once whether an object can be created twice, and refuses the store if so."""
        if self._is_proved:
            return
        name = f"proof-{uuid.uuid4().hex}"
        try:
            first, second = self._create(name, b"1"), self._create(name, b"2")
        finally:
            self.remove(name)
        if not first or second:
            raise BatchStoreUnavailableError(
                "The store of batches writes over what it should create (it knows no conditional "
                "writes), so that two gateways would answer one batch: --batches-url has to name "
                "another."
            )
        self._is_proved = True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _reach(self) -> Iterator[None]:
        try:
            yield
        except BatchStoreUnavailableError:
            raise
        except Exception as error:  # drivers raise what they like
            raise BatchStoreUnavailableError(
                f"The store of files and batches can't be reached: {type(error).__name__}.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            ) from error


def _link(path: Path, data: bytes) -> bool:
    """Creates a file with all its bytes, on the disk, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_bytes(data)
        durable.sync(aside)
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    durable.sync(path.parent)
    return True

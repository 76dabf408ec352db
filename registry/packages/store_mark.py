"""Whose a package store is: one release's, which marks it.

Two releases on one store would collect each other's packages, for each knows its own endpoints
only. The mark is made of the key that signs the index of conversions, so that a release needs no
other name; it says nothing about the key.
"""

import hmac
from collections.abc import Sequence

import fsspec

from registry.packages.store import StoreError, check_size, listed_sizes, reached

FILE = "release.mark"


class StoreTakenError(StoreError):
    """Another release has the store."""


class StoreMark:
    """The mark in one store.

    Args:
        store_url: of the packages.
        keys: of this release, the newest first; never empty.
    """

    def __init__(self, store_url: str, keys: Sequence[bytes]) -> None:
        self._files, root = fsspec.core.url_to_fs(store_url)
        self._path = f"{root.rstrip('/')}/{FILE}"
        self._root = root
        self._url = store_url
        self._marks = [_mark(key) for key in keys]

    def claim(self) -> str:
        """Marks a store that has no mark; returns why this release can't have it, else nothing.

        Raises:
            registry.packages.store.StoreUnavailableError: the store can't be read or written.
        """
        with reached(f"the mark of the package store {self._url}"):
            if self._read() in {"", *self._marks[1:]}:
                self._files.makedirs(self._root, exist_ok=True)
                self._files.pipe_file(self._path, self._marks[0].encode())
            if self._read() in self._marks:
                return ""
        return (
            f"the package store {self._url} belongs to another release of Headrace, and each would "
            f"remove the other's packages: give each a URL of its own, such as {self._url}/NAME; "
            f"if the other release is gone, or this one lost its key, remove {FILE} there"
        )

    def _read(self) -> str:
        try:
            data = self._files.cat_file(self._path)
        except FileNotFoundError:
            return ""
        found = str(data, "utf-8", "replace").strip()
        if found not in self._marks:
            check_size(FILE, len(data), listed_sizes(self._files, self._root))
        return found


def _mark(key: bytes) -> str:
    return hmac.digest(key, b"headrace/store", "sha256").hex()

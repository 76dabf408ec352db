"""The manifests of packages: reference profile, labels and lineage of each version.

A thread of its own reads the package store, so that asking never waits; what could not be read is
asked for again. A manifest is proved against its package's name, which is its digest. It never
writes to the store.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

import fsspec
from pydantic import ValidationError

from contracts.events import TOPIC_BUCKETS
from contracts.manifest import MANIFEST, TOKENIZER, Manifest

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 30.0
_LARGEST_TOKENISER = 64 * 1024 * 1024  # bytes
_WORD_MARKS = ("\u0120", "\u2581")  # of byte-level and of sentence-piece vocabularies
_WORDS, _SHORTEST_WORD = 3, 3  # a bucket; letters
_MOST = 1000  # packages that are remembered; the one that was not asked for longest is forgotten


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """What the store says of a package; ``manifest`` None: it has no such package (any more).

    ``words`` are examples of what each of ``TOPIC_BUCKETS`` stands for, if the tokeniser tells.
    """

    manifest: Manifest | None
    words: tuple[str, ...] = ()


class References(Protocol):
    """Manifests by package."""

    def of(self, package: str) -> StoredPackage | None:
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
        self._known: dict[str, StoredPackage] = {}
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

    def of(self, package: str) -> StoredPackage | None:
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

    def _read(self, package: str) -> StoredPackage | None:
        """What the store says; None if it can't be asked now."""
        try:
            found = manifest(self._url, package)
            return StoredPackage(found, self._words(package, found))
        except FileNotFoundError:
            log.warning("the store has no such package", extra={"package": package})
            return StoredPackage(None)
        # fsspec's implementations raise errors of their own libraries.
        except Exception as error:  # noqa: BLE001
            log.warning(
                "a manifest can't be read now",
                extra={"package": package, "reason": f"{type(error).__name__}: {error}"},
            )
            return None

    def _words(self, package: str, known: Manifest) -> tuple[str, ...]:
        """Examples of what buckets stand for; none if the tokeniser can't be read.

        They are only for people: without them, buckets are told by number.
        """
        file = known.files.get(TOKENIZER)
        if file is None or file.bytes > _LARGEST_TOKENISER:
            return ()
        try:
            files, root = fsspec.core.url_to_fs(self._url)
            data: bytes = files.cat_file(f"{root.rstrip('/')}/{package}/{TOKENIZER}")
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise ValueError("it is not what its manifest says")
            return bucket_words(data)
        # As above; and a tokeniser may have any form.
        except Exception as error:  # noqa: BLE001
            log.warning(
                "no words are known of a package's topics",
                extra={"package": package, "reason": f"{type(error).__name__}: {error}"},
            )
            return ()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.read()
            self._wake.wait(_AGAIN_SECONDS)


def bucket_words(tokeniser: bytes) -> tuple[str, ...]:
    """Of each of ``TOPIC_BUCKETS`` the words with the smallest ids, as "the, film"; "" for none.

    Vocabularies are mostly sorted by how frequent their tokens are. Parts of words are left out.

    Args:
        tokeniser: the content of ``tokenizer.json``.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    vocabulary = json.loads(tokeniser)["model"]["vocab"]
    if isinstance(vocabulary, dict):
        by_id = {int(number): str(token) for token, number in vocabulary.items()}
    else:
        by_id = {number: str(token) for number, (token, _) in enumerate(vocabulary)}
    marked = any(token.startswith(_WORD_MARKS) for token in by_id.values())
    found: list[list[str]] = [[] for _ in range(TOPIC_BUCKETS)]
    for number in sorted(by_id):
        token, words = by_id[number], found[number % TOPIC_BUCKETS]
        if marked and not token.startswith(_WORD_MARKS):
            continue
        word = token[1:] if marked else token
        if len(words) < _WORDS and len(word) >= _SHORTEST_WORD and word.isalpha():
            words.append(word)
    return tuple(", ".join(words) for words in found)


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

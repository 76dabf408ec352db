"""Manifests out of a package store: proved, read aside, asked for again after a failure."""

import hashlib
import json
from pathlib import Path

import pytest
from registry_fakes import manifest

from contracts.events import TOPIC_BUCKETS
from contracts.manifest import MANIFEST, TOKENIZER, PackageFile
from stats.evaluation.references import StoredPackage, StoredReferences, bucket_words
from stats.evaluation.references import manifest as read_manifest


class Store:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.references = StoredReferences(root.as_uri(), clock=lambda: self.now)

    def put(self, package: str, data: bytes) -> None:
        folder = self.root / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_bytes(data)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_manifest_is_known_once_it_was_read(store: Store) -> None:
    made = manifest()
    package = made.package_id()
    store.put(package, made.canonical())
    assert store.references.of(package) is None
    store.references.read()
    assert store.references.of(package) == StoredPackage(made)


def test_a_package_that_is_gone_is_known_to_be(store: Store) -> None:
    assert store.references.of("a" * 64) is None
    store.references.read()
    assert store.references.of("a" * 64) == StoredPackage(None)


def test_a_damaged_manifest_is_asked_for_again_later(store: Store) -> None:
    made = manifest()
    package = made.package_id()
    store.put(package, b"{}")
    with pytest.raises(ValueError, match="its digest is not its name"):
        read_manifest(store.root.as_uri(), package)
    store.references.of(package)
    store.references.read()
    store.put(package, made.canonical())
    store.references.read()
    assert store.references.of(package) is None  # not so soon
    store.now += 31
    store.references.read()
    assert store.references.of(package) == StoredPackage(made)


def test_one_failure_holds_up_no_other(store: Store) -> None:
    made = manifest()
    store.put("b" * 64, b"damaged")
    store.put(made.package_id(), made.canonical())
    for package in ("b" * 64, made.package_id()):
        store.references.of(package)
    store.references.read()
    assert store.references.packages() == {made.package_id()}


def test_a_newer_package_has_the_place_of_the_one_not_asked_for_longest(store: Store) -> None:
    references = StoredReferences(store.root.as_uri(), most=2)
    for package in ("a" * 64, "b" * 64, "a" * 64, "c" * 64):
        references.of(package)
        references.read()
    assert references.packages() == {"a" * 64, "c" * 64}
    assert references.of("b" * 64) is None  # and is read again
    references.read()
    assert references.of("b" * 64) == StoredPackage(None)


def test_a_store_that_can_not_be_opened_is_survived() -> None:
    references = StoredReferences("nosuch://store")
    references.of("a" * 64)
    references.read()
    assert references.of("a" * 64) is None


def test_it_reads_in_its_own_thread(store: Store) -> None:
    store.references.start()
    store.references.of("a" * 64)
    store.references.close()
    store.references.read()
    assert store.references.of("a" * 64) == StoredPackage(None)


def tokeniser(vocabulary: object) -> bytes:
    return json.dumps({"model": {"vocab": vocabulary}}).encode()


def test_words_of_buckets_are_read_with_the_manifest_and_are_not_needed(store: Store) -> None:
    data = tokeniser({"[PAD]": 0, "film": 7, "##s": 8, "war": 7 + TOPIC_BUCKETS})
    files = {TOKENIZER: PackageFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))}
    made = manifest().model_copy(update={"files": files})
    package = made.package_id()
    store.put(package, made.canonical())
    store.references.of(package)
    store.references.read()
    assert store.references.of(package) == StoredPackage(made)
    other = Store(store.root)
    (store.root / package / TOKENIZER).write_bytes(data)
    other.references.of(package)
    other.references.read()
    found = other.references.of(package)
    assert found is not None
    assert (found.words[7], found.words[8], len(found.words)) == ("film, war", "", TOPIC_BUCKETS)


def test_words_are_told_of_every_kind_of_vocabulary() -> None:
    assert bucket_words(tokeniser({"\u0120the": 5, "ing": 6, "\u0120x": 7}))[5:8] == ("the", "", "")
    pieces = [["<unk>", 0.0], ["\u2581und", -3.1], ["en", -3.2]]
    assert bucket_words(tokeniser(pieces))[:3] == ("", "und", "")
    with pytest.raises(KeyError):
        bucket_words(b"{}")

"""One contract for packages, on a local disk and on a store that can't move folders."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_object_store
import fsspec
import pytest
from fake_mlflow import FakeMlflow, serve
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from real_object_store import BUCKET
from registry_fakes import packed

from contracts.manifest import MANIFEST
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    StoreUnavailableError,
)


@pytest.fixture(
    params=[
        "file",
        "memory",
        "mlflow",
        pytest.param("fake s3", marks=pytest.mark.slow),
        pytest.param("s3", marks=pytest.mark.real),
    ]
)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "file":
        yield (tmp_path / "store").as_uri()
    elif request.param == "memory":
        yield f"memory://packages-{uuid.uuid4().hex}"
    elif request.param == "fake s3":
        with fake_object_store.serve(fake_object_store.FakeObjectStore(), monkeypatch):
            yield f"s3://{BUCKET}/packages"
    elif request.param == "s3":
        request.getfixturevalue("object_store")
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
    else:
        with serve(FakeMlflow(tmp_path / "artifacts")) as mlflow:
            yield f"mlflow-artifacts+{mlflow.uri}/headrace/packages"


@pytest.fixture
def store(url: str) -> PackageStore:
    return PackageStore(url)


@pytest.fixture
def files(url: str) -> DirFileSystem:
    """What lies below the store's URL: a folder a package."""
    under, root = fsspec.core.url_to_fs(url)
    return DirFileSystem(root, under)


def test_what_is_published_can_be_fetched(store: PackageStore, tmp_path: Path) -> None:
    manifest = packed(tmp_path / "made")
    ref = store.publish(tmp_path / "made", manifest)
    assert store.fetch(ref.package, tmp_path / "fetched") == manifest
    assert (tmp_path / "fetched" / "model.onnx").read_bytes() == b"weights"
    assert (tmp_path / "fetched" / MANIFEST).read_bytes() == manifest.canonical()


def test_an_empty_store_holds_no_packages(store: PackageStore) -> None:
    assert store.packages() == []


def test_publishing_twice_is_harmless(store: PackageStore, tmp_path: Path) -> None:
    manifest = packed(tmp_path / "made")
    assert store.publish(tmp_path / "made", manifest) == store.publish(tmp_path / "made", manifest)
    assert store.packages() == [manifest.package_id()]


def test_two_publishers_at_once_are_harmless(store: PackageStore, tmp_path: Path) -> None:
    manifest = packed(tmp_path / "made", content=b"x" * 200_000)
    with ThreadPoolExecutor(4) as pool:
        refs = list(pool.map(lambda _: store.publish(tmp_path / "made", manifest), range(8)))
    assert len(set(refs)) == 1
    assert store.packages() == [manifest.package_id()]
    store.fetch(manifest.package_id(), tmp_path / "fetched")


def test_a_package_without_its_manifest_does_not_exist(
    store: PackageStore, files: DirFileSystem, tmp_path: Path
) -> None:
    manifest = packed(tmp_path / "made")
    ref = store.publish(tmp_path / "made", manifest)
    files.rm(f"{ref.package}/{MANIFEST}")
    assert store.packages() == []
    with pytest.raises(PackageMissingError):
        store.fetch(ref.package, tmp_path / "fetched")


def test_a_publisher_that_died_half_way_can_be_repeated(
    store: PackageStore, files: DirFileSystem, tmp_path: Path
) -> None:
    manifest = packed(tmp_path / "made")
    # Where a folder can be moved, a package is made aside; others write in place.
    moves = isinstance(files.fs, LocalFileSystem)
    folder = ".aside-died" if moves else manifest.package_id()
    files.makedirs(folder, exist_ok=True)
    files.pipe_file(f"{folder}/model.onnx", b"half")
    assert store.packages() == []
    ref = store.publish(tmp_path / "made", manifest)
    assert store.fetch(ref.package, tmp_path / "fetched") == manifest


def test_a_damaged_file_is_never_fetched(
    store: PackageStore, files: DirFileSystem, tmp_path: Path
) -> None:
    ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
    files.pipe_file(f"{ref.package}/model.onnx", b"weightz")
    with pytest.raises(PackageDamagedError, match=r"model\.onnx"):
        store.fetch(ref.package, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()
    assert not list(tmp_path.glob(".aside-*"))


def test_a_damaged_manifest_is_never_believed(
    store: PackageStore, files: DirFileSystem, tmp_path: Path
) -> None:
    ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
    other = packed(tmp_path / "other", version="2").canonical()
    files.pipe_file(f"{ref.package}/{MANIFEST}", other)
    with pytest.raises(PackageDamagedError, match="manifest"):
        store.manifest(ref.package)


def test_a_file_that_changed_after_its_digest_is_not_published(
    store: PackageStore, tmp_path: Path
) -> None:
    manifest = packed(tmp_path / "made")
    (tmp_path / "made" / "model.onnx").write_bytes(b"other")
    with pytest.raises(PackageDamagedError):
        store.publish(tmp_path / "made", manifest)
    assert store.packages() == []


def test_a_folder_that_is_there_already_is_proved_again(
    store: PackageStore, tmp_path: Path
) -> None:
    ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
    store.fetch(ref.package, tmp_path / "fetched")
    store.fetch(ref.package, tmp_path / "fetched")
    (tmp_path / "fetched" / "model.onnx").write_bytes(b"rotten")
    with pytest.raises(PackageDamagedError):
        store.fetch(ref.package, tmp_path / "fetched")


def test_deleting_takes_one_package_away_and_may_be_repeated(
    store: PackageStore, tmp_path: Path
) -> None:
    gone = store.publish(tmp_path / "a", packed(tmp_path / "a"))
    kept = store.publish(tmp_path / "b", packed(tmp_path / "b", version="2"))
    store.delete(gone.package)
    store.delete(gone.package)
    assert store.packages() == [kept.package]


def test_a_store_that_can_not_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = PackageStore((tmp_path / "file" / "store").as_uri())
    with pytest.raises(StoreUnavailableError, match="package store"):
        store.publish(tmp_path / "made", packed(tmp_path / "made"))


def test_an_unknown_kind_of_url_says_so() -> None:
    with pytest.raises(StoreUnavailableError, match="carrier-pigeon"):
        PackageStore("carrier-pigeon://roof")


class BrokenFiles(MemoryFileSystem):
    """A driver with errors of its own, as S3's has."""

    protocol = "broken"

    def ls(self, *_: object, **__: object) -> list[str]:
        raise LookupError("no credentials")


def test_whatever_a_driver_raises_is_a_store_that_can_not_be_reached() -> None:
    fsspec.register_implementation("broken", BrokenFiles, clobber=True)
    with pytest.raises(StoreUnavailableError, match="broken://store: no credentials"):
        PackageStore("broken://store").packages()


def test_a_package_that_can_not_be_asked_for_is_not_called_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PackageStore(f"memory://packages-{uuid.uuid4().hex}")
    store.publish(tmp_path / "made", packed(tmp_path / "made"))

    def fail(*_: object, **__: object) -> None:
        raise LookupError("timeout")

    monkeypatch.setattr(MemoryFileSystem, "info", fail)
    monkeypatch.setattr(MemoryFileSystem, "exists", AbstractFileSystem.exists)  # as most drivers'
    for ask in (store.leftovers, store.packages):
        with pytest.raises(StoreUnavailableError, match="timeout"):
            ask()

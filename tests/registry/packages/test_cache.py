"""Packages on local disk."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from registry_fakes import packed

from contracts.manifest import MANIFEST, MODEL_ONNX, Manifest
from registry.packages.cache import LocalPackages, PackageUnavailableError, look_at_fetches
from registry.packages.store import ASIDE, PackageStore


class CacheHarness:
    def __init__(self, folder: Path) -> None:
        self.store = PackageStore((folder / "store").as_uri())
        self.ref = self.store.publish(folder / "source", packed(folder / "source"))
        self.packages = LocalPackages(self.store, folder / "local")


@pytest.fixture
def harness(tmp_path: Path) -> CacheHarness:
    return CacheHarness(tmp_path)


def test_a_package_is_fetched_once_and_used_without_the_store(harness: CacheHarness) -> None:
    folder = harness.packages.fetch(harness.ref)
    harness.store.delete(harness.ref.package)
    assert harness.packages.fetch(harness.ref) == folder
    assert (folder / MODEL_ONNX).read_bytes() == b"weights"


def test_a_copy_that_a_killed_loader_had_begun_is_removed_at_the_next_start(
    harness: CacheHarness, tmp_path: Path
) -> None:
    whole = harness.packages.fetch(harness.ref)
    (begun := whole.with_name(f"{ASIDE}0")).mkdir()
    (begun / MODEL_ONNX).write_bytes(b"wei")
    LocalPackages(harness.store, tmp_path / "local")
    assert list(whole.parent.iterdir()) == [whole]


def test_a_damaged_copy_is_fetched_again(harness: CacheHarness) -> None:
    folder = harness.packages.fetch(harness.ref)
    (folder / MODEL_ONNX).write_bytes(b"weightz")
    harness.packages.fetch(harness.ref)
    assert (folder / MODEL_ONNX).read_bytes() == b"weights"


def test_a_damaged_copy_that_can_not_be_removed_is_said_so(
    harness: CacheHarness, tmp_path: Path
) -> None:
    folder = harness.packages.fetch(harness.ref)
    (folder / MODEL_ONNX).write_bytes(b"weightz")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")  # which is not ours to remove
    with pytest.raises(PackageUnavailableError, match="can't be removed"):
        harness.packages.fetch(harness.ref)


def test_a_damaged_package_in_the_store_is_never_used(
    harness: CacheHarness, tmp_path: Path
) -> None:
    (tmp_path / "store" / harness.ref.package / MODEL_ONNX).write_bytes(b"weightz")
    with pytest.raises(PackageUnavailableError, match="not what was published"):
        harness.packages.fetch(harness.ref)


def test_a_package_that_is_nowhere_is_said_so(harness: CacheHarness) -> None:
    harness.store.delete(harness.ref.package)
    with pytest.raises(PackageUnavailableError, match="holds no package"):
        harness.packages.fetch(harness.ref)


def test_forgetting_twice_is_no_error(harness: CacheHarness) -> None:
    folder = harness.packages.fetch(harness.ref)
    harness.packages.forget(harness.ref)
    harness.packages.forget(harness.ref)
    assert not folder.exists()


class HangingStore(PackageStore):
    """Gives nothing before it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gives = threading.Event()
        self.fetches = 0

    def manifest(self, package: str) -> Manifest:
        self.gives.wait(60)
        return super().manifest(package)

    def fetch(self, package: str, folder: Path, *, most_bytes: int | None = None) -> Manifest:
        self.fetches += 1
        return super().fetch(package, folder, most_bytes=most_bytes)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_store_that_gives_nothing_is_away_and_what_it_gives_later_is_used(
    harness: CacheHarness, tmp_path: Path, *, forgotten: bool
) -> None:
    store = HangingStore((tmp_path / "store").as_uri())
    packages = LocalPackages(store, tmp_path / "hung", silent_seconds=0.0)
    for ask in (packages.manifest, packages.fetch, packages.fetch, packages.fetch):
        with pytest.raises(PackageUnavailableError, match="has given nothing"):
            ask(harness.ref)
    store.gives.set()
    whole = tmp_path / "hung" / harness.ref.package
    while not whole.is_dir():
        pass
    if forgotten:
        packages.forget(harness.ref)
    folder = None
    while folder is None:
        with suppress(PackageUnavailableError):
            folder = packages.fetch(harness.ref)
    assert (folder / MODEL_ONNX).read_bytes() == b"weights"
    assert store.fetches == 1 + forgotten


def test_a_fetch_gets_on_while_bytes_come_and_while_they_are_proved(tmp_path: Path) -> None:
    nothing = look_at_fetches(tmp_path)
    assert look_at_fetches(tmp_path) == nothing
    (aside := tmp_path / f"{ASIDE}0").mkdir()
    (aside / MODEL_ONNX).write_bytes(b"wei")
    begun = look_at_fetches(tmp_path)
    assert begun not in (nothing, None)
    assert look_at_fetches(tmp_path) == begun
    (aside / MODEL_ONNX).write_bytes(b"weights")
    assert look_at_fetches(tmp_path) != begun
    (aside / MANIFEST).write_bytes(b"{}")  # the last file: from here on no store is asked
    assert look_at_fetches(tmp_path) != look_at_fetches(tmp_path)

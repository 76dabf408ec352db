"""Packages on local disk."""

from pathlib import Path

import pytest
from registry_fakes import packed

from contracts.manifest import MODEL_ONNX
from registry.packages.cache import LocalPackages, PackageUnavailableError
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

"""Packages on local disk."""

from pathlib import Path

import pytest
from registry_fakes import manifest

from contracts.manifest import MODEL_ONNX, PackageFile
from contracts.model import ModelRef
from registry.package_cache import LocalPackages, PackageUnavailableError
from registry.store import PackageStore, digest


class House:
    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        source.mkdir()
        (source / MODEL_ONNX).write_bytes(b"graph")
        proof = PackageFile(sha256=digest(source / MODEL_ONNX), bytes=5)
        self.store = PackageStore((folder / "store").as_uri())
        made = manifest().model_copy(update={"files": {MODEL_ONNX: proof}})
        self.ref: ModelRef = self.store.publish(source, made)
        self.packages = LocalPackages(self.store, folder / "local")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_package_is_fetched_once_and_used_without_the_store(house: House) -> None:
    folder = house.packages.fetch(house.ref)
    house.store.delete(house.ref.package)
    assert house.packages.fetch(house.ref) == folder
    assert (folder / MODEL_ONNX).read_bytes() == b"graph"


def test_a_damaged_copy_is_fetched_again(house: House) -> None:
    folder = house.packages.fetch(house.ref)
    (folder / MODEL_ONNX).write_bytes(b"grapf")
    house.packages.fetch(house.ref)
    assert (folder / MODEL_ONNX).read_bytes() == b"graph"


def test_a_damaged_copy_that_can_not_be_removed_is_said_so(house: House, tmp_path: Path) -> None:
    folder = house.packages.fetch(house.ref)
    (folder / MODEL_ONNX).write_bytes(b"grapf")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")  # which is not ours to remove
    with pytest.raises(PackageUnavailableError, match="can't be removed"):
        house.packages.fetch(house.ref)


def test_a_damaged_package_in_the_store_is_never_used(house: House, tmp_path: Path) -> None:
    (tmp_path / "store" / house.ref.package / MODEL_ONNX).write_bytes(b"grapf")
    with pytest.raises(PackageUnavailableError, match="not what was published"):
        house.packages.fetch(house.ref)


def test_a_package_that_is_nowhere_is_said_so(house: House) -> None:
    house.store.delete(house.ref.package)
    with pytest.raises(PackageUnavailableError, match="holds no package"):
        house.packages.fetch(house.ref)


def test_forgetting_twice_is_no_error(house: House) -> None:
    folder = house.packages.fetch(house.ref)
    house.packages.forget(house.ref)
    house.packages.forget(house.ref)
    assert not folder.exists()

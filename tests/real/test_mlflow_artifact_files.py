"""The package store in the artifact store of a real MLflow, through its proxy."""

from pathlib import Path

import pytest
from own_servers import MlflowProcess
from registry_fakes import packed

from registry.packages.store import PackageMissingError, PackageStore
from service.mlflow_artifact_files import MlflowArtifactFiles

pytestmark = pytest.mark.real


def test_a_package_goes_through_mlflow_and_comes_back_whole(
    mlflow_server: MlflowProcess, tmp_path: Path
) -> None:
    store = PackageStore(f"mlflow-artifacts+{mlflow_server.url}/headrace/packages")
    assert store.packages() == []
    with pytest.raises(PackageMissingError):
        store.manifest("0" * 64)
    manifest = packed(tmp_path / "made", bytes(range(256)) * 20_000)  # several pieces
    ref = store.publish(tmp_path / "made", manifest)
    assert store.publish(tmp_path / "made", manifest) == ref
    assert store.packages() == [ref.package]
    assert store.fetch(ref.package, tmp_path / "fetched") == manifest
    store.delete(ref.package)
    assert store.packages() == []
    store.delete(ref.package)


def test_what_an_index_asks_of_its_files_holds_on_mlflow(mlflow_server: MlflowProcess) -> None:
    files = MlflowArtifactFiles(mlflow_server.url)
    files.pipe_file("index/entry.json.aside", b"{}")
    files.mv("index/entry.json.aside", "index/entry.json")
    assert files.ls("index", detail=False) == ["index/entry.json"]
    assert files.info("index/entry.json")["size"] == 2
    assert not files.exists("index/other.json")
    with pytest.raises(FileNotFoundError):
        files.cat_file("index/other.json")
    files.rm("index", recursive=True)
    assert not files.exists("index")

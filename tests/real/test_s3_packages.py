"""The package store on a real S3-compatible server, where a folder would never go wrong.

``tests/registry/packages/test_store.py`` holds it to the contract that all stores keep.
"""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import real_object_store
from real_object_store import BUCKET, ObjectStore
from registry_fakes import KEYS, manifest

from contracts.manifest import MODEL_ONNX, Manifest, PackageFile
from gateway.packages import PackageError, StorePackages
from registry.conversions.index import ConversionIndex
from registry.errors import SourceRefusedError
from registry.mlflow.client import MlflowConnection
from registry.packages.gc import collect
from registry.packages.store import (
    PackageMissingError,
    PackageStore,
    StoreUnavailableError,
    digest,
)
from registry.packages.store_mark import StoreMark
from stats.evaluation.references import StoredReferences

pytestmark = pytest.mark.real

POLICIES = Path(__file__).parents[2] / "examples" / "cloud" / "eks" / "policies"

# A client tries each call again for some seconds before it gives up.
CONTENT = bytes(range(256)) * 50_000


@pytest.fixture
def url(object_store: ObjectStore) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def packed(folder: Path, version: str = "1") -> Manifest:
    folder.mkdir()
    (folder / MODEL_ONNX).write_bytes(CONTENT)
    proof = PackageFile(sha256=digest(folder / MODEL_ONNX), bytes=len(CONTENT))
    return manifest(version).model_copy(update={"files": {MODEL_ONNX: proof}})


def test_a_conversion_is_found_again_by_the_index(url: str, tmp_path: Path) -> None:
    store = PackageStore(url)
    index = ConversionIndex(url, store, KEYS)
    assert index.get("options") is None
    ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
    put = index.put("options", ref)
    assert ConversionIndex(url, PackageStore(url), KEYS).get("options") == put
    assert store.packages() == [ref.package]


def test_each_role_of_a_cloud_does_its_work_and_no_more(
    object_store: ObjectStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the policies of ``examples/cloud/eks``."""
    made, staging = packed(tmp_path / "made"), f"{url}/staging/of-one"
    package = made.package_id()
    roles = ("read", "convert", "decide")
    users = {role: object_store.add_user(role, f"a-secret-of-{role}") for role in roles}
    statements = [each for role in roles for each in statements_of(role, url)]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    fsspec.filesystem("s3").call_s3("put_bucket_policy", Bucket=BUCKET, Policy=policy)

    def publish_at(place: str) -> None:
        PackageStore(place, write_only=True).publish(tmp_path / "made", made)

    with monkeypatch.context() as patch:
        real_object_store.use(patch, users["convert"])
        publish_at(staging)
        refused(
            lambda: publish_at(url),
            lambda: PackageStore(f"{url}/staging").packages(),
            lambda: PackageStore(staging).manifest(package),
            lambda: PackageStore(staging).delete(package),
            lambda: ConversionIndex(url, PackageStore(url), KEYS).get("options"),
        )

        real_object_store.use(patch, users["decide"])
        store, staged = PackageStore(url), PackageStore(staging)
        assert StoreMark(url, KEYS).claim() == ""
        assert staged.fetch(package, tmp_path / "got", most_bytes=1 << 30) == made
        ref = store.publish(tmp_path / "got", made)
        index = ConversionIndex(url, store, KEYS)
        assert index.get("options") is None
        put = index.put("options", ref)
        assert index.get("options") == put
        staged.remove_all()
        assert staged.packages() == []
        staged.remove_all()  # and again, where there is nothing

        real_object_store.use(patch, users["read"])
        store = PackageStore(url)
        assert store.fetch(package, tmp_path / "fetched", most_bytes=1 << 30) == made
        with pytest.raises(PackageMissingError):
            store.manifest("0" * 64)
        refused(lambda: publish_at(url), lambda: publish_at(staging))
        store.delete(package)  # s3fs keeps to itself that S3 refused it
        assert store.packages() == [package]

        real_object_store.use(patch, users["decide"])
        store = PackageStore(url)
        store.delete(package)
        assert store.packages() == []
    real_object_store.use(monkeypatch, {})


def statements_of(role: str, url: str) -> list[dict[str, object]]:
    """A role's policy, as a part of the bucket's."""
    text = (POLICIES / f"{role}.json").read_text(encoding="utf-8")
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    filled = text.replace("${bucket}", BUCKET).replace("${prefix}", prefix)
    return [{**each, "Principal": {"AWS": [role]}} for each in json.loads(filled)["Statement"]]


def refused(*asked: Callable[[], object]) -> None:
    for ask in asked:
        with pytest.raises(StoreUnavailableError):
            ask()


def test_what_nobody_needs_is_collected(url: str, tmp_path: Path) -> None:
    store = PackageStore(url)
    old, new = (
        store.publish(tmp_path / version, packed(tmp_path / version, version))
        for version in ("1", "2")
    )
    assert collect(url, [], keep=1) == [old.package]
    assert store.packages() == [new.package]


def test_statistics_read_a_manifest(url: str, tmp_path: Path) -> None:
    made = packed(tmp_path / "made")
    ref = PackageStore(url).publish(tmp_path / "made", made)
    references = StoredReferences(url)
    references.of(ref.package)
    references.read()
    known = references.of(ref.package)
    assert known is not None
    assert known.manifest == made


def test_a_wrong_secret_is_a_sentence(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        real_object_store.use(patch, {"AWS_SECRET_ACCESS_KEY": "not-it"})
        store = PackageStore(url)
        with pytest.raises(StoreUnavailableError, match=rf"package store {url}: \w+"):
            store.packages()
        with pytest.raises(StoreUnavailableError, match="index of conversions"):
            ConversionIndex(url, store, KEYS).get("options")
    real_object_store.use(monkeypatch, {})
    assert PackageStore(url).packages() == []


def test_a_server_that_is_away_is_a_sentence_and_its_return_needs_no_restart(
    object_store: ObjectStore, url: str, tmp_path: Path
) -> None:
    store = PackageStore(url)
    index = ConversionIndex(url, store, KEYS)
    made = packed(tmp_path / "made")
    ref = store.publish(tmp_path / "made", made)
    object_store.kill9()
    try:
        with pytest.raises(StoreUnavailableError, match="package store"):
            store.manifest(ref.package)
        with pytest.raises(StoreUnavailableError, match="package store"):
            store.publish(tmp_path / "made", made)
        with pytest.raises(StoreUnavailableError, match="index of conversions"):
            index.get("options")
        with pytest.raises(PackageError, match="can't be fetched"):
            StorePackages(url, tmp_path / "cache").open(ref)
    finally:
        object_store.start()
    assert index.get("options") is None
    assert store.fetch(ref.package, tmp_path / "fetched") == made


def test_files_of_runs_go_to_the_store_where_mlflow_hands_out_none(
    url: str, tmp_path: Path
) -> None:
    run = MlflowConnection("http://127.0.0.1:9", timeout_seconds=5.0, sources=[url]).folder(url)
    run.put("headrace/e/v2/report.html", CONTENT)
    run.put("model.onnx", b"graph")
    assert list(run.files()) == [("model.onnx", 5), ("headrace/e/v2/report.html", len(CONTENT))]
    run.fetch("headrace/e/v2/report.html", tmp_path)
    assert (tmp_path / "headrace/e/v2/report.html").read_bytes() == CONTENT


@pytest.mark.usefixtures("object_store")
def test_a_store_that_will_not_take_a_runs_files_holds_up_no_others() -> None:
    url = "s3://no-such-bucket/run"
    run = MlflowConnection("http://127.0.0.1:9", timeout_seconds=5.0, sources=[url]).folder(url)
    with pytest.raises(SourceRefusedError, match="the artifacts at s3://no-such-bucket"):
        run.put("headrace/e/v2/report.html", b"")

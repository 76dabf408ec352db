"""What is remembered of conversions, and by which key."""

from pathlib import Path
from typing import Any

import pytest
from registry_fakes import packed

from contracts.endpoint import EndpointSpec, Limits, Precision, Serving
from contracts.tasks import Task
from registry.conversions.index import ConversionIndex, options_digest, signature
from registry.conversions.messages import Conditions
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import PackageStore

SPEC = EndpointSpec(model="m")
VERSION = RegisteredVersion("m", "1", "created|source|run", {"a": "tag"})


class IndexHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        url = self.folder.as_uri()
        self.store = PackageStore(url)
        self.index = ConversionIndex(url, self.store)
        self.manifest = packed(folder / "source")
        self.ref = self.store.publish(folder / "source", self.manifest)


@pytest.fixture
def harness(tmp_path: Path) -> IndexHarness:
    return IndexHarness(tmp_path)


def key(spec: EndpointSpec = SPEC, version: RegisteredVersion = VERSION, **more: Any) -> str:
    return options_digest(spec, version, Conditions(**more))


def test_what_was_put_is_found_with_its_signature(harness: IndexHarness) -> None:
    assert harness.index.get("x") is None
    put = harness.index.put("x", harness.ref)
    assert harness.index.get("x") == put
    assert put.signature == signature(harness.manifest)
    assert put.ref == harness.ref
    assert harness.store.packages() == [harness.ref.package]


def test_an_entry_whose_package_is_gone_counts_as_none(harness: IndexHarness) -> None:
    harness.index.put("x", harness.ref)
    harness.store.delete(harness.ref.package)
    assert harness.index.get("x") is None


def test_a_damaged_entry_counts_as_none(harness: IndexHarness) -> None:
    harness.index.put("x", harness.ref)
    (harness.folder / "index" / "x.json").write_text("{")
    assert harness.index.get("x") is None


def test_the_key_is_the_same_for_what_does_not_change_the_outcome() -> None:
    limits = SPEC.model_copy(update={"limits": Limits(timeout_seconds=9)})
    tagged = RegisteredVersion("m", "1", VERSION.identity, {"another": "tag"})
    assert key() == key(limits) == key(version=tagged)


@pytest.mark.parametrize("instances", [None, 1, 2, 8])
def test_the_key_of_earlier_releases_stays_whatever_number_of_copies_runs(
    instances: int | None,
) -> None:
    spec = SPEC.model_copy(update={"serving": Serving(instances=instances)})
    assert key(spec) == "89da44848ac0510d2c3c2b8d601d3015d16c711adb1024c1d3bd01e34b723e6b"


def test_the_key_of_earlier_releases_for_several_copies_can_still_be_told() -> None:
    spec = SPEC.model_copy(update={"serving": Serving(instances=2)})
    found = options_digest(spec, VERSION, Conditions(), instances=2)
    assert found == "8631d02be00b7f6cca60a95e0e6ee5ff436cae265b6026733052ef84a21a5478"


def test_the_key_differs_for_what_does() -> None:
    keys = [
        key(),
        key(SPEC.model_copy(update={"serving": Serving(precision=Precision.FP32)})),
        key(SPEC.model_copy(update={"serving": Serving(min_neighbours=0.8)})),
        key(SPEC.model_copy(update={"task": Task.TEXT_EMBEDDING})),
        key(version=RegisteredVersion("m", "2", VERSION.identity)),
        key(version=RegisteredVersion("m", "1", "registered anew")),
        key(allow_pickle=True),
        key(allow_remote_code=True),
        key(sources=("s3://a",)),  # so that a version refused for where it lies is looked at anew
        key(sources=("s3://b",)),
    ]
    assert len(set(keys)) == len(keys)

"""What is remembered of conversions, and by which key."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registry_fakes import KEYS, packed

from contracts.endpoint import EndpointLimits, EndpointSpec, EngineChoice, Precision, ServingOptions
from contracts.loading import DeviceKind
from contracts.manifest import MANIFEST
from contracts.model import ModelRef
from contracts.tasks import Task
from registry.conversions.index import ConversionIndex, mac, options_digest, signature
from registry.conversions.messages import Conditions
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import PackageDamagedError, PackageStore

TASK = Task.TEXT_CLASSIFICATION
KINDS = ("json", "mac")
SPEC = EndpointSpec(model="m")
VERSION = RegisteredVersion("m", "1", "created|source|run", {"a": "tag"})


class IndexHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        self.store = PackageStore(self.folder.as_uri())
        self.index = self.opened(KEYS)
        self.manifest = packed(folder / "source")
        self.ref = self.store.publish(folder / "source", self.manifest)

    def opened(self, keys: tuple[bytes, ...]) -> ConversionIndex:
        return ConversionIndex(self.folder.as_uri(), self.store, keys)


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


@pytest.mark.parametrize("name", ["model.onnx", MANIFEST])
def test_a_damaged_package_is_whole_again_once_its_version_is_converted_again(
    harness: IndexHarness, tmp_path: Path, name: str
) -> None:
    put = harness.index.put("x", harness.ref)
    (harness.folder / harness.ref.package / name).write_bytes(b"")
    with pytest.raises(PackageDamagedError):
        harness.index.prove(harness.ref)
    again = harness.store.publish(tmp_path / "source", harness.manifest)
    assert harness.index.put("x", again) == harness.index.get("x") == put
    harness.index.prove(again)


def test_a_damaged_entry_counts_as_none(harness: IndexHarness) -> None:
    harness.index.put("x", harness.ref)
    (harness.folder / "index" / "x.json").write_text("{")
    assert harness.index.get("x") is None


def test_an_entry_of_somebody_else_is_not_believed(harness: IndexHarness) -> None:
    """Code in a conversion points another team's next version at a package of its own."""
    forged = f'{{"ref": {harness.ref.model_dump_json()}, "signature": {{"task": "{TASK}"}}}}'
    folder = harness.folder / "index"
    folder.mkdir()
    (folder / "theirs.json").write_text(forged)
    assert harness.index.get("theirs") is None
    (folder / "theirs.mac").write_text("0" * 64)
    assert harness.index.get("theirs") is None
    (folder / "theirs.mac").write_bytes(b"\xff")
    assert harness.index.get("theirs") is None


def test_a_good_entry_under_another_key_is_not_believed(harness: IndexHarness) -> None:
    harness.index.put("ours", harness.ref)
    folder = harness.folder / "index"
    for kind in ("json", "mac"):
        (folder / f"theirs.{kind}").write_bytes((folder / f"ours.{kind}").read_bytes())
    assert harness.index.get("theirs") is None


def test_what_callers_rely_on_is_read_from_the_package_and_not_from_the_entry(
    harness: IndexHarness,
) -> None:
    put = harness.index.put("x", harness.ref)
    path = harness.folder / "index" / "x.json"
    path.write_text(path.read_text().replace('"yes"', '"maybe"'))
    assert harness.index.get("x") == put


def test_an_entry_without_a_mac_counts_if_a_status_names_its_package(
    harness: IndexHarness,
) -> None:
    put = harness.index.put("x", harness.ref)
    (harness.folder / "index" / "x.mac").unlink()
    assert harness.index.get("x") is None
    other = harness.ref.model_copy(update={"package": "f" * 64})
    assert harness.index.get("x", (other,)) is None
    assert harness.index.get("x", (other, harness.ref)) == put
    assert harness.index.get("x") == put  # signed from now on


def test_a_change_of_keys_loses_nothing(harness: IndexHarness) -> None:
    put = harness.index.put("x", harness.ref)
    changing = harness.opened((b"n" * 32, *KEYS))
    assert changing.get("x") == put
    assert harness.opened((b"n" * 32,)).get("x") == put  # the new key has signed it meanwhile
    assert harness.index.get("x") is None


def test_an_index_without_a_key_is_a_defect(harness: IndexHarness) -> None:
    with pytest.raises(ValueError, match="key"):
        harness.opened(())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), kind=st.sampled_from(KINDS))
def test_a_changed_byte_never_leads_to_another_package(
    harness: IndexHarness, position: int, byte: int, kind: str
) -> None:
    put = harness.index.put("x", harness.ref)
    path = harness.folder / "index" / f"x.{kind}"
    data = bytearray(path.read_bytes())
    data[position % len(data)] = byte
    path.write_bytes(bytes(data))
    assert harness.index.get("x") in (None, put)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=2, unique=True),
    st.text(max_size=5),
)
def test_no_two_entries_have_the_same_mac(named: list[tuple[str, str]], version: str) -> None:
    """Parts that run into one another, as in a plain concatenation, would have."""
    macs = {
        mac(KEYS[0], options, ModelRef(model=model, version=version, package="a" * 64))
        for options, model in named
    }
    assert len(macs) == len(named)


def test_the_key_is_the_same_for_what_does_not_change_the_outcome() -> None:
    limits = SPEC.model_copy(update={"limits": EndpointLimits(timeout_seconds=9)})
    tagged = RegisteredVersion("m", "1", VERSION.identity, {"another": "tag"})
    assert key() == key(limits) == key(version=tagged)


@pytest.mark.parametrize("instances", [None, 1, 2, 8])
def test_the_key_is_the_same_whatever_number_of_copies_runs(instances: int | None) -> None:
    assert key(SPEC.model_copy(update={"serving": ServingOptions(instances=instances)})) == key()


def test_the_key_differs_for_what_does() -> None:
    keys = [
        key(),
        key(SPEC.model_copy(update={"serving": ServingOptions(precision=Precision.FP32)})),
        key(SPEC.model_copy(update={"serving": ServingOptions(min_neighbours=0.8)})),
        key(SPEC.model_copy(update={"serving": ServingOptions(engine=EngineChoice.PACKED)})),
        options_digest(SPEC, VERSION, Conditions(), device=DeviceKind.GPU),
        key(SPEC.model_copy(update={"task": Task.TEXT_EMBEDDING})),
        key(version=RegisteredVersion("m", "2", VERSION.identity)),
        key(version=RegisteredVersion("m", "1", "registered anew")),
        key(allow_pickle=True),
        key(allow_remote_code=True),
        key(sources=("s3://a",)),  # so that a version refused for where it lies is looked at anew
        key(sources=("s3://b",)),
    ]
    assert len(set(keys)) == len(keys)

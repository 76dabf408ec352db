"""A package is opened only if every byte of it is the one that was promised."""

from pathlib import Path

import numpy as np
import pytest
from gateway_world import manifest_of, model_of, tokenizer_json

from contracts.manifest import MANIFEST, TOKENIZER, EngineKind, Manifest
from contracts.model import ModelRef
from contracts.tasks import Task
from gateway.packages import PackageError, StorePackages, open_package
from preprocess.errors import EngineOutputError


def store_with(folder: Path, manifest: Manifest) -> ModelRef:
    ref = manifest.ref()
    package = folder / ref.package
    package.mkdir(parents=True)
    (package / MANIFEST).write_bytes(manifest.canonical())
    (package / TOKENIZER).write_bytes(tokenizer_json())
    return ref


def test_a_package_comes_from_its_store(tmp_path: Path) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    model = packages.open(ref)
    assert model.ref == ref
    assert model.encoder.encode(["w0 w1 nothing"]).ids == [[2, 3, 1]]
    assert model.name == ref.triton_model


def test_a_package_that_was_opened_once_needs_no_store(tmp_path: Path) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    packages.open(ref)
    (tmp_path / "store").rename(tmp_path / "away")
    assert packages.open(ref).ref == ref


def test_what_is_forgotten_leaves_the_cache_and_nothing_else_does(tmp_path: Path) -> None:
    store, cache = tmp_path / "store", tmp_path / "cache"
    first, second = (store_with(store, manifest_of(version)) for version in ("1", "2"))
    packages = StorePackages(store.as_uri(), cache)
    for ref in (first, second):
        packages.open(ref)
    packages.forget(first)
    packages.forget(first)
    assert [each.name for each in cache.iterdir()] == [second.package]


def test_a_store_that_is_away_is_no_crash(tmp_path: Path) -> None:
    packages = StorePackages((tmp_path / "nowhere").as_uri(), tmp_path / "cache")
    with pytest.raises(PackageError, match="can't be fetched"):
        packages.open(manifest_of().ref())


@pytest.mark.parametrize("name", [MANIFEST, TOKENIZER])
def test_a_byte_that_differs_is_refused(tmp_path: Path, name: str) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    path = tmp_path / "store" / ref.package / name
    path.write_bytes(path.read_bytes() + b" ")
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    with pytest.raises(PackageError):
        packages.open(ref)
    assert not list((tmp_path / "cache").glob("**/*.json"))


def test_a_spoilt_cache_is_filled_anew(tmp_path: Path) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    packages.open(ref)
    cached = tmp_path / "cache" / ref.package / TOKENIZER
    cached.write_bytes(b"{")
    assert packages.open(ref).ref == ref
    assert cached.read_bytes() == tokenizer_json()


def test_a_cache_that_can_not_be_written_is_no_obstacle(tmp_path: Path) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    (tmp_path / "cache").write_text("a file where a folder should be")
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    assert packages.open(ref).ref == ref


def test_what_can_not_be_cached_leaves_nothing_behind(tmp_path: Path) -> None:
    ref = store_with(tmp_path / "store", manifest_of())
    folder = tmp_path / "cache" / ref.package
    (folder / MANIFEST).mkdir(parents=True)  # no file can take its place
    packages = StorePackages((tmp_path / "store").as_uri(), tmp_path / "cache")
    assert packages.open(ref).ref == ref
    assert [path.name for path in folder.iterdir()] == [MANIFEST]


def test_a_manifest_that_can_not_be_served_is_refused() -> None:
    good = manifest_of()
    short = good.model_copy(update={"length_buckets": (4,)})
    with pytest.raises(PackageError, match="buckets"):
        open_package(short.ref(), short.canonical(), tokenizer_json())
    nameless = good.model_copy(update={"labels": ()})
    with pytest.raises(PackageError, match="labels"):
        open_package(nameless.ref(), nameless.canonical(), tokenizer_json())


def test_logits_become_probabilities() -> None:
    model = model_of()
    values = np.concatenate(
        model.decode(np.array([[0.0, 0.0], [3.0, 1.0]], np.float32), [4, 4], [1, 1])
    )
    assert values.sum(axis=1) == pytest.approx([1, 1])
    assert values[0] == pytest.approx([0.5, 0.5])
    with pytest.raises(EngineOutputError):
        model.decode(np.zeros((2, 3), np.float32), [4, 4], [2])


def test_the_values_of_a_packed_engine_are_taken_apart_by_tokens_where_tokens_have_values() -> None:
    model = model_of(packed=True, task=Task.TOKEN_CLASSIFICATION)
    output = np.arange(14, dtype=np.float32).reshape(7, 2) ** 2
    first, others = model.decode(output, [4, 1, 2], [1, 2])
    assert (first.shape, others.shape) == ((4, 2), (3, 2))
    np.testing.assert_allclose(first[0], [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-5)
    with pytest.raises(EngineOutputError, match="6 rows of answers for 7 tokens"):
        model.decode(output[:6], [4, 1, 2], [1, 2])


def test_a_package_of_a_packed_engine_is_neither_bucketed_nor_padded() -> None:
    model = model_of(packed=True)
    assert [model.bucket_of(tokens) for tokens in (1, 5, 16)] == [1, 5, 16]
    tensors = model.tensors([[5, 6], [7]], 16)
    assert {name: each.tolist() for name, each in tensors.items()} == {
        "input_ids": [5, 6, 7],
        "row_starts": [0, 2, 3],
    }
    values = model.decode(np.zeros((2, 2), np.float32), [2, 1], [2])
    assert values[0].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_a_packed_engine_with_a_graphs_inputs_is_refused() -> None:
    padded = manifest_of()
    manifest = padded.model_copy(update={"engine": EngineKind.PACKED})
    with pytest.raises(PackageError, match="packed engine"):
        open_package(manifest.ref(), manifest.canonical(), tokenizer_json())

"""Weights are copied number by number, whatever files they come in, and nothing else is taken."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_json
from weight_files import Tensors, safetensors

from contracts.manifest import MODEL_CONFIG, WEIGHTS, PackedDense
from contracts.tasks import Task
from registry.convert import weights
from registry.convert.errors import VersionError
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.original import Dense, Pooling

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1}


def read(content: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a file, and that each lies at a multiple of its numbers' size."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert size % 8 == 0
    found = {}
    end = 0
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert first == end  # nothing between two tensors
        assert first == last or first % SIZES[entry["dtype"]] == 0
        end = last
        data = content[8 + size + first : 8 + size + last]
        found[name] = (entry["dtype"], entry["shape"], data)
    assert end == len(content) - 8 - size
    return found


def folder_of(folder: Path, shards: Sequence[Tensors]) -> OriginalTextModel:
    """A version whose weights are in several files."""
    folder.mkdir()
    names: dict[str, str] = {}
    for place, tensors in enumerate(shards):
        file = f"model-{place:05}.safetensors"
        (folder / file).write_bytes(safetensors(tensors))
        names |= dict.fromkeys(tensors, file)
    write_json(folder / f"{WEIGHTS}.index.json", {"metadata": {}, "weight_map": names})
    write_json(folder / MODEL_CONFIG, {"model_type": "bert"})
    return OriginalTextModel(flavour="x", folder=folder, tokenizer=folder, task=Task.TEXT_EMBEDDING)


@st.composite
def tensors_in_files(draw: st.DrawFn) -> list[dict[str, tuple[str, list[int], bytes]]]:
    names = draw(st.lists(st.text("ab.", min_size=1, max_size=4), min_size=2, unique=True))
    shards: list[dict[str, tuple[str, list[int], bytes]]] = [{} for _ in range(3)]
    for name in names:
        dtype = draw(st.sampled_from(sorted(SIZES)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        count = SIZES[dtype]
        for length in shape:
            count *= length
        content = draw(st.binary(min_size=count, max_size=count))
        shards[draw(st.integers(0, 2))][name] = (dtype, shape, content)
    return shards


@given(tensors_in_files())
def test_files_become_one_with_the_same_numbers_each_at_its_place(
    tmp_path_factory: pytest.TempPathFactory,
    shards: list[dict[str, tuple[str, list[int], bytes]]],
) -> None:
    base = tmp_path_factory.mktemp("weights")
    for name in ("one", "two"):
        original = folder_of(base / name, [each for each in shards if each])
        weights.lay_out(original, base / f"{name}-out")
    made = (base / "one-out" / WEIGHTS).read_bytes()
    if sum(1 for each in shards if each) > 1:
        wanted = {name: item for each in shards for name, item in each.items()}
        assert read(made) == wanted
    assert (base / "two-out" / WEIGHTS).read_bytes() == made


def single(folder: Path, content: bytes) -> OriginalTextModel:
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(content)
    write_json(folder / MODEL_CONFIG, {"model_type": "bert"})
    return OriginalTextModel(flavour="x", folder=folder, tokenizer=folder, task=Task.TEXT_EMBEDDING)


MATRIX = {"a": ("F32", [2, 3], b"x" * 24), "b": ("F16", [5], b"y" * 10)}


def test_a_single_file_is_copied_with_its_configuration_and_the_layers_after_pooling(
    tmp_path: Path,
) -> None:
    original = single(tmp_path / "v", safetensors(MATRIX))
    layer = tmp_path / "v" / "layer.safetensors"
    layer.write_bytes(b"a layer")
    pooling = Pooling(dense=(Dense(layer, "Tanh"),))
    original = OriginalTextModel(
        flavour="x",
        folder=original.folder,
        tokenizer=original.folder,
        task=Task.TEXT_EMBEDDING,
        pooling=pooling,
    )
    dense = weights.lay_out(original, tmp_path / "out")
    assert dense == (PackedDense(file="dense-0.safetensors", activation="Tanh"),)
    assert (tmp_path / "out" / "dense-0.safetensors").read_bytes() == b"a layer"
    for name in (WEIGHTS, MODEL_CONFIG):
        copied = (tmp_path / "out" / name).read_bytes()
        assert copied == (tmp_path / "v" / name).read_bytes()
    assert weights.weights_of(tmp_path / "out") == 6


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08",
        (1 << 60).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{x",
        safetensors(MATRIX)[:-1],
        safetensors({"a": ("F32", [2], b"")}).replace(b"[0, 0]", b"[0, 9]"),
        safetensors({"a": ("F32", [2], b"")}).replace(b"[0, 0]", b"[2, 0]"),
    ],
)
def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    original = single(tmp_path / "v", content)
    with pytest.raises(VersionError, match=r"^model.safetensors can't be read as safetensors: "):
        weights.lay_out(original, tmp_path / "out")


@pytest.mark.parametrize("name", ["../model.safetensors", "gone.safetensors", "/etc/passwd"])
def test_an_index_that_names_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    original = single(tmp_path / "v", safetensors(MATRIX))
    (original.folder / WEIGHTS).rename(tmp_path / WEIGHTS)
    write_json(
        original.folder / f"{WEIGHTS}.index.json", {"metadata": {}, "weight_map": {"a": name}}
    )
    with pytest.raises(VersionError, match="which is not there"):
        weights.lay_out(original, tmp_path / "out")


def doubled(folder: Path, **second: tuple[str, list[int], bytes]) -> OriginalTextModel:
    """A version whose second file holds more than the index says."""
    original = folder_of(folder, [{"a": MATRIX["a"]}, {"b": MATRIX["b"]}])
    (original.folder / "model-00001.safetensors").write_bytes(safetensors({**MATRIX, **second}))
    return original


@pytest.mark.parametrize(
    "other", [("F32", [2, 3], b"z" * 24), ("F32", [3, 2], b"x" * 24), ("F32", [1], b"xxxx")]
)
def test_weights_of_which_two_files_hold_different_numbers_are_refused_by_name(
    tmp_path: Path, other: tuple[str, list[int], bytes]
) -> None:
    original = doubled(tmp_path / "v", a=other)
    for step in (weights.require_one_of_each, lambda it: weights.lay_out(it, tmp_path / "out")):
        with pytest.raises(VersionError, match=r"model-00000.* and model-00001.* hold .* a, "):
            step(original)


def test_weights_that_two_files_hold_alike_are_taken_once(tmp_path: Path) -> None:
    original = doubled(tmp_path / "v")
    weights.require_one_of_each(original)
    weights.lay_out(original, tmp_path / "out")
    assert read((tmp_path / "out" / WEIGHTS).read_bytes()) == MATRIX


def test_weights_of_another_format_are_refused(tmp_path: Path) -> None:
    original = single(tmp_path / "v", b"")
    (original.folder / WEIGHTS).rename(original.folder / "pytorch_model.bin")
    with pytest.raises(VersionError, match=r"its weights are not model.safetensors"):
        weights.lay_out(original, tmp_path / "out")

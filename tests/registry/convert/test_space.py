"""Two versions have one space if nothing that decides a vector differs, and only then."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import asking_tokenizer, token_vectors, tokenizer, write_json
from weight_files import Tensors, safetensors

from contracts.endpoint import ServingOptions
from contracts.manifest import MODEL_CONFIG, WEIGHTS
from contracts.model import SPACE_ID
from contracts.tasks import Task
from registry.convert import tokeniser, weights
from registry.convert.flavours import OriginalTextModel
from registry.convert.flavours.original import Dense, Pooling, PoolingMode
from registry.convert.space import space_of

CONFIG = {"model_type": "bert", "layer_norm_eps": 1e-12, "torch_dtype": "float32"}
POOLING = Pooling((PoolingMode.MEAN,), normalise=True)


def tensor(*values: float) -> tuple[str, list[int], bytes]:
    return "F32", [len(values)], np.array(values, "<f4").tobytes()


def version(folder: Path, numbers: tuple[float, ...] = (1.0, 2.0)) -> OriginalTextModel:
    """A model of texts whose files nobody loads."""
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(safetensors({"table": tensor(*numbers)}))
    (folder / "dense.safetensors").write_bytes(safetensors({"linear.weight": tensor(3.0)}))
    write_json(folder / MODEL_CONFIG, CONFIG)
    tokenizer().save(str(folder / "tokenizer.json"))
    return OriginalTextModel(
        flavour="x",
        folder=folder,
        tokenizer=folder,
        task=Task.TEXT_EMBEDDING,
        pooling=replace(POOLING, dense=(Dense(folder / "dense.safetensors", "Tanh"),)),
        prompts={"query": "query: "},
    )


def space(original: OriginalTextModel, code: bytes | None = None, **serving: Any) -> str:
    found = space_of(original, tokeniser.build(original, ServingOptions(**serving)), code)
    assert SPACE_ID.fullmatch(found)
    return found


def with_files(
    change: Callable[[Path], object],
) -> Callable[[OriginalTextModel], OriginalTextModel]:
    def changed(original: OriginalTextModel) -> OriginalTextModel:
        change(original.folder)
        return original

    return changed


def with_pooling(**changes: Any) -> Callable[[OriginalTextModel], OriginalTextModel]:
    def changed(original: OriginalTextModel) -> OriginalTextModel:
        assert original.pooling is not None
        return replace(original, pooling=replace(original.pooling, **changes))

    return changed


def write_own_code(folder: Path) -> None:
    write_json(folder / MODEL_CONFIG, {**CONFIG, "auto_map": {"AutoModel": "own.Own"}})


DECIDES: Mapping[str, Callable[[OriginalTextModel], OriginalTextModel]] = {
    "a weight": with_files(
        lambda at: (at / WEIGHTS).write_bytes(safetensors({"table": tensor(1.0, 2.5)}))
    ),
    "a weight's shape": with_files(
        lambda at: (at / WEIGHTS).write_bytes(
            safetensors({"table": ("F32", [2, 1], tensor(1.0, 2.0)[2])})
        )
    ),
    "a pickle in the place of weights": with_files(
        lambda at: (at / WEIGHTS).rename(at / "pytorch_model.bin")
    ),
    "the network's configuration": with_files(
        lambda at: write_json(at / MODEL_CONFIG, {**CONFIG, "layer_norm_eps": 1e-5})
    ),
    "the tokeniser": with_files(lambda at: asking_tokenizer().save(str(at / "tokenizer.json"))),
    "lower case": lambda original: replace(original, lowercase=True),
    "pooling": with_pooling(modes=(PoolingMode.CLS,)),
    "normalisation": with_pooling(normalise=False),
    "a layer after pooling": with_files(
        lambda at: (at / "dense.safetensors").write_bytes(
            safetensors({"linear.weight": tensor(4.0)})
        )
    ),
    "no such layer": with_pooling(dense=()),
    "a prompt": lambda original: replace(original, prompts={"query": "Query: "}),
    "the usual prompt": lambda original: replace(original, default_prompt="query"),
    "the task": lambda original: replace(original, task=Task.SPARSE_EMBEDDING),
    "the library's own options": lambda original: replace(
        with_files(
            lambda at: write_json(at / "sentence_bert_config.json", {"config_args": {"a": 1}})
        )(original),
        loaded_by="CrossEncoder",  # whose folder is the transformer's own
    ),
    "code of its own": with_files(write_own_code),
}


@pytest.mark.parametrize("what", DECIDES)
def test_whatever_decides_a_vector_makes_another_space(tmp_path: Path, what: str) -> None:
    before = space(version(tmp_path / "a"))
    assert space(DECIDES[what](version(tmp_path / "b"))) != before


def test_code_for_gateways_and_code_of_the_network_are_of_the_space(tmp_path: Path) -> None:
    original = version(tmp_path / "a")
    assert len({space(original), space(original, b"a"), space(original, b"b")}) == 3
    write_own_code(original.folder)
    (original.folder / "own.py").write_text("one = 1")
    before = space(original)
    (original.folder / "own.py").write_text("one = 2")
    assert space(original) != before


def name_files_otherwise(folder: Path) -> None:
    name = "model-00001-of-00001.safetensors"
    (folder / WEIGHTS).rename(folder / name)
    index = {"metadata": {}, "weight_map": {"table": name}}
    write_json(folder / f"{WEIGHTS}.index.json", index)


LEAVES: Mapping[str, Callable[[OriginalTextModel], OriginalTextModel]] = {
    "nothing": lambda original: original,
    "names of files": with_files(name_files_otherwise),
    "who wrote the configuration": with_files(
        lambda at: write_json(
            at / MODEL_CONFIG,
            {**CONFIG, "torch_dtype": "float16", "_name_or_path": "x", "transformers_version": "5"},
        )
    ),
    "narrow weights of the same values": with_files(
        lambda at: (at / WEIGHTS).write_bytes(
            safetensors({"table": ("F16", [2], np.array([1.0, 2.0], "<f2").tobytes())})
        )
    ),
    "Python that nobody runs": with_files(lambda at: (at / "train.py").write_text("")),
    "how it was registered": lambda original: replace(original, flavour="y"),
    "the longest row": lambda original: replace(original, max_tokens=16),
}


@pytest.mark.parametrize("what", LEAVES)
def test_what_decides_no_vector_leaves_the_space(tmp_path: Path, what: str) -> None:
    before = space(version(tmp_path / "a"))
    assert space(LEAVES[what](version(tmp_path / "b"))) == before
    assert space(version(tmp_path / "c"), max_tokens=24, max_batch_size=4) == before


def test_a_version_that_gives_no_vectors_has_no_space(tmp_path: Path) -> None:
    original = replace(version(tmp_path / "a"), task=Task.TEXT_CLASSIFICATION)
    assert space(original) == ""


def graph_version(folder: Path, model: onnx.ModelProto) -> OriginalTextModel:
    original = version(folder)
    onnx.save(model, str(folder / "model.onnx"))
    return replace(original, onnx=folder / "model.onnx")


def test_a_graph_is_known_by_what_it_computes(tmp_path: Path) -> None:
    before = space(graph_version(tmp_path / "a", token_vectors()))
    written = token_vectors()
    written.producer_name = "another exporter"
    for place, node in enumerate(written.graph.node):
        node.name, node.doc_string = f"node-{place}", "exporter.py line 5"
    written.graph.initializer.reverse()
    assert space(graph_version(tmp_path / "b", written)) == before
    assert space(graph_version(tmp_path / "c", token_vectors(seed=1))) != before
    other = token_vectors()
    other.graph.node[2].op_type = "Sigmoid"
    assert space(graph_version(tmp_path / "d", other)) != before
    assert space(version(tmp_path / "e")) != before


WIDTHS: Mapping[str, Callable[[list[float]], bytes]] = {
    "F64": lambda values: np.array(values, "<f8").tobytes(),
    "F32": lambda values: np.array(values, "<f4").tobytes(),
    "F16": lambda values: np.array(values, "<f2").tobytes(),
    "BF16": lambda values: (np.array(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes(),
}
# Numbers that each of these kinds has.
NUMBERS = st.lists(st.integers(-128, 128).map(lambda number: number / 64), max_size=5)


@given(st.dictionaries(st.text("ab.", min_size=1, max_size=3), NUMBERS, min_size=1), st.data())
def test_the_same_numbers_are_the_same_in_any_order_width_and_number_of_files(
    tmp_path_factory: pytest.TempPathFactory, numbers: dict[str, list[float]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("weights")

    def write(name: str, names: list[str]) -> Path:
        tensors: dict[str, tuple[str, list[int], bytes]] = {}
        for each in names:
            kind = data.draw(st.sampled_from(sorted(WIDTHS)))
            tensors[each] = kind, [len(numbers[each])], WIDTHS[kind](numbers[each])
        made: Tensors = tensors
        (folder / name).write_bytes(safetensors(made))
        return folder / name

    order = data.draw(st.permutations(sorted(numbers)))
    cut = data.draw(st.integers(0, len(order)))
    whole = weights.digest_numbers([write("whole", sorted(numbers))])
    assert weights.digest_numbers([write("b", order[cut:]), write("a", order[:cut])]) == whole
    changed = data.draw(st.sampled_from(sorted(numbers)))
    numbers[changed] = [*numbers[changed], 1.0]
    assert weights.digest_numbers([write("other", sorted(numbers))]) != whole

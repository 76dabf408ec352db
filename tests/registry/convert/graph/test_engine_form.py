import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from tiny_models import WIDTH, classifier, hybrid, reader, token_vectors

from contracts.tasks import ENGINE_OUTPUT, Task
from contracts.tensors import Datatype
from registry.convert.errors import VersionError
from registry.convert.flavours.original import Dense, Pooling, PoolingMode
from registry.convert.forms import EACH_TOKEN
from registry.convert.graph import engine_form
from registry.convert.parity.engine import GraphEngine

IDS = np.array([[2, 5, 6, 7, 3, 0, 0], [2, 8, 3, 0, 0, 0, 0]], np.int64)
MASK = (IDS != 0).astype(np.int64)


def run(model: onnx.ModelProto) -> NDArray[np.float32]:
    onnx.checker.check_model(model)
    return GraphEngine(model, threads=1).run({"input_ids": IDS, "attention_mask": MASK})[0]


def states() -> NDArray[np.float32]:
    return run(token_vectors())


def by_hand(mode: PoolingMode) -> NDArray[np.float32]:
    """The formula, row by row, over the tokens that are there."""
    rows = []
    for vectors, mask in zip(states(), MASK, strict=True):
        own = vectors[mask == 1]
        places = np.arange(1, len(own) + 1, dtype=np.float32)[:, None]
        rows.append(
            {
                PoolingMode.MEAN: own.mean(axis=0),
                PoolingMode.CLS: own[0],
                PoolingMode.MAX: own.max(axis=0),
                PoolingMode.MEAN_SQRT_LENGTH: own.sum(axis=0) / np.sqrt(len(own)),
                PoolingMode.WEIGHTED_MEAN: (own * places).sum(axis=0) / places.sum(),
                PoolingMode.LAST_TOKEN: own[-1],
                PoolingMode.SPLADE: np.log1p(np.maximum(own, 0)).max(axis=0),
            }[mode]
        )
    return np.stack(rows)


@pytest.mark.parametrize("mode", [mode for mode in PoolingMode if mode.value != EACH_TOKEN])
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_every_mode_pools_as_its_formula_says(mode: PoolingMode, opset: int) -> None:
    model = token_vectors(opset=opset)
    finished = engine_form.finish(model, Task.TEXT_EMBEDDING, Pooling((mode,)))
    assert [value.name for value in finished.graph.output] == ["embedding"]
    np.testing.assert_allclose(run(finished), by_hand(mode), atol=1e-6)


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_vectors_of_tokens_stay_apart_and_each_has_length_one(opset: int) -> None:
    pooling = Pooling((PoolingMode.EACH_TOKEN,), normalise=True)
    task = Task.MULTI_VECTOR_EMBEDDING
    finished = engine_form.finish(token_vectors(opset=opset), task, pooling)
    assert [value.name for value in finished.graph.output] == [ENGINE_OUTPUT[task].name]
    lengths = np.linalg.norm(states(), axis=2, keepdims=True)
    np.testing.assert_allclose(run(finished), states() / lengths, atol=1e-6)


def test_logits_of_a_vocabulary_become_the_weights_of_a_text() -> None:
    finished = engine_form.finish(
        token_vectors(), Task.SPARSE_EMBEDDING, Pooling((PoolingMode.SPLADE,))
    )
    assert [value.name for value in finished.graph.output] == ["sparse_embedding"]
    weights = run(finished)
    np.testing.assert_allclose(weights, by_hand(PoolingMode.SPLADE), atol=1e-6)
    assert (weights == 0).any()


def test_three_kinds_of_vectors_are_joined_to_a_row_a_token() -> None:
    finished = engine_form.finish(hybrid(), Task.HYBRID_EMBEDDING, None)
    assert [value.name for value in finished.graph.output] == ["hybrid_embedding"]
    joined, tokens = run(finished), states()
    np.testing.assert_allclose(joined[..., :-1], tokens, atol=1e-6)  # the first is the dense one
    np.testing.assert_allclose(joined[..., -1], np.maximum(tokens.sum(axis=2), 0), atol=1e-5)


def test_a_graph_without_one_of_the_kinds_is_refused() -> None:
    with pytest.raises(VersionError, match="dense_vecs, colbert_vecs, sparse_vecs are needed"):
        engine_form.finish(token_vectors(), Task.HYBRID_EMBEDDING, None)


def test_several_modes_are_joined_in_their_order() -> None:
    pooling = Pooling((PoolingMode.CLS, PoolingMode.MEAN))
    vectors = run(engine_form.finish(token_vectors(), Task.TEXT_EMBEDDING, pooling))
    assert vectors.shape == (2, 2 * WIDTH)
    np.testing.assert_allclose(vectors[:, :WIDTH], by_hand(PoolingMode.CLS), atol=1e-6)


def test_normalised_vectors_have_length_one() -> None:
    pooling = Pooling((PoolingMode.MEAN,), normalise=True)
    vectors = run(engine_form.finish(token_vectors(), Task.TEXT_EMBEDDING, pooling))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


Tensors = Mapping[str, tuple[str, list[int], bytes]]  # format, shape and numbers, by name
RNG = np.random.default_rng(0)
# Numbers that bfloat16 has exactly.
WEIGHT: NDArray[np.float32] = (RNG.integers(-8, 8, (3, WIDTH)) / 4).astype(np.float32)
BIAS = np.array([1, -2, 0.5], np.float32)


def as_bfloat16(values: NDArray[np.float32]) -> bytes:
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def layer(path: Path, tensors: Tensors) -> Pooling:
    """The mean, and a Dense module whose weights are in safetensors."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        end = len(data) + len(content)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), end]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return Pooling(dense=(Dense(path, ""),))


@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("F64", WEIGHT.astype(np.float64).tobytes()),
        ("F32", WEIGHT.tobytes()),
        ("F16", WEIGHT.astype(np.float16).tobytes()),
        ("BF16", as_bfloat16(WEIGHT)),
    ],
)
def test_a_layer_after_pooling_is_the_same_in_numbers_of_any_bits(
    tmp_path: Path, kind: str, weight: bytes
) -> None:
    pooling = layer(
        tmp_path / "l",
        {"linear.weight": (kind, [3, WIDTH], weight), "linear.bias": ("F32", [3], BIAS.tobytes())},
    )
    vectors = run(engine_form.finish(token_vectors(), Task.TEXT_EMBEDDING, pooling))
    np.testing.assert_allclose(vectors, by_hand(PoolingMode.MEAN) @ WEIGHT.T + BIAS, atol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"linear.bias": ("F32", [1], BIAS[:1].tobytes())}, r"linear.bias is 1, and .* 3 x"),
        ({"residual.weight": ("F32", [3], BIAS.tobytes())}, "it holds residual.weight"),
        ({"linear.weight": ("F32", [3], BIAS.tobytes())}, "linear.weight is 3"),
        ({"linear.weight": ("I8", [3], b"abc")}, "linear.weight is I8"),
    ],
)
def test_a_layer_after_pooling_that_its_library_would_not_load_is_refused(
    tmp_path: Path, tensors: Tensors, words: str
) -> None:
    whole: Tensors = {"linear.weight": ("F32", [3, WIDTH], WEIGHT.tobytes()), **tensors}
    with pytest.raises(VersionError, match=f"Dense module can't be read: .*{words}"):
        engine_form.finish(token_vectors(), Task.TEXT_EMBEDDING, layer(tmp_path / "l", whole))


def test_the_graph_that_was_given_is_left_alone() -> None:
    model = token_vectors()
    before = model.SerializeToString()
    engine_form.finish(model, Task.TEXT_EMBEDDING, Pooling())
    assert model.SerializeToString() == before


@pytest.mark.parametrize("name", ["logits", "output", "some_name"])
def test_an_only_output_is_renamed(name: str) -> None:
    finished = engine_form.finish(classifier(output=name), Task.TEXT_CLASSIFICATION, None)
    assert [value.name for value in finished.graph.output] == ["logits"]
    np.testing.assert_allclose(run(finished), run(classifier(output=name)), atol=1e-6)


def test_an_inner_tensor_of_the_same_name_makes_way() -> None:
    model = classifier(output="scores")
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == "mean":
                    names[index] = "logits"
    finished = engine_form.finish(model, Task.TEXT_CLASSIFICATION, None)
    np.testing.assert_allclose(run(finished), run(classifier()), atol=1e-6)


def test_outputs_that_nobody_needs_are_cut_off_with_what_made_them() -> None:
    model = classifier()
    model.graph.output.append(
        helper.make_tensor_value_info("extra", TensorProto.FLOAT, [None, None])
    )
    model.graph.node.append(helper.make_node("Abs", ["mean"], ["extra"]))
    finished = engine_form.finish(model, Task.TEXT_CLASSIFICATION, None)
    assert "Abs" not in {node.op_type for node in finished.graph.node}


def test_inputs_come_in_the_engines_order() -> None:
    found = engine_form.inputs_of(classifier())
    assert [spec.name for spec in found] == ["input_ids", "attention_mask"]
    assert {spec.datatype for spec in found} == {Datatype.INT64}
    assert {spec.shape for spec in found} == {(-1, -1)}


def with_input(name: str, kind: int, shape: list[object]) -> onnx.ModelProto:
    model = classifier()
    model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (with_input("position_ids", TensorProto.INT64, ["b", "l"]), "asks for position_ids"),
        (with_input("token_type_ids", TensorProto.FLOAT, ["b", "l"]), "int64 or int32"),
        (with_input("token_type_ids", TensorProto.INT64, ["b", 128]), "fixed size"),
        (with_input("token_type_ids", TensorProto.INT64, ["b"]), "two dimensions"),
    ],
)
def test_an_input_that_can_not_be_filled_is_named(model: onnx.ModelProto, words: str) -> None:
    with pytest.raises(VersionError, match=words):
        engine_form.inputs_of(model)


def without_mask() -> onnx.ModelProto:
    model = token_vectors()
    del model.graph.input[1]
    return model


def two_outputs() -> onnx.ModelProto:
    model = classifier(output="one")
    model.graph.output.append(helper.make_tensor_value_info("two", TensorProto.FLOAT, [None, 2]))
    model.graph.node.append(helper.make_node("Abs", ["one"], ["two"]))
    return model


@pytest.mark.parametrize(
    ("model", "task", "words"),
    [
        (two_outputs(), Task.TEXT_CLASSIFICATION, "one, two; name one logits"),
        (token_vectors(), Task.TEXT_CLASSIFICATION, r"not \[batch, width\]"),
        (token_vectors(), Task.TOKEN_CLASSIFICATION, "last_hidden_state"),
        (classifier(), Task.TOKEN_CLASSIFICATION, r"not \[batch, length, width\]"),
        (without_mask(), Task.TEXT_EMBEDDING, "attention_mask"),
        (token_vectors(opset=12), Task.TEXT_EMBEDDING, "operator set 12"),
    ],
)
def test_a_graph_that_can_not_end_as_the_task_needs_is_refused(
    model: onnx.ModelProto, task: Task, words: str
) -> None:
    with pytest.raises(VersionError, match=words):
        engine_form.finish(model, task, Pooling())


def test_a_file_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a graph at all")
    with pytest.raises(VersionError, match="not a readable ONNX graph"):
        engine_form.load(path)


def test_starts_and_ends_become_columns_of_one_output() -> None:
    finished = engine_form.finish(reader(), Task.QUESTION_ANSWERING, None)
    assert [value.name for value in finished.graph.output] == ["logits"]
    feed = {"input_ids": IDS, "attention_mask": MASK}
    apart = GraphEngine(reader(), threads=1).run(feed)
    np.testing.assert_array_equal(run(finished), np.stack(apart, axis=-1))


def test_starts_of_another_shape_are_refused() -> None:
    model = reader()
    shape = model.graph.output[0].type.tensor_type.shape
    shape.dim.add()
    with pytest.raises(VersionError, match="start_logits must hold floats"):
        engine_form.finish(model, Task.QUESTION_ANSWERING, None)


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same that gives float16, as graphs do that were made smaller."""
    output = model.graph.output[0]
    for node in model.graph.node:
        node.output[:] = [f"wide/{name}" if name == output.name else name for name in node.output]
    model.graph.node.append(
        helper.make_node("Cast", [f"wide/{output.name}"], [output.name], to=TensorProto.FLOAT16)
    )
    output.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


@pytest.mark.parametrize("mode", [PoolingMode.MEAN, PoolingMode.MAX, PoolingMode.SPLADE])
def test_float16_token_vectors_are_pooled_in_float32(mode: PoolingMode) -> None:
    task = Task.SPARSE_EMBEDDING if mode is PoolingMode.SPLADE else Task.TEXT_EMBEDDING
    finished = engine_form.finish(halved(token_vectors()), task, Pooling((mode,)))
    found = run(finished)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(mode), atol=2e-3)


def test_float16_logits_are_answered_as_float32() -> None:
    finished = engine_form.finish(halved(classifier()), Task.TEXT_CLASSIFICATION, None)
    found = run(finished)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, run(classifier()), atol=2e-2)


def test_float16_starts_and_ends_become_columns_of_float32() -> None:
    model = halved(reader())
    finished = engine_form.finish(model, Task.QUESTION_ANSWERING, None)
    assert run(finished).dtype == np.float32

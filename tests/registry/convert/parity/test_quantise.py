from collections.abc import Sequence

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import TEXTS, classifier, tokenizer

from contracts.endpoint import ServingOptions
from contracts.manifest import TokenizerSpec
from preprocess.buckets import automatic_buckets
from preprocess.encoder import TextEncoder
from registry.convert.graph import engine_form
from registry.convert.parity import precision, quantise
from registry.convert.parity.engine import GraphEngine, TokenisedTexts, encode

MAX_TOKENS = ServingOptions().max_tokens


def encoded(model: onnx.ModelProto, texts: Sequence[str] = TEXTS) -> TokenisedTexts:
    spec = TokenizerSpec(max_tokens=24, pad_id=0, unk_id=1, vocabulary=20)
    encoder = TextEncoder(tokenizer().to_str().encode(), spec)
    return encode(texts, encoder, engine_form.inputs_of(model), spec, automatic_buckets(24))


def test_every_constant_product_becomes_an_integer_one() -> None:
    model = classifier()
    built = precision.int8(model, encoded(model), threads=1)
    assert built is not None
    kinds = [node.op_type for node in built.model.graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 2
    assert "MatMul" not in kinds


def test_the_float_graph_is_left_alone() -> None:
    model = classifier()
    before = model.SerializeToString()
    precision.int8(model, encoded(model), threads=1)
    assert model.SerializeToString() == before


def test_int8_answers_nearly_as_float32() -> None:
    model = classifier()
    texts = encoded(model)
    built = precision.int8(model, texts, threads=1)
    assert built is not None
    exact = GraphEngine(model, threads=1).outputs(texts)
    near = built.engine.outputs(texts)
    assert np.abs(exact - near).max() < 0.05 * np.abs(exact).max()


def test_no_scale_is_taken_from_the_batch() -> None:
    """An extreme neighbour changes nothing: what dynamic quantisation gets wrong."""
    model = classifier()
    table = next(t for t in model.graph.initializer if t.name == "table")
    values = onnx.numpy_helper.to_array(table).copy()
    values[7] *= 1000  # a token that no calibration text holds
    table.CopyFrom(onnx.numpy_helper.from_array(values, "table"))
    calm = encoded(model, ["the film", "a good film"] * 8)
    built = precision.int8(model, calm, threads=1)
    assert built is not None
    mask = np.ones((2, 3), np.int64)
    alone = built.engine.run({"input_ids": np.array([[2, 4, 3]]), "attention_mask": mask[:1]})[0]
    among = built.engine.run(
        {"input_ids": np.array([[2, 4, 3], [2, 7, 3]]), "attention_mask": mask}
    )[0]
    np.testing.assert_array_equal(alone[0], among[0])


def test_a_graph_without_products_is_left_to_float32() -> None:
    model = classifier()
    for node in model.graph.node:
        if node.op_type == "MatMul":
            node.op_type = "Gemm"
    assert precision.int8(model, encoded(classifier()), threads=1) is None


def seen(rows: NDArray[np.float32]) -> quantise.Range:
    calibration = quantise.RangeCalibration(1)
    calibration.add("x", rows[None])
    return calibration.ranges["x"]


def test_smoothing_tames_a_channel_far_larger_than_the_others() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(64, 32)).astype(np.float32)
    rows[:, 5] *= 200
    weights = random.normal(size=(32, 8)).astype(np.float32)
    scales = quantise.scales_for(seen(rows), weights)
    assert scales.channel is not None
    plain = quantise.uniform_scales(seen(rows), None)

    def error(choice: quantise.Scales) -> float:
        return float(np.abs(quantise.int8_product(rows, weights, choice) - rows @ weights).mean())

    assert error(scales) < error(plain) / 2


@given(
    st.integers(0, 2**32 - 1),
    st.floats(-50, 50, allow_nan=False),
    st.floats(0.01, 100, allow_nan=False),
)
def test_every_value_that_was_seen_is_within_half_a_step(
    seed: int, offset: float, spread: float
) -> None:
    rows = np.random.default_rng(seed).normal(offset, spread, size=(16, 4)).astype(np.float32)
    scales = quantise.uniform_scales(seen(rows), None)
    codes = np.rint(rows / scales.scale) + scales.zero_point
    assert 0 <= scales.zero_point <= 255
    assert codes.min() >= -1
    assert codes.max() <= 256
    near = (np.clip(codes, 0, 255) - scales.zero_point) * scales.scale
    assert np.abs(near - rows).max() <= 1.01 * scales.scale


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
def test_weights_stay_within_seven_bits_and_half_a_step(seed: int, k: int, n: int) -> None:
    weight = np.random.default_rng(seed).normal(size=(k, n)).astype(np.float32)
    codes, steps = quantise.integer_weight(weight)
    assert np.abs(codes.astype(int)).max() <= 63
    assert (np.abs(codes * steps - weight) <= 0.501 * steps).all()


def test_a_column_of_zeros_stays_zero() -> None:
    codes, steps = quantise.integer_weight(np.zeros((3, 2), np.float32))
    assert not codes.any()
    assert np.isfinite(steps).all()

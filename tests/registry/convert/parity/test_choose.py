from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import TEXTS, classifier, tokenizer

from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from contracts.manifest import Parity, TokenizerSpec
from contracts.tasks import Task
from preprocess.buckets import automatic_buckets
from preprocess.encoder import TextEncoder
from registry.convert.errors import VersionError
from registry.convert.graph import engine_form
from registry.convert.parity.choose import Trial, choose
from registry.convert.parity.engine import GraphEngine, encode
from registry.convert.parity.proof import Comparison
from registry.convert.parity.verify import (
    batch_invariance,
    broken_limit,
    compare,
    limits_for,
    shared_neighbours,
    values_of,
)

Floats = NDArray[np.float32]


def trial(model: onnx.ModelProto, requested: Precision = Precision.AUTO) -> Trial:
    spec = TokenizerSpec(max_tokens=24, pad_id=0, unk_id=1, vocabulary=20)
    encoder = TextEncoder(tokenizer().to_str().encode(), spec)
    texts = encode(TEXTS, encoder, engine_form.inputs_of(model), spec, automatic_buckets(24))
    outputs = GraphEngine(model, threads=1).run_one_by_one(texts)
    comparison = Comparison(
        task=Task.TEXT_CLASSIFICATION,
        multi_label=False,
        texts=texts,
        reference=values_of(Task.TEXT_CLASSIFICATION, outputs, multi_label=False),
        reference_name="onnx-fp32",
    )
    return Trial(requested=requested, model=model, comparison=comparison, threads=1)


@pytest.mark.parametrize("requested", [Precision.FP32, Precision.FP16, Precision.INT8])
def test_the_precision_that_was_asked_for_is_made_and_proved(requested: Precision) -> None:
    chosen = choose(trial(classifier(), requested))
    assert chosen.precision is requested
    assert chosen.proof.parity.limits == limits_for(Task.TEXT_CLASSIFICATION, requested)
    assert broken_limit(chosen.proof.parity) == ""


def test_a_graph_for_gpus_stays_in_float32_and_says_why_it_has_no_better_engine() -> None:
    for_gpus = replace(trial(classifier()), device=DeviceKind.GPU, given_up="it is a graph")
    chosen = choose(for_gpus)
    assert chosen.precision is Precision.FP32
    assert chosen.proof.parity.fallback == "it is a graph"


def test_int8_without_products_is_refused_where_asked_for_and_explained_where_not() -> None:
    model = classifier()
    for node in model.graph.node:
        if node.op_type == "MatMul":
            # The same arithmetic by an operator that is not quantised.
            node.op_type = "Einsum"
            equation = "blk,kn->bln" if node.output[0] == "mixed" else "bk,kn->bn"
            node.attribute.append(onnx.helper.make_attribute("equation", equation))
    with pytest.raises(VersionError, match="no matrix products"):
        choose(trial(model, Precision.INT8))
    chosen = choose(trial(model))
    assert chosen.precision is Precision.FP32
    assert "no matrix products" in chosen.proof.parity.fallback


def test_a_graph_that_answers_otherwise_than_the_original_is_refused() -> None:
    honest = trial(classifier())
    other = honest.comparison.reference[:, ::-1].copy()
    with pytest.raises(VersionError, match="does not answer as the original"):
        choose(replace(honest, comparison=replace(honest.comparison, reference=other)))


def test_a_graph_whose_neighbours_change_answers_is_found_out() -> None:
    leaky = classifier()
    # Every text gets the mean of the whole batch added.
    graph_ = leaky.graph
    graph_.node[-1].input[0] = "leaked"
    graph_.initializer.append(onnx.numpy_helper.from_array(np.array([0], np.int64), "first"))
    node = onnx.helper.make_node("ReduceSum", ["mean", "first"], ["all"], keepdims=1)
    graph_.node.insert(len(graph_.node) - 1, node)
    graph_.node.insert(
        len(graph_.node) - 1, onnx.helper.make_node("Add", ["mean", "all"], ["leaked"])
    )
    case = trial(leaky)
    moved = batch_invariance(
        GraphEngine(leaky, threads=1),
        case.comparison.texts,
        Task.TEXT_CLASSIFICATION,
        multi_label=False,
    )
    assert moved > 1e-3


@pytest.mark.parametrize(
    ("changed", "limit", "words"),
    [
        ([[0.4, 0.6], [0.5, 0.5]], "min_equal_labels", "equal labels is 0.5"),
        ([[0.9, 0.1], [0.9, 0.1]], "max_abs_difference", "max abs difference is 0.3"),
        ([[0.9, 0.1], [0.9, 0.1]], "mean_abs_difference", "mean abs difference is 0.15"),
    ],
)
def test_a_broken_limit_is_named_with_its_figure(
    changed: list[list[float]], limit: str, words: str
) -> None:
    original = np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)
    parity = compare(
        Task.TEXT_CLASSIFICATION,
        original,
        np.array(changed, np.float32),
        precision=Precision.INT8,
        reference="x",
        batch_difference=0.0,
    )
    alone = parity.model_copy(update={"limits": {limit: parity.limits[limit]}})
    assert words in broken_limit(alone)


def test_vectors_are_judged_by_their_size_and_direction() -> None:
    original = np.array([[3.0, 4.0], [30.0, 40.0]], np.float32)
    parity = compare(
        Task.TEXT_EMBEDDING,
        original,
        original * 1.001,
        precision=Precision.FP32,
        reference="x",
        batch_difference=0.0,
    )
    assert parity.min_cosine == pytest.approx(1.0)
    assert parity.max_abs_difference == pytest.approx(0.04 / 27.5, rel=1e-3)
    assert parity.equal_labels is None


def test_a_batch_difference_beyond_its_limit_is_broken() -> None:
    same = np.ones((1, 2), np.float32)
    parity = compare(
        Task.TEXT_EMBEDDING,
        same,
        same,
        precision=Precision.INT8,
        reference="x",
        batch_difference=0.01,
    )
    assert "batch max abs difference is 0.01" in broken_limit(parity)


def vectors_parity(original: Floats, values: Floats, precision: Precision) -> Parity:
    return compare(
        Task.TEXT_EMBEDDING,
        original,
        values,
        precision=precision,
        reference="x",
        batch_difference=0.0,
    )


def directions(texts: int, *, seed: int = 0) -> Floats:
    """Vectors around ten topics, as texts have them: several are near to each."""
    random = np.random.default_rng(seed)
    topics = random.normal(size=(10, 32))
    made = topics[np.arange(texts) % 10] + 0.7 * random.normal(size=(texts, 32))
    unit: Floats = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_vectors_that_keep_their_cosine_and_not_their_neighbours_are_refused() -> None:
    original = directions(200)
    noise = np.random.default_rng(1).normal(size=original.shape)
    noise *= 0.25 / np.linalg.norm(noise, axis=1, keepdims=True)
    parity = vectors_parity(original, (original + noise).astype(np.float32), Precision.INT8)
    assert parity.min_cosine is not None
    assert parity.min_cosine > parity.limits["min_cosine"]
    assert parity.neighbours is not None
    assert 0.5 < parity.neighbours < parity.limits["min_neighbours"]
    assert broken_limit(parity) == (
        f"of the 10 texts nearest to a text, {parity.neighbours:.1%} are the original's on "
        "average, and at least 90.0% must be: searches would find other texts"
    )


def test_an_endpoints_own_share_of_neighbours_takes_the_place_of_the_tasks() -> None:
    for precision in (Precision.FP16, Precision.INT8):
        known = limits_for(Task.TEXT_EMBEDDING, precision)
        own = limits_for(Task.TEXT_EMBEDDING, precision, 0.7)
        assert own == {**known, "min_neighbours": 0.7}
    # float32 is held to the original, and other tasks have no neighbours.
    for task, precision in (
        (Task.TEXT_EMBEDDING, Precision.FP32),
        (Task.TEXT_CLASSIFICATION, Precision.INT8),
    ):
        assert limits_for(task, precision, 0.7) == limits_for(task, precision)


@given(
    seed=st.integers(0, 2**32 - 1),
    texts=st.integers(50, 80),
    scale=st.floats(0.01, 100, allow_nan=False),
    copies=st.integers(1, 4),
)
def test_neighbours_are_those_of_a_plain_search(
    seed: int, texts: int, scale: float, copies: int
) -> None:
    original = directions(texts, seed=seed)
    original[: copies * 2] = original[0]  # equal texts, of which any may come first
    other = directions(texts, seed=seed + 1)
    assert shared_neighbours(original, original * np.float32(scale)) == 1.0
    found = shared_neighbours(original, other)
    assert found is not None
    fewest = most = 0
    for place in range(texts):
        near, theirs = (
            vectors.astype(np.float64) @ vectors[place].astype(np.float64)
            for vectors in (other, original)
        )
        near[place] = theirs[place] = -np.inf
        least = np.sort(theirs)[-10]
        cosines = theirs[np.argsort(-near)[:10]]
        fewest += int((cosines >= least).sum())
        most += int((cosines >= least - 1e-5).sum())
    # What is nearly equally near may come out otherwise in float32, in one place or another.
    assert fewest - 2 <= found * 10 * texts <= most + 2


def test_too_few_texts_tell_nothing_of_neighbours() -> None:
    original = directions(49)
    assert shared_neighbours(original, original[::-1].copy()) is None
    assert shared_neighbours(directions(50), directions(50)) == 1.0

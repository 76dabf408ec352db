"""Rows together, without padding, against transformers' own run of each row by itself."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed_files import beside_each_other, packed
from tiny_encoders import (
    LABELS,
    LONGEST,
    SIZES,
    VOCABULARY,
    starts_of,
    write_encoder,
    write_told,
)

from registry.convert.flavours.original import PoolingMode

torch = pytest.importorskip("torch")
import transformers  # noqa: E402 - beside torch
from safetensors.torch import save_file  # noqa: E402

pytestmark = pytest.mark.export

MODEL = "AutoModel"
CLASSIFIER = "AutoModelForSequenceClassification"
TOKENS = "AutoModelForTokenClassification"
SPANS = "AutoModelForQuestionAnswering"
WORDS = "AutoModelForMaskedLM"
# Heads that transformers lacks for an architecture, or that this engine refuses.
LACKING = {
    "eurobert": {SPANS},
    "gemma3_text": {CLASSIFIER, TOKENS, SPANS, WORDS},
    "nomic_bert": {SPANS},
}
EACH = [
    (kind, loader)
    for kind in SIZES
    for loader in (MODEL, CLASSIFIER, TOKENS, SPANS, WORDS)
    if loader not in LACKING.get(kind, ())
]
FURTHER: Mapping[str, Mapping[str, Any]] = {
    "eurobert": {"classifier_pooling": "mean"},
}
FIRST_ID = 5  # before it are ids that architectures take for padding
LENGTHS = (7, 1, LONGEST, 7, 23, 2)
EXACT = 1e-5

FORMULAS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda states: states.mean(0),
    "cls": lambda states: states[0],
    "lasttoken": lambda states: states[-1],
    "max": lambda states: states.max(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / np.sqrt(len(states)),
    "weightedmean": lambda states: np.average(
        states, axis=0, weights=np.arange(1, len(states) + 1)
    ),
}


@pytest.fixture(scope="module")
def engine_module() -> Iterator[ModuleType]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # of models so small that threads only wait for each other
    with beside_each_other():
        yield packed("packed_engine")


def test_the_packed_engine_knows_every_pooling_that_a_graph_does(engine_module: ModuleType) -> None:
    of_tokens = {PoolingMode.EACH_TOKEN}  # of late interaction, which only a graph gives
    assert set(engine_module.POOLING) == {mode.value for mode in set(PoolingMode) - of_tokens}


def rows_of(lengths: Sequence[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random ids, and where each row begins."""
    starts = np.array(starts_of(lengths), np.int32)
    random = np.random.default_rng(seed)
    return random.integers(FIRST_ID, VOCABULARY, starts[-1]).astype(np.int32), starts


def alone(
    folder: Path, loader: str, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None
) -> list[np.ndarray]:
    """What transformers gives for each row by itself, by its own attention: ``[tokens, n]``."""
    model = getattr(transformers, loader).from_pretrained(folder, attn_implementation="sdpa")
    found = []
    with torch.inference_mode():
        for start, end in itertools.pairwise(starts):
            given = {"input_ids": torch.from_numpy(ids[start:end]).long().unsqueeze(0)}
            if types is not None:
                given["token_type_ids"] = torch.from_numpy(types[start:end]).long().unsqueeze(0)
            result = model.eval()(**given)
            if "start_logits" in result:
                values = torch.stack([result.start_logits, result.end_logits], dim=-1)
            else:
                values = result.logits if "logits" in result else result.last_hidden_state
            found.append(values[0].numpy())
    return found


def engine_of(module: ModuleType, folder: Path, kind: str, loader: str, **told: object) -> Any:
    """A random model of an architecture, loaded as Triton loads it."""
    further = {**FURTHER.get(kind, {}), "num_labels": 2 if loader == SPANS else LABELS}
    write_encoder(folder, kind, loader, **further)
    return module.PackedEngine(folder, write_told(folder, loader, **told))


@pytest.mark.parametrize(("kind", "loader"), EACH)
def test_rows_together_answer_as_each_alone(
    engine_module: ModuleType, tmp_path: Path, kind: str, loader: str
) -> None:
    by_token = loader in {TOKENS, SPANS}
    modes = {MODEL: ["mean"], WORDS: ["splade"]}.get(loader, [])
    engine = engine_of(
        engine_module, tmp_path, kind, loader, rank=3 if by_token else 2, modes=modes
    )
    ids, starts = rows_of(LENGTHS)
    types = None
    if engine.types > 1:
        types = np.random.default_rng(1).integers(0, 2, len(ids)).astype(np.uint8)
    own = alone(tmp_path, loader, ids, starts, types)
    match loader:
        case "AutoModel":
            expected = np.stack([states.mean(0) for states in own])
        case "AutoModelForMaskedLM":
            expected = np.stack([np.log1p(np.maximum(words.max(0), 0)) for words in own])
        case _:
            expected = np.concatenate(own) if by_token else np.stack(own)
    answers = engine.run(ids, starts, types)
    assert answers.dtype == np.float32
    assert answers.shape == expected.shape
    np.testing.assert_allclose(answers, expected, atol=EXACT * max(1, np.abs(expected).max()))
    assert np.abs(np.diff(expected, axis=0)).max() > 100 * EXACT  # rows do differ
    engine.check()


@pytest.mark.parametrize("classifier_pooling", ["cls", "mean"])
def test_a_classifier_pools_as_its_configuration_says(
    engine_module: ModuleType, tmp_path: Path, classifier_pooling: str
) -> None:
    write_encoder(tmp_path, "modernbert", CLASSIFIER, classifier_pooling=classifier_pooling)
    engine = engine_module.PackedEngine(tmp_path, write_told(tmp_path, CLASSIFIER))
    ids, starts = rows_of(LENGTHS)
    expected = np.stack(alone(tmp_path, CLASSIFIER, ids, starts, None))
    np.testing.assert_allclose(engine.run(ids, starts), expected, atol=1e-4)


def test_all_that_follows_token_vectors_is_as_its_formula(
    engine_module: ModuleType, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert", MODEL)
    width = SIZES["bert"]["hidden_size"]
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(4, width * len(FORMULAS), generator=random)
    bias = torch.randn(4, generator=random)
    save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "dense.safetensors")
    ids, starts = rows_of(LENGTHS)
    own = alone(tmp_path, MODEL, ids, starts, None)
    pooled = np.stack([np.concatenate([f(states) for f in FORMULAS.values()]) for states in own])
    finished = np.tanh(pooled @ weight.numpy().T + bias.numpy())
    finished /= np.linalg.norm(finished, axis=1, keepdims=True)
    for expected, further in (
        (pooled, {}),
        (
            finished,
            {
                "dense": [{"file": "dense.safetensors", "activation": "Tanh"}],
                "normalise": True,
            },
        ),
    ):
        told = write_told(tmp_path, MODEL, modes=list(FORMULAS), **further)
        answers = engine_module.PackedEngine(tmp_path, told).run(ids, starts)
        np.testing.assert_allclose(answers, expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["bert", "modernbert", "roberta"])
@pytest.mark.parametrize("loader", [MODEL, CLASSIFIER, TOKENS])
def test_rows_that_fill_a_graph_up_change_no_answer(
    engine_module: ModuleType, tmp_path: Path, kind: str, loader: str
) -> None:
    """What a GPU replays, run on the CPU: empty rows, and rows of a fixed id, behind the real."""
    buckets = packed("packed_buckets")
    by_token = loader == TOKENS
    modes = [*FORMULAS] if loader == MODEL else []
    engine = engine_of(
        engine_module, tmp_path, kind, loader, rank=3 if by_token else 2, modes=modes
    )
    longest = min(buckets.LONGEST_ROW, engine.row_tokens)
    for lengths in ((3,), (LONGEST, 1, 9), (2,) * 20, (LONGEST,) * 4):
        ids, starts = rows_of(lengths)
        shape = buckets.shape_for(starts, longest)
        filled = buckets.fill_rows(starts, shape, longest)
        inputs = torch.from_numpy(engine.inputs(ids, filled, None))
        with torch.inference_mode():
            answers = engine.forward(inputs, shape.tokens, longest).numpy()
        assert len(answers) == (shape.tokens if by_token else shape.rows)
        expected = engine.run(ids, starts)
        np.testing.assert_allclose(answers[: len(expected)], expected, atol=2e-5)


def kernel(
    query: Any,
    key: Any,
    value: Any,
    starts: Any,
    _starts: Any,
    longest: int,
    _longest: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> Any:
    """A stand-in for torch's ``varlen_attn``, which runs on GPUs only, with what it asks for."""
    assert starts.dtype == torch.int32
    assert query.shape[2] % 8 == 0
    answer = torch.zeros(*query.shape[:2], value.shape[2])
    for start, end in itertools.pairwise(starts.tolist()):
        assert end - start <= longest
        places = torch.arange(end - start)
        near = (places.unsqueeze(0) - places.unsqueeze(1)).abs() <= window_size[0]
        answer[start:end] = torch.nn.functional.scaled_dot_product_attention(
            *(each[start:end].transpose(0, 1).unsqueeze(0) for each in (query, key, value)),
            attn_mask=None if window_size[0] < 0 else near,
            scale=scale,
            enable_gqa=enable_gqa,
        )[0].transpose(0, 1)
    return answer


@pytest.mark.parametrize(
    ("kind", "further"),
    [
        *((kind, {}) for kind in ("bert", "eurobert", "gemma3_text", "modernbert")),
        ("bert", {"hidden_size": 24}),  # heads of 6 values, which the kernel does not take
    ],
)
def test_the_kernel_for_all_lengths_is_asked_as_the_model_attends(
    engine_module: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    further: dict[str, int],
) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)

    class OneKernel(engine_module.PackedEngine):  # type: ignore[name-defined]
        has_variable_lengths = True

    write_encoder(tmp_path, kind, MODEL, 0, **further)
    told = write_told(tmp_path, MODEL, modes=["mean"])
    engine = OneKernel(tmp_path, told)
    engine.check()
    buckets = packed("packed_buckets")
    ids, starts = rows_of(LENGTHS)
    shape = buckets.shape_for(starts, LONGEST)
    inputs = torch.from_numpy(engine.inputs(ids, buckets.fill_rows(starts, shape, LONGEST), None))
    with torch.inference_mode():
        answers = engine.forward(inputs, shape.tokens, LONGEST).numpy()
    expected = engine_module.PackedEngine(tmp_path, told).run(ids, starts)
    np.testing.assert_allclose(answers[: len(LENGTHS)], expected, atol=EXACT)


ROWS = st.lists(st.integers(1, LONGEST), min_size=1, max_size=6)


@pytest.mark.parametrize(("dtype", "most"), [("fp32", EXACT), ("fp16", 1e-3), ("bf16", 1e-2)])
def test_a_text_is_answered_alike_alone_and_in_company(
    engine_module: ModuleType, tmp_path: Path, dtype: str, most: float
) -> None:
    write_encoder(tmp_path, "bert", MODEL)
    told = write_told(tmp_path, MODEL, modes=["mean"], normalise=True, dtype=dtype)
    engine = engine_module.PackedEngine(tmp_path, told)

    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(lengths=ROWS, seed=st.integers(0, 99))
    def holds(lengths: list[int], seed: int) -> None:
        ids, starts = rows_of(lengths, seed)
        together = engine.run(ids, starts)
        for row, (start, end) in enumerate(itertools.pairwise(starts)):
            by_itself = engine.run(ids[start:end], np.array([0, end - start], np.int32))
            np.testing.assert_allclose(together[row], by_itself[0], atol=most)

    holds()


def test_positions_go_as_far_as_the_model_has_them(
    engine_module: ModuleType, tmp_path: Path
) -> None:
    engine = engine_of(engine_module, tmp_path, "roberta", MODEL, modes=["mean"])
    assert engine.row_tokens == LONGEST
    assert engine.vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("kind", "loader", "further", "words"),
    [
        ("deberta-v2", MODEL, {}, "the architecture 'deberta-v2'"),
        ("t5", MODEL, {"is_encoder_decoder": True}, "the architecture 't5'"),
        ("bert", "AutoModelForCausalLM", {}, "load models by 'AutoModelForCausalLM'"),
        ("bert", MODEL, {"is_decoder": True}, "the model is a decoder"),
        ("bert", MODEL, {"position_embedding_type": "relative_key"}, "'relative_key'"),
        ("gemma3_text", MODEL, {}, "look only back"),
        ("gemma3_text", CLASSIFIER, {"use_bidirectional_attention": True}, "only by AutoModel"),
        ("eurobert", CLASSIFIER, {}, "looks at every token"),
        (
            "nomic_bert",
            MODEL,
            {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}},
            "positions of the kind dynamic",
        ),
    ],
)
def test_a_model_that_does_not_suit_is_refused_with_the_reason(
    engine_module: ModuleType, kind: str, loader: str, further: dict[str, Any], words: str
) -> None:
    assert words in engine_module.suits({"model_type": kind, **further}, loader)


@pytest.mark.parametrize(("kind", "loader"), EACH)
def test_models_that_suit_are_not_refused(
    engine_module: ModuleType, tmp_path: Path, kind: str, loader: str
) -> None:
    labels = 2 if loader == SPANS else LABELS
    config = transformers.AutoConfig.for_model(
        kind, **{**SIZES[kind], **FURTHER.get(kind, {}), "num_labels": labels}
    )
    assert engine_module.suits(config.to_dict(), loader) == ""


def test_weights_that_a_model_lacks_are_not_made_up(
    engine_module: ModuleType, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert", MODEL)
    with pytest.raises(engine_module.UnsuitableError, match=r"don't fit the model: classifier"):
        engine_module.PackedEngine(tmp_path, write_told(tmp_path, CLASSIFIER))


@pytest.mark.parametrize("kind", SIZES)
def test_an_id_of_padding_in_a_text_is_read_as_the_model_reads_it(
    engine_module: ModuleType, tmp_path: Path, kind: str
) -> None:
    engine = engine_of(engine_module, tmp_path, kind, MODEL, modes=["mean"])
    padding = int(transformers.AutoConfig.from_pretrained(tmp_path).pad_token_id or 0)
    ids, starts = rows_of((4, 1, 6, 2))
    ids[[0, 2, 4, 7, 8, 10, 12]] = padding  # first, last, alone, in a row
    own = alone(tmp_path, MODEL, ids, starts, None)
    expected = np.stack([states.mean(0) for states in own])
    answers = engine.run(ids, starts, None)
    np.testing.assert_allclose(answers, expected, atol=EXACT * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("padding", [0, 3])
def test_the_check_may_have_padding_among_its_ids(
    engine_module: ModuleType, tmp_path: Path, padding: int
) -> None:
    further = {"pad_token_id": padding, "max_position_embeddings": padding + 1 + LONGEST}
    write_encoder(tmp_path, "roberta", MODEL, 0, vocab_size=4, **further)  # each id comes up
    engine_module.PackedEngine(tmp_path, write_told(tmp_path, MODEL, modes=["mean"])).check()


def test_token_vectors_are_no_answer(engine_module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(engine_module.UnsuitableError, match="says no pooling"):
        engine_of(engine_module, tmp_path, "bert", MODEL)


def test_an_engine_that_mixes_rows_fails_its_own_check(
    engine_module: ModuleType, tmp_path: Path
) -> None:
    engine = engine_of(engine_module, tmp_path, "bert", MODEL, modes=["mean"])

    class Mixed(engine_module.PackedEngine):  # type: ignore[name-defined]
        def inputs(self, ids: np.ndarray, starts: np.ndarray, types: Any) -> np.ndarray:
            made: np.ndarray = super().inputs(ids, starts, types)
            made[3 * len(ids) : 4 * len(ids)] = np.arange(len(ids)) % LONGEST  # positions go on
            return made

    mixed = Mixed(tmp_path, write_told(tmp_path, MODEL, modes=["mean"]))
    engine.check()
    with pytest.raises(engine_module.UnsuitableError, match="from each by itself"):
        mixed.check()

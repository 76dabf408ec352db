"""The committed example is what its README says it is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "sentiment"


def rows(name: str) -> list[dict[str, Any]]:
    lines = (EXAMPLE / "texts" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_file(str(EXAMPLE / "model" / "tokenizer.json"))
    found.enable_truncation(512)
    return found


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        EXAMPLE / "model" / "model.onnx", options, providers=["CPUExecutionProvider"]
    )


def logits(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer, texts: list[str]
) -> NDArray[np.float32]:
    found = []
    for text in texts:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        found.append(session.run(["logits"], feeds)[0])
    joined: NDArray[np.float32] = np.concatenate(found)
    return joined


def test_the_graph_takes_ids_and_mask_of_any_shape_and_gives_logits() -> None:
    graph = onnx.load(EXAMPLE / "model" / "model.onnx").graph
    assert [each.name for each in graph.input] == ["input_ids", "attention_mask"]
    assert [each.name for each in graph.output] == ["logits"]
    for each in graph.input:
        assert all(size.dim_param for size in each.type.tensor_type.shape.dim)


def test_everything_committed_fits_in_twelve_megabytes() -> None:
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) < 12e6


@pytest.mark.parametrize(
    ("file", "domain", "metric"),
    [
        ("held_out.jsonl", "movie-reviews", "movie-reviews"),
        ("held_out.jsonl", "product-reviews", "product-reviews"),
        ("other_domains.jsonl", "editorials", "editorials"),
        ("other_domains.jsonl", "tweets", "tweets"),
    ],
)
def test_the_stated_accuracy_shows_on_the_committed_texts(
    session: onnxruntime.InferenceSession,
    tokenizer: Tokenizer,
    file: str,
    domain: str,
    metric: str,
) -> None:
    stated = json.loads((EXAMPLE / "model" / "accuracy.json").read_text())[metric]
    chosen = [row for row in rows(file) if row["domain"] == domain]
    found = logits(session, tokenizer, [row["text"] for row in chosen])
    answers = np.array([row["label"] == "positive" for row in chosen])
    accuracy = float(((found[:, 1] > found[:, 0]) == answers).mean())
    # A sample of n texts strays from the whole by three standard errors at most, seldom else.
    assert accuracy == pytest.approx(stated, abs=3 * (stated * (1 - stated) / len(chosen)) ** 0.5)


def test_padding_does_not_change_an_answer(
    session: onnxruntime.InferenceSession, tokenizer: Tokenizer
) -> None:
    texts = [row["text"] for row in rows("held_out.jsonl")[:32]]
    alone = logits(session, tokenizer, texts)
    encoded = [tokenizer.encode(text).ids for text in texts]
    ids = np.zeros((len(texts), 512), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, found in enumerate(encoded):
        ids[row, : len(found)] = found
        mask[row, : len(found)] = 1
    together = session.run(["logits"], {"input_ids": ids, "attention_mask": mask})[0]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_the_replayed_lengths_are_those_that_the_targets_name(tokenizer: Tokenizer) -> None:
    texts = (EXAMPLE / "texts" / "replay.txt").read_text(encoding="utf-8").splitlines()
    lengths = np.array([len(tokenizer.encode(text).ids) for text in texts])
    assert len(set(texts)) == 2000
    np.testing.assert_allclose(np.percentile(lengths, [10, 50, 90]), [15, 41, 111], atol=2)
    assert lengths.mean() == pytest.approx(54, abs=2)

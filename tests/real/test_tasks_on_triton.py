"""Ranking and labels of tokens over a real Triton: rows of many callers share its batches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from gateway_world import FakeEngine, call_of, endpoint_of
from numpy.typing import NDArray
from pipeline_world import World, world_of
from tiny_models import TEXTS, VOCABULARY, WORDS, classifier, labeller, tokenizer

from contracts.endpoint import Limits, Precision
from contracts.manifest import MODEL_ONNX, TOKENIZER, Lineage, Manifest, TokenizerSpec
from contracts.tasks import ENGINE_OUTPUT, Task
from contracts.tensors import Datatype, TensorSpec
from gateway.engine.protocol import Work
from gateway.engine.triton import TritonEngine
from gateway.packages import ServedModel, open_package
from headrace.stack.triton import TritonProcess
from preprocess.padding import RowPadder
from preprocess.tasks import HEADS
from preprocess.tasks.ranking import ranked
from registry.convert import package
from registry.convert.parity.engine import Engine, Texts
from registry.convert.parity.verify import values_of
from registry.loading.placement import UploadedFiles
from registry.loading.triton_client import GrpcTriton

pytestmark = pytest.mark.real

INPUTS = tuple(
    TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1, -1))
    for name in ("input_ids", "attention_mask")
)
BUCKETS = (8, 16, 32)
TAGS = ("O", "B-FOOD", "I-FOOD")
LIMITS = Limits(max_texts_per_request=500)


def served(
    folder: Path, task: Task, graph: onnx.ModelProto, labels: tuple[str, ...]
) -> ServedModel:
    """A package of a graph, with its files for Triton in ``folder``."""
    folder.mkdir()
    (folder / MODEL_ONNX).write_bytes(graph.SerializeToString())
    data = tokenizer().to_str().encode()
    (folder / TOKENIZER).write_bytes(data)
    spec = ENGINE_OUTPUT[task]
    outputs = (spec.model_copy(update={"shape": (*spec.shape[:-1], len(labels))}),)
    package.write_configs(folder, inputs=INPUTS, outputs=outputs, max_batch_size=16, threads=1)
    manifest = Manifest(
        model="tiny",
        version="8",
        task=task,
        labels=labels,
        precision=Precision.FP32,
        max_batch_size=16,
        length_buckets=BUCKETS,
        tokenizer=TokenizerSpec(max_tokens=32, pad_id=0, unk_id=1, vocabulary=VOCABULARY),
        inputs=INPUTS,
        outputs=outputs,
        files=package.proofs(folder),
        lineage=Lineage(registered_model="tiny", version="8"),
        created_by="test",
    )
    return open_package(manifest.ref(), manifest.canonical(), data)


class OnTriton(FakeEngine):
    """Sends every batch to a real Triton, and keeps what it was."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._triton = TritonEngine(address)

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        self.works.append(work)
        return await self._triton.infer(work, timeout_seconds)

    async def close(self) -> None:
        await self._triton.close()


@asynccontextmanager
async def world(triton: TritonProcess, model: ServedModel, folder: Path) -> AsyncIterator[World]:
    """A pipeline over a Triton that holds the model."""
    client = GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0)
    await client.load(model.name, UploadedFiles().place(model.name, folder, "python", 1))
    await client.close()
    engine = OnTriton(triton.grpc)
    endpoint = endpoint_of(model.ref, limits=LIMITS)
    async with world_of(endpoint, engine, more=(model,)) as made:
        yield made


def alone(
    model: ServedModel, graph: onnx.ModelProto, texts: list[str], pairs: list[str] | None
) -> NDArray[np.float32]:
    """The values of each row alone, by ONNX Runtime in this process."""
    encoded = model.encoder.encode(texts, pairs)
    engine = Engine(graph, threads=1)
    outputs = engine.alone(Texts(encoded, RowPadder(INPUTS, model.manifest.tokenizer), BUCKETS))
    return values_of(model.task, outputs, multi_label=False)


def text(number: int, words: int) -> str:
    return " ".join(WORDS[(number * 7 + at * (1 + number % 5)) % len(WORDS)] for at in range(words))


async def test_500_documents_are_ranked_in_order_beside_other_callers(
    triton: TritonProcess, tmp_path: Path
) -> None:
    graph = classifier(labels=1)
    model = served(tmp_path / "ranker", Task.TEXT_RANKING, graph, ("relevant",))
    queries = ["the warm soup", "rain and sun", "a bad film"]
    lists = [[text(number, 1 + number % 24) for number in range(count)] for count in (500, 40, 3)]
    async with world(triton, model, tmp_path / "ranker") as made:
        calls = [
            call_of(*[query] * len(documents), pairs=documents, timeout=60.0, request_id=f"r{at}")
            for at, (query, documents) in enumerate(zip(queries, lists, strict=True))
        ]
        small = [
            call_of(queries[1], pairs=[text(at, 5)], timeout=60.0, request_id=f"s{at}")
            for at in range(50)
        ]
        answers = await asyncio.gather(*(made.pipeline.predict(each) for each in (*calls, *small)))
        events, shapes = made.recorder.events, made.engine.shapes
    for call, answer in zip((*calls, *small), answers, strict=True):
        expected = alone(model, graph, call.texts, call.pairs)
        np.testing.assert_allclose(answer.values, expected, atol=1e-5)
    order, scores, _ = ranked(answers[0].values)
    assert sorted(order) == list(range(500))
    assert scores == sorted(scores, reverse=True)
    assert max(rows for rows, _ in shapes) == 16
    assert len(shapes) < 150
    assert {length for _, length in shapes} == {8, 16, 32}
    assert sorted(len(event.texts) for event in events) == [1] * 50 + [3, 40, 500]


async def test_entities_of_long_and_short_texts_of_many_callers_are_their_own(
    triton: TritonProcess, tmp_path: Path
) -> None:
    graph = labeller(labels=len(TAGS))
    model = served(tmp_path / "labeller", Task.TOKEN_CLASSIFICATION, graph, TAGS)
    texts = [*TEXTS, *(text(number, 1 + 3 * number) for number in range(40)), ""]
    async with world(triton, model, tmp_path / "labeller") as made:
        calls = [
            call_of(*texts[at : at + 4], timeout=60.0, request_id=f"r{at}")
            for at in range(0, len(texts), 4)
        ]
        answers = await asyncio.gather(*(made.pipeline.predict(each) for each in calls))
    head = HEADS[Task.TOKEN_CLASSIFICATION]
    found = 0
    for call, answer in zip(calls, answers, strict=True):
        expected = alone(model, graph, call.texts, None)
        np.testing.assert_allclose(answer.values, expected, atol=1e-5)
        for own, entities in zip(call.texts, head.predictions(answer), strict=True):
            found += len(entities)
            assert [own[e["start"] : e["end"]] for e in entities] == [e["word"] for e in entities]
    assert found > 100
    assert any(len(answer.tokens) > 4 for answer in answers)  # windows

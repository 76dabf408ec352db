"""The example's models become packages, and answer its requests as its README shows."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from fake_mlflow import FakeMlflow, serve
from front_fakes import FakeMetrics
from gateway_world import FakeEngine, endpoint_of
from loaded_script import loaded
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import Precision, Serving
from contracts.manifest import MODEL_ONNX, TOKENIZER
from contracts.tasks import Task
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.engine.protocol import Work
from gateway.packages import ServedModel, open_package
from registry.conversions.messages import ConversionRequest
from registry.convert.parity.engine import Engine
from registry.convert.tracking import Tracking
from registry.convert.walk import convert
from registry.packages.store import PackageStore

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLE))  # as where it is run as a program
    yield loaded(EXAMPLE / "ask.py")
    sys.path.remove(str(EXAMPLE))


class Graph(FakeEngine):
    """Runs the graph in this process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._engine = Engine(onnx.load(str(path)), threads=1)

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        return self._engine.run(work.tensors)[0]


def converted(example: ModuleType, name: str, folder: Path) -> tuple[ServedModel, Path]:
    """The package of one of the example's models, and its graph."""
    (folder / "artifacts").mkdir()
    example.MODELS[name](folder / "artifacts" / "version")
    with serve(FakeMlflow(folder / "artifacts")) as fake:
        fake.register(name, "mlflow-artifacts:/version")
        (folder / "work").mkdir()
        request = ConversionRequest(
            tracking_uri=fake.uri,
            model=name,
            version="1",
            store_url="unused",
            serving=Serving(precision=Precision.FP32),
            work_dir=str(folder / "work"),
        )
        store = PackageStore((folder / "store").as_uri())
        ref = convert(request, Tracking(fake.uri), store, lambda _phase, _words: None)
    package = folder / "store" / ref.package
    manifest = store.manifest(ref.package)
    model = open_package(ref, manifest.canonical(), (package / TOKENIZER).read_bytes())
    return model, package / MODEL_ONNX


async def asked(model: ServedModel, graph: Path, name: str, path: str, body: Any) -> Any:
    """What a gateway with the model answers."""
    async with world_of(endpoint_of(model.ref, name=name), Graph(graph), more=(model,)) as world:
        serving = world.endpoints.serving
        (view,) = serving.views.values()
        own = replace(view, task=model.task, labels=model.manifest.labels)
        world.endpoints.serve(replace(serving, views={name: own}))
        front = Front(world.endpoints, world.admission, world.pipeline, FakeMetrics())
        transport = httpx.ASGITransport(create_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return (await client.post(path, json=body)).raise_for_status().json()


async def test_documents_come_in_the_order_that_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example, example.RANKER, tmp_path)
    assert model.task is Task.TEXT_RANKING
    answer = await asked(model, graph, example.RANKER, "/v1/rerank", example.rerank_request())
    assert [each["index"] for each in answer["results"]] == [1, 2, 3, 0]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for each in answer["results"]:
        assert f"{each['relevance_score']:.3f}  {each['document']['text']}" in shown
    example.show_ranking(answer)


async def test_entities_are_those_that_the_readme_shows(
    example: ModuleType, tmp_path: Path
) -> None:
    model, graph = converted(example, example.FINDER, tmp_path)
    assert model.task is Task.TOKEN_CLASSIFICATION
    path = f"/endpoints/{example.FINDER}"
    answer = await asked(model, graph, example.FINDER, path, example.entities_request())
    found = [
        [text[each["start"] : each["end"]] for each in entities]
        for text, entities in zip(example.TEXTS, answer, strict=True)
    ]
    assert found == [["Jane Austen", "Bath", "Emma"], ["London", "New York"], []]
    shown = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for entities in answer:
        for each in entities:
            assert f"{each['entity_group']}  {each['start']}-{each['end']}" in shown
    example.show_entities(answer)


def test_the_tables_know_every_word_of_the_texts(example: ModuleType) -> None:
    tokenizer = sys.modules["word_models"].tokenizer()
    for text in (example.QUERY, *example.DOCUMENTS, *example.TEXTS):
        assert "[UNK]" not in tokenizer.encode(text).tokens, text

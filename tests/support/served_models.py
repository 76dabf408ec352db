"""A model on its whole way in this process: registered, converted, and asked over HTTP."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
from fake_mlflow import FakeMlflow, serve
from front_fakes import FakeMetrics
from gateway_world import FakeEngine, FakeStream, endpoint_of
from numpy.typing import NDArray
from pipeline_world import World, world_of
from promotable import assert_promotable

from contracts.endpoint import EndpointLimits, Precision, ServingOptions
from contracts.manifest import MODEL_ONNX, TOKENIZER
from contracts.tasks import Task
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.engine.protocol import Prompt, Work
from gateway.inference.generation import Generation
from gateway.packages import ServedModel, open_package
from registry.conversions.messages import ConversionRequest
from registry.convert.parity.continuations import Decoder
from registry.convert.parity.engine import GraphEngine
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore
from registry.pyfunc.process import PyfuncLimits


class Graph(FakeEngine):
    """Runs the graph in this process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        model = onnx.load(str(path))
        self._engine = GraphEngine(model, threads=1)
        self.decoder = Decoder(model, threads=1)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> FakeStream:
        """What the graph writes, as a prompt of which nothing comes twice."""
        text, _ = self.decoder.writes(prompt.ids, prompt.stop_ids, most=prompt.most)
        return super().generate(replace(prompt, ids=text, most=len(text)), timeout_seconds)

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        return self._engine.run(work.tensors)[0]


def converted(
    name: str,
    write: Callable[[Path], Path],
    folder: Path,
    *,
    task: str | None = None,
    pyfunc: PyfuncLimits | None = None,
    store_folder: Path | None = None,
) -> tuple[ServedModel, Path]:
    """The package of a model that is registered as a folder, and its graph.

    Args:
        name: of the registered model.
        write: writes the folder.
        folder: scratch; ``store`` in it gets the package.
        task: what the endpoint asks for.
        pyfunc: allows Python of users' own, which has no graph.
        store_folder: of the package store, in place of ``store``.
    """
    (folder / "artifacts").mkdir(parents=True)
    write(folder / "artifacts" / "version")
    with serve(FakeMlflow(folder / "artifacts")) as fake:
        fake.register(name, "mlflow-artifacts:/version")
        (folder / "work").mkdir()
        request = ConversionRequest(
            tracking_uri=fake.uri,
            model=name,
            version="1",
            store_url="unused",
            task=None if task is None else Task(task),
            serving=ServingOptions(precision=Precision.FP32),
            work_dir=str(folder / "work"),
            pyfunc=pyfunc,
        )
        place = store_folder or folder / "store"
        store = PackageStore(place.as_uri())
        ref = convert(request, TrackingServer(fake.uri), store, lambda _phase, _words: None)
        assert_promotable(request, ref, store)
    package = place / ref.package
    manifest = store.manifest(ref.package)
    tokeniser = package / TOKENIZER  # which models of tables lack
    words = tokeniser.read_bytes() if tokeniser.exists() else b""
    model = open_package(ref, manifest.canonical(), words)
    return model, package / MODEL_ONNX


async def asked(
    model: ServedModel,
    graph: Path,
    name: str,
    path: str,
    body: Any,
    *,
    engine: FakeEngine | None = None,
) -> Any:
    """What a gateway that serves the model as endpoint ``name`` answers to a POST.

    The graph is run in this process, unless there is another engine.
    """
    async with asking({name: model}, engine or Graph(graph)) as (client, _):
        return (await client.post(path, json=body)).raise_for_status().json()


@asynccontextmanager
async def asking(
    models: Mapping[str, ServedModel], engine: FakeEngine, limits: EndpointLimits | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, World]]:
    """A client of a gateway that serves models as endpoints, by these names, and the gateway."""
    endpoints = [endpoint_of(model.ref, name=name, limits=limits) for name, model in models.items()]
    async with world_of(endpoints[0], engine, more=tuple(models.values())) as world:
        world.serve(*endpoints)
        front = Front(
            world.endpoints,
            world.admission,
            world.pipeline,
            FakeMetrics(),
            generation=Generation(world.pipeline),
        )
        transport = httpx.ASGITransport(create_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            yield client, world

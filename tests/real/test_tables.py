"""Models of tables on their whole way: logged, converted, loaded by a real Triton, and asked."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="needs the extra tables")
pytest.importorskip("xgboost", reason="needs the extra tables")

from fake_mlflow import FakeMlflow, serve
from front_fakes import FakeMetrics
from gateway_world import FakeEngine, endpoint_of
from numpy.typing import NDArray
from pipeline_world import world_of
from registry_fakes import endpoint
from table_models import classifier, logged, people

from contracts.endpoint import Arm, EndpointStatus, Route, Serving
from contracts.model import ModelRef
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.engine.protocol import Work
from gateway.engine.triton import TritonEngine
from gateway.packages import ServedModel, open_package
from headrace.stack.triton import TritonProcess
from registry.conversions.messages import ConversionRequest
from registry.convert.tracking import Tracking
from registry.convert.walk import convert
from registry.loading.loader import Loader, LoaderOptions
from registry.loading.placement import SharedRepository
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]  # MLflow's own
SECONDS = 60.0


@dataclass
class RealEngine(FakeEngine):
    """Passes batches on to a real Triton."""

    triton: TritonEngine | None = None

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        assert self.triton is not None
        return await self.triton.infer(work, timeout_seconds)


def packaged(folder: Path, model: Any, frame: Any) -> tuple[PackageStore, ModelRef]:
    """The package of a model that is logged as people log it."""
    (folder / "artifacts").mkdir()
    (folder / "work").mkdir()
    logged(model, frame)(folder / "artifacts" / "version")
    store = PackageStore((folder / "store").as_uri())
    with serve(FakeMlflow(folder / "artifacts")) as fake:
        fake.register("table", "mlflow-artifacts:/version")
        request = ConversionRequest(
            tracking_uri=fake.uri, model="table", version="1", store_url="unused",
            serving=Serving(max_batch_size=16), work_dir=str(folder / "work"),
        )  # fmt: skip
        return store, convert(request, Tracking(fake.uri), store, lambda _phase, _words: None)


async def load(folder: Path, store: PackageStore, ref: ModelRef, triton: TritonProcess) -> None:
    """Has a loader bring the package to Triton."""
    endpoints = FileEndpointStore(folder / "endpoints")
    routes = (Route(arm=Arm.STABLE, ref=ref, weight=100),)
    status = EndpointStatus(routes=routes, packages=(ref,))
    endpoints.put(endpoint())
    found = endpoints.get("e")
    assert found is not None
    endpoints.put(found.model_copy(update={"status": status}))
    client = GrpcTriton(triton.grpc, call_seconds=SECONDS, load_seconds=SECONDS)
    reports = FileReports(folder / "reports")
    loader = Loader(
        LoaderOptions("l", triton.grpc, folder / "ledger.json", unload_after_seconds=0.0,
                      warmup_seconds=0.1, cores=1),
        endpoints=endpoints,
        packages=LocalPackages(store, folder / "local"),
        triton=client,
        placement=SharedRepository(triton.server.model_repository),
        reports=reports,
    )  # fmt: skip
    while await loader.step():
        pass
    await client.close()
    report = reports.get("l")
    assert report is not None
    assert report.ready, report


@pytest.fixture
async def engine(triton: TritonProcess) -> AsyncIterator[RealEngine]:
    real = TritonEngine(triton.grpc)
    yield RealEngine(triton=real)
    await real.close()


async def test_a_classifier_of_scikit_learn_answers_rows_through_a_real_triton(
    tmp_path: Path, triton: TritonProcess, engine: RealEngine
) -> None:
    original, frame = classifier()
    store, ref = packaged(tmp_path, original, frame)
    await load(tmp_path, store, ref, triton)
    model: ServedModel = open_package(ref, store.manifest(ref.package).canonical())
    rows = people(200, seed=11)
    async with world_of(endpoint_of(ref, name="table"), engine, more=(model,)) as world:
        serving = world.endpoints.serving
        (view,) = serving.views.values()
        manifest = model.manifest
        own = replace(view, task=model.task, labels=manifest.labels, features=manifest.features)
        world.endpoints.serve(replace(serving, views={"table": own}))
        front = Front(world.endpoints, world.admission, world.pipeline, FakeMetrics())
        transport = httpx.ASGITransport(create_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            body = {"instances": rows.to_dict("records")}
            answer = (await client.post("/v1/models/table:predict", json=body)).raise_for_status()
            inputs = [
                {"name": name, "shape": [200], "datatype": datatype, "data": rows[name].tolist()}
                for name, datatype in (("age", "INT64"), ("income", "FP64"), ("city", "BYTES"),
                                       ("member", "BOOL"))
            ]  # fmt: skip
            tensors = await client.post("/v2/models/table/infer", json={"inputs": inputs})
        event = world.recorder.events[0]
    expected = original.predict_proba(rows)
    found = [list(each["scores"].values()) for each in answer.json()["predictions"]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    outputs = {each["name"]: each["data"] for each in tensors.raise_for_status().json()["outputs"]}
    np.testing.assert_allclose(outputs["SCORES"], expected.ravel(), atol=1e-5)
    assert outputs["LABEL"] == original.predict(rows).tolist()
    assert event.observations["city"] == sorted(rows["city"])
    assert len(event.observations["age"]) == 200

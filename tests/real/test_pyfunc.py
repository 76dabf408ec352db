"""Models that are Python of their users' own: logged, converted, run by a real Triton, asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fake_mlflow import FakeMlflow, serve
from front_fakes import FakeMetrics
from gateway_world import FakeEngine, endpoint_of
from numpy.typing import NDArray
from pipeline_world import world_of
from promotable import assert_promotable
from pyfunc_models import MISCHIEF, PRICES, logged
from registry_fakes import endpoint
from table_models import people
from waiting import until

from contracts.endpoint import Arm, EndpointStatus, Route, Serving
from contracts.endpoint import Limits as OfRequests
from contracts.loading import LoaderReport
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
from registry.pyfunc.process import Limits
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
    pytest.mark.timeout(3600),
]
SECONDS = 300.0
LIMITS = Limits(call_seconds=60.0, start_seconds=SECONDS, first_pause_seconds=0.0)


@dataclass
class RealEngine(FakeEngine):
    """Passes batches on to a real Triton."""

    triton: TritonEngine | None = None

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        assert self.triton is not None
        return await self.triton.infer(work, timeout_seconds)


def packaged(folder: Path, **how: Any) -> tuple[PackageStore, ModelRef]:
    """The package of a pyfunc that is logged as people log it."""
    (folder / "artifacts").mkdir()
    (folder / "work").mkdir()
    logged(folder / "artifacts" / "version", **how)
    store = PackageStore((folder / "store").as_uri())
    with serve(FakeMlflow(folder / "artifacts")) as fake:
        fake.register("table", "mlflow-artifacts:/version")
        request = ConversionRequest(
            tracking_uri=fake.uri, model="table", version="1", store_url="unused",
            serving=Serving(max_batch_size=16), work_dir=str(folder / "work"), pyfunc=LIMITS,
        )  # fmt: skip
        ref = convert(request, Tracking(fake.uri), store, lambda _phase, _words: None)
        assert_promotable(request, ref, store)
        return store, ref


async def load(
    folder: Path, store: PackageStore, ref: ModelRef, triton: TritonProcess, limits: Limits = LIMITS
) -> LoaderReport:
    """Has a loader bring the package to Triton."""
    endpoints = FileEndpointStore(folder / "endpoints")
    routes = (Route(arm=Arm.STABLE, ref=ref, weight=100),)
    endpoints.put(endpoint(EndpointStatus(routes=routes, packages=(ref,))))
    client = GrpcTriton(triton.grpc, call_seconds=60.0, load_seconds=SECONDS)
    reports = FileReports(folder / "reports")
    loader = Loader(
        LoaderOptions("l", triton.grpc, folder / "ledger.json", warmup_seconds=0.1, cores=1,
                      pyfunc=True),
        endpoints=endpoints,
        packages=LocalPackages(store, folder / "local"),
        triton=client,
        placement=SharedRepository(triton.server.model_repository, limits),
        reports=reports,
    )  # fmt: skip
    while await loader.step():
        pass
    await client.close()
    report = reports.get("l")
    assert report is not None
    return report


@pytest.fixture
async def engine(triton: TritonProcess) -> AsyncIterator[RealEngine]:
    real = TritonEngine(triton.grpc)
    yield RealEngine(triton=real)
    await real.close()


@asynccontextmanager
async def asking(
    store: PackageStore, ref: ModelRef, engine: RealEngine
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway that serves the package, as a client of it."""
    model: ServedModel = open_package(ref, store.manifest(ref.package).canonical())
    async with world_of(
        endpoint_of(ref, name="table", limits=OfRequests(timeout_seconds=SECONDS)),
        engine,
        more=(model,),
    ) as world:
        serving = world.endpoints.serving
        (view,) = serving.views.values()
        manifest = model.manifest
        own = replace(view, task=model.task, labels=manifest.labels, features=manifest.features)
        world.endpoints.serve(replace(serving, views={"table": own}))
        front = Front(world.endpoints, world.admission, world.pipeline, FakeMetrics())
        transport = httpx.ASGITransport(create_app(front))
        async with httpx.AsyncClient(
            transport=transport,
            base_url="http://gateway",
        ) as client:
            yield client


def workers(triton: TritonProcess) -> list[int]:
    """The processes in which pyfuncs of this Triton run."""
    place = str(triton.server.model_repository).encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                words = (entry / "cmdline").read_bytes()
                if place in words and b"pyfunc_worker.py" in words:
                    found.append(int(entry.name))
    return found


async def test_a_pyfunc_answers_as_mlflow_has_it_and_its_failures_are_said(
    tmp_path: Path, triton: TritonProcess, engine: RealEngine
) -> None:
    import mlflow.pyfunc

    store, ref = packaged(tmp_path, body=f"{MISCHIEF}\n{PRICES}", outputs=np.zeros(1))
    manifest = store.manifest(ref.package)
    report = await load(tmp_path, store, ref, triton)
    assert report.ready, report.failed
    assert report.loaded[0].instances == 1
    rows = people(250, seed=11)
    original = mlflow.pyfunc.load_model(str(tmp_path / "artifacts" / "version"))
    expected = np.asarray(original.predict(rows), np.float64)
    row = rows.iloc[0].to_dict()
    async with asking(store, ref, engine) as client:

        async def predict(*instances: Any) -> httpx.Response:
            body = {"instances": instances}
            return await client.post("/v1/models/table:predict", json=body)

        answer = (await predict(*rows.to_dict("records"))).raise_for_status()
        np.testing.assert_allclose(answer.json()["predictions"], expected, rtol=1e-6)
        inputs = [
            {"name": name, "shape": [250], "datatype": datatype, "data": rows[name].tolist()}
            for name, datatype in (("age", "INT64"), ("income", "FP64"), ("city", "BYTES"),
                                   ("member", "BOOL"))
        ]  # fmt: skip
        tensors = await client.post("/v2/models/table/infer", json={"inputs": inputs})
        (output,) = tensors.raise_for_status().json()["outputs"]
        np.testing.assert_allclose(output["data"], expected, rtol=1e-6)
        for wrong, said in (
            ({"age": None}, "'age'"),
            ({"age": "30"}, "'age': expected an integer"),
            ({"age": 30.5}, "'age': expected an integer"),
            ({"city": "Bern"}, "'city': the model does not know the category"),
            ({"city": 3}, "'city': expected a string"),
            ({"member": "yes"}, "'member': expected true or false"),
            ({"height": 1}, "'height': the model has no such feature"),
        ):
            refused = await predict(row, {**row, **wrong})
            assert refused.status_code == 422
            assert "row 1" in refused.text
            assert said in refused.text
        refused = await predict({name: row[name] for name in ("age", "city", "member")})
        assert (refused.status_code == 422) == (not manifest.features[1].nullable)
        inputs[0]["datatype"] = "BYTES"
        refused = await client.post("/v2/models/table/infer", json={"inputs": inputs})
        assert refused.status_code == 400
        # It raises: its own rows fail, and the process goes on.
        (before,) = workers(triton)
        failed = await predict({**row, "age": 991})
        assert failed.status_code == 502
        assert "991 is no age" in failed.text
        assert workers(triton) == [before]
        # It ends, and its own rows fail.
        failed = await predict({**row, "age": 993})
        assert failed.status_code == 502
        assert "ended with status 7" in failed.text
    loads = GrpcTriton(triton.grpc, call_seconds=60.0, load_seconds=SECONDS)
    assert ref.triton_model in await loads.held({ref.triton_model})
    await loads.unload(ref.triton_model)
    await loads.close()
    until("the process of an unloaded pyfunc ends", 60.0, lambda: not workers(triton))

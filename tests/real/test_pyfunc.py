"""Models that are Python of their users' own: logged, converted, run by a real Triton, asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from own_servers import TritonProcess
from pyfunc_models import MISCHIEF, PRICES, logged
from real_triton import OverTriton, brought, reached
from served_models import asking, converted
from table_models import people, tensors_of
from waiting import until

from contracts.endpoint import EndpointLimits as OfRequests
from contracts.model import ModelRef
from gateway.engine.triton import TritonEngine
from gateway.packages import ServedModel, open_package
from registry.loading.placement import SharedRepository
from registry.loading.prober import Prober
from registry.loading.triton_client import GrpcTriton
from registry.packages.store import PackageStore
from registry.pyfunc.process import PyfuncLimits

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
    pytest.mark.timeout(3600),
]
SECONDS = 300.0
CALL_SECONDS = 60.0  # of a batch: more than a busy machine takes for an honest one
LIMITS = PyfuncLimits(call_seconds=CALL_SECONDS, start_seconds=SECONDS, first_pause_seconds=0.0)
OF_REQUESTS = OfRequests(timeout_seconds=SECONDS)


@dataclass(frozen=True)
class Version:
    """A version that does harm at the wish of its callers."""

    store: PackageStore
    model: ServedModel
    folder: Path

    def answers(self, rows: Any) -> np.ndarray:
        """What MLflow itself has it answer."""
        import mlflow.pyfunc

        original = mlflow.pyfunc.load_model(str(self.folder / "artifacts" / "version"))
        return np.asarray(original.predict(rows), np.float64)

    def neighbour(self, folder: Path) -> ServedModel:
        """The same as another model: a package of its own, and processes of its own."""
        self.store.fetch(self.model.ref.package, folder)
        manifest = self.model.manifest.model_copy(update={"model": "neighbour"})
        ref = self.store.publish(folder, manifest)
        return open_package(ref, manifest.canonical())


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Converted once for this module: its packages take a minute to install."""
    folder = tmp_path_factory.mktemp("pyfunc")
    write = partial(logged, body=f"{MISCHIEF}\n{PRICES}", outputs=np.zeros(1))
    stored = folder / "store"
    model, _ = converted("table", write, folder / "version", pyfunc=LIMITS, store_folder=stored)
    return Version(PackageStore(stored.as_uri()), model, folder / "version")


def placement(triton: TritonProcess) -> SharedRepository:
    return SharedRepository(triton.server.model_repository, LIMITS)


@pytest.fixture
async def engine(triton: TritonProcess) -> AsyncIterator[OverTriton]:
    real = TritonEngine(triton.grpc)
    yield OverTriton(real)
    await real.close()


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


async def predict(client: httpx.AsyncClient, endpoint: str, *instances: Any) -> httpx.Response:
    path = f"/v1/models/{endpoint}:predict"
    return await client.post(path, json={"instances": instances})


async def test_a_pyfunc_answers_as_mlflow_has_it_and_its_failures_are_said(
    tmp_path: Path, triton: TritonProcess, engine: OverTriton, version: Version
) -> None:
    model, placed = version.model, placement(triton)
    report = await brought(tmp_path, version.store, triton, model.ref, placement=placed)
    assert report.loaded[0].instances == 1
    rows = people(250, seed=11)
    right = version.answers(rows)
    row = rows.iloc[0].to_dict()
    async with asking({"table": model}, engine, OF_REQUESTS) as (client, _):
        answer = (await predict(client, "table", *rows.to_dict("records"))).raise_for_status()
        np.testing.assert_allclose(answer.json()["predictions"], right, rtol=1e-6)
        inputs = tensors_of(rows)
        tensors = await client.post("/v2/models/table/infer", json={"inputs": inputs})
        (output,) = tensors.raise_for_status().json()["outputs"]
        np.testing.assert_allclose(output["data"], right, rtol=1e-6)
        for wrong, said in (
            ({"age": None}, "'age'"),
            ({"age": "30"}, "'age': expected an integer"),
            ({"age": 30.5}, "'age': expected an integer"),
            ({"city": "Bern"}, "'city': the model does not know the category"),
            ({"city": 3}, "'city': expected a string"),
            ({"member": "yes"}, "'member': expected true or false"),
            ({"height": 1}, "'height': the model has no such feature"),
        ):
            refused = await predict(client, "table", row, {**row, **wrong})
            assert refused.status_code == 422
            assert "row 1" in refused.text
            assert said in refused.text
        refused = await predict(
            client, "table", {name: row[name] for name in ("age", "city", "member")}
        )
        assert (refused.status_code == 422) == (not model.manifest.features[1].nullable)
        inputs[0]["datatype"] = "BYTES"
        refused = await client.post("/v2/models/table/infer", json={"inputs": inputs})
        assert refused.status_code == 400
        # It raises: its own rows fail, and the process goes on, whatever the words are.
        (before,) = workers(triton)
        for age, said in ((991, "991 is no age"), (995, "is not healthy: server exiting")):
            failed = await predict(client, "table", {**row, "age": age})
            assert failed.status_code == 502
            assert said in failed.text
        assert workers(triton) == [before]
    loads = await reached(GrpcTriton(triton.grpc, call_seconds=60.0, load_seconds=SECONDS))
    assert model.name in await loads.held({model.name})
    await loads.unload(model.name)
    await loads.close()
    until("the process of an unloaded pyfunc ends", 60.0, lambda: not workers(triton))


async def test_code_that_ends_or_hangs_or_eats_memory_harms_its_own_endpoint_alone_and_is_told_of(
    tmp_path: Path, triton: TritonProcess, engine: OverTriton, version: Version
) -> None:
    bad, store = version.model, version.store
    good = version.neighbour(tmp_path / "neighbour")
    refs = (bad.ref, good.ref)
    await brought(tmp_path, store, triton, *refs, placement=placement(triton))
    rows = people(20, seed=11)
    right = version.answers(rows)
    told: dict[ModelRef, str] = {}
    probes = await reached(GrpcTriton(triton.grpc, call_seconds=60.0, load_seconds=SECONDS))
    prober = Prober(
        probes,
        lambda: refs,
        lambda ref: store.manifest(ref.package),
        told=lambda ref, said, _: told.__setitem__(ref, said),
    )
    async with asking({"bad": bad, "good": good}, engine, OF_REQUESTS) as (client, _):

        async def answers(endpoint: str) -> bool:
            answer = await predict(client, endpoint, *rows.to_dict("records"))
            if answer.is_error:
                return False
            np.testing.assert_allclose(answer.json()["predictions"], right, rtol=1e-6)
            return True

        await prober.probe()
        assert told == {bad.ref: "", good.ref: ""}
        for age, said in (
            (993, "ended with status 7"),
            (994, "MemoryError"),
            (992, f"took more than {CALL_SECONDS:g} s and was stopped"),
        ):
            # One row that harms, and one of its own endpoint that waits behind it.
            harm = {**rows.iloc[0].to_dict(), "age": age}
            asked = asyncio.create_task(predict(client, "bad", harm))
            while True:
                assert await answers("good")
                if asked.done():
                    break
            failed = asked.result()
            assert failed.status_code == 502
            assert said in failed.text
            await prober.probe()
            assert said in told[bad.ref]
            assert told[good.ref] == ""
            async with asyncio.timeout(SECONDS):
                while not await answers("bad"):  # until it is started anew
                    assert await answers("good")
        # Callers who make it hang again and again: Triton is not blamed, and not started anew.
        harms = [asyncio.create_task(predict(client, "bad", harm)) for _ in range(2)]
        for _ in range(3):
            await prober.probe()
            assert await answers("good")
        assert prober.fault() == ""
        assert told[bad.ref]
        assert {failed.status_code for failed in await asyncio.gather(*harms)} == {502}
    await probes.close()

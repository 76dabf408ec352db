"""The loader, Triton's Python-backend models and a real Triton."""

import asyncio
import logging
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import certificates
import grpc
import h200_times
import httpx
import numpy as np
import onnxruntime
import pytest
from loaded_script import loaded
from model_processes import model_processes
from no_devices import NoDevices
from own_ports import own_ports
from own_servers import TritonProcess
from real_triton import OverTriton, reached
from registry_fakes import endpoint
from served_models import asked, converted
from tiny_models import VOCABULARY, classifier
from tritonclient.grpc import service_pb2, service_pb2_grpc

from contracts.endpoint import Arm, EndpointStatus, Precision, Route
from contracts.loading import LoaderReport, WitnessAnswer
from contracts.manifest import MODEL_ONNX, Lineage, Manifest, TokenizerSpec
from contracts.model import ModelRef
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from gateway.engine.protocol import (
    EngineError,
    EngineModelError,
    EngineProcessGoneError,
    EngineUnavailableError,
    Work,
)
from gateway.engine.triton import TritonEngine
from headrace.stack.triton import TritonFiles, TritonServer, control_key
from registry.convert import package
from registry.errors import (
    BackendMissingError,
    ModelProcessGoneError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import (
    Placement,
    SharedRepository,
    UploadedFiles,
)
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import GrpcTriton
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports
from service.mutual_tls import MutualTls

pytestmark = pytest.mark.real

INPUTS = tuple(
    TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1, -1))
    for name in ("input_ids", "attention_mask")
)
SPLIT_TOLD = re.compile(r"(\S+) runs as \d+ copies of \d+ threads; rows a second: (.*)")
RATE_TOLD = re.compile(r"(\d+) x (\d+): (\d+)")
CALL_SECONDS = 30.0
LOAD_SECONDS = 60.0
OUTPUTS = (TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 2)),)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"


def publish(
    store: PackageStore, folder: Path, version: str, *, graph: bytes | None = None
) -> ModelRef:
    """A tiny classifier as a package; ``graph`` in place of a good one."""
    folder.mkdir()
    good = classifier(seed=int(version)).SerializeToString()
    (folder / MODEL_ONNX).write_bytes(good if graph is None else graph)
    (folder / "tokenizer.json").write_text("{}")
    package.write_configs(folder, inputs=INPUTS, outputs=OUTPUTS, max_batch_size=16, threads=1)
    made = Manifest(
        model="tiny",
        version=version,
        task=Task.TEXT_CLASSIFICATION,
        labels=("no", "yes"),
        precision=Precision.FP32,
        max_batch_size=16,
        length_buckets=(8, 16),
        tokenizer=TokenizerSpec(max_tokens=16, pad_id=0, vocabulary=VOCABULARY),
        inputs=INPUTS,
        outputs=OUTPUTS,
        files=package.proofs(folder),
        lineage=Lineage(registered_model="tiny", version=version),
        created_by="test",
    )
    return store.publish(folder, made)


class TritonHarness:
    """A loader with real files, a real store and a real Triton."""

    def __init__(
        self, folder: Path, triton: TritonProcess, placement: Placement, *, cores: int = 1
    ) -> None:
        self.folder = folder
        self.process = triton
        self.store = PackageStore((folder / "store").as_uri())
        self.endpoints = FileEndpointStore(folder / "endpoints")
        self.endpoints.put(endpoint())
        self.client = GrpcTriton(triton.grpc, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS)
        self.engine = TritonEngine(triton.grpc)
        self.reports = FileReports(folder / "reports")
        self.options = LoaderOptions(
            "l",
            triton.grpc,
            folder / "ledger.json",
            unload_after_seconds=0.0,
            warmup_seconds=0.1,
            cores=cores,
        )
        self.placement = placement
        self.loader = self.new_loader()

    def new_loader(self) -> Loader:
        """As after a restart of the loader."""
        return Loader(
            self.options,
            endpoints=self.endpoints,
            packages=LocalPackages(self.store, self.folder / "local"),
            triton=self.client,
            placement=self.placement,
            reports=self.reports,
            devices=NoDevices(),
        )

    def publish(self, version: str, *, graph: bytes | None = None) -> ModelRef:
        return publish(self.store, self.folder / f"source-{version}", version, graph=graph)

    async def infer(self, ref: ModelRef, tensors: dict[str, np.ndarray]) -> np.ndarray:
        """The logits that a gateway gets."""
        return await self.engine.infer(Work(ref.triton_model, "logits", tensors), CALL_SECONDS)

    async def close(self) -> None:
        await self.client.close()
        await self.engine.close()

    def show(self, *packages: ModelRef) -> None:
        """Names packages; the first is stable."""
        found = self.endpoints.get("e")
        assert found is not None
        routes = (Route(arm=Arm.STABLE, ref=packages[0], weight=100),)
        status = EndpointStatus(routes=routes, packages=packages)
        self.endpoints.put(found.model_copy(update={"status": status}))

    def ask_for(self, copies: int) -> None:
        """The endpoint's spec asks for so many copies."""
        found = self.endpoints.get("e")
        assert found is not None
        serving = found.spec.serving.model_copy(update={"instances": copies})
        spec = found.spec.model_copy(update={"serving": serving})
        self.endpoints.put(found.model_copy(update={"spec": spec}))

    async def settle(self) -> LoaderReport:
        for _ in range(20):
            if not await self.loader.step():
                break
        else:
            raise AssertionError("the loader never rests")
        report = self.reports.get("l")
        assert report is not None
        return report

    async def until_ready(self) -> LoaderReport:
        """Settles again and again: the channel to a Triton that was away tries at its own pace."""
        async with asyncio.timeout(LOAD_SECONDS):
            while not (report := await self.settle()).ready:  # noqa: ASYNC110 - the loader's pace
                await asyncio.sleep(0.05)
        return report


@pytest.fixture(params=["shared folder", "upload"])
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, triton: TritonProcess
) -> AsyncIterator[TritonHarness]:
    shared = request.param == "shared folder"
    placement: Placement = UploadedFiles()
    if shared:
        placement = SharedRepository(triton.server.model_repository)
    made = TritonHarness(tmp_path, triton, placement)
    await reached(made.client)
    yield made
    await made.close()


def batch(rows: int, length: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(rows * 100 + length).integers(0, VOCABULARY, (rows, length))
    mask = np.ones((rows, length), np.int64)
    mask[:, length // 2 :] = 0
    mask[0] = 1
    return {"input_ids": ids, "attention_mask": mask}


async def test_a_package_is_loaded_and_answers_as_its_graph_does(harness: TritonHarness) -> None:
    ref = harness.publish("1")
    harness.show(ref)
    report = await harness.settle()
    assert report.ready
    assert {cost.bucket for cost in report.loaded[0].costs} == {8, 16}
    session = onnxruntime.InferenceSession(harness.folder / "source-1" / MODEL_ONNX)
    for rows, length in ((1, 8), (3, 8), (16, 16), (2, 5)):
        tensors = batch(rows, length)
        (expected,) = session.run(["logits"], tensors)
        np.testing.assert_allclose(await harness.infer(ref, tensors), expected, atol=1e-5)
    assert "Traceback" not in harness.process.log.read_text()


async def test_each_task_of_the_example_is_answered_over_triton_as_its_graph_answers(
    triton: TritonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    example = loaded(EXAMPLE / "ask.py")
    harness = TritonHarness(tmp_path, triton, SharedRepository(triton.server.model_repository))
    await reached(harness.client)
    models = {}
    for name, write in example.MODELS.items():
        model, graph = converted(name, write, tmp_path / name, task=example.TASKS.get(name))
        shutil.copytree(graph.parent, tmp_path / "store" / model.ref.package)
        models[name] = model, graph
    assert len({model.task for model, _ in models.values()}) == len(example.MODELS)
    harness.show(*(model.ref for model, _ in models.values()))
    report = await harness.settle()
    assert (report.ready, report.failed) == (True, ())
    engine = OverTriton(harness.engine)
    for name, (model, graph) in models.items():
        path, body = example.request_of(name)
        here = await asked(model, graph, name, path, body)
        there = await asked(model, graph, name, path, body, engine=engine)
        if isinstance(here, dict):
            here["id"] = there["id"] = "of the request"
            here["created"] = there["created"] = 0  # by the clock
        assert there == close(here), name
    await harness.close()


def close(answer: Any) -> Any:
    """An answer whose numbers may differ in the last digits."""
    match answer:
        case float():
            return pytest.approx(answer, abs=1e-5)
        case list():
            return [close(item) for item in answer]
        case dict():
            return {name: close(item) for name, item in answer.items()}
    return answer


async def test_other_copies_are_run_without_a_request_that_fails(harness: TritonHarness) -> None:
    ref = harness.publish("1")
    harness.ask_for(1)
    harness.show(ref)
    await harness.settle()
    stop = asyncio.Event()

    async def call() -> int:
        answers = 0
        while not stop.is_set():
            answers += (await harness.infer(ref, batch(1, 8))).shape == (1, 2)
        return answers

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(call()) for _ in range(2)]
        for copies in (3, 2):
            harness.ask_for(copies)
            report = await harness.settle()
            assert [model.instances for model in report.loaded] == [copies]
            async with asyncio.timeout(LOAD_SECONDS):
                while len(model_processes(harness.process)) != copies:  # noqa: ASYNC110 - Triton's
                    await asyncio.sleep(0.05)  # old copies answer what they have begun
        stop.set()
    assert all(caller.result() for caller in callers)


async def test_two_cores_are_divided_as_a_few_batches_of_each_way_say(
    triton: TritonProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "registry.loading.sizing")
    placement = SharedRepository(triton.server.model_repository)
    harness = TritonHarness(tmp_path, triton, placement, cores=2)
    await reached(harness.client)
    refs = harness.publish("1"), harness.publish("2")
    harness.show(*refs)
    report = await harness.settle()
    told = dict(SPLIT_TOLD.findall(caplog.text))
    for model in report.loaded:
        name = model.ref.triton_model
        found = {
            (int(copies), int(threads)): float(rows)
            for copies, threads, rows in RATE_TOLD.findall(told[name])
        }
        assert set(found) == {(2, 1), (1, 2)}
        least = 0.95 * max(found.values()) - 1  # the log has whole rows
        chosen = model.instances, model.threads
        assert found[chosen] >= least
        assert chosen == (1, 2) or found[1, 2] <= least + 2
        assert model.costs
        answered = await harness.client.held([name])
        assert (answered[name].copies, answered[name].threads) == chosen
        before = await harness.client.count_executed(name)
        assert await harness.client.infer(name, batch(3, 8)) == (3, 24)
        async with asyncio.timeout(LOAD_SECONDS):  # it counts behind its answer
            while await harness.client.count_executed(name) == before:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
        assert await harness.client.count_executed(name) == before + 1
    assert len(told) == len(refs)
    caplog.clear()
    assert (await harness.settle()).loaded == report.loaded
    assert caplog.text == ""
    async with asyncio.timeout(LOAD_SECONDS):
        running = sum(model.instances for model in report.loaded)
        while len(model_processes(harness.process)) != running:  # noqa: ASYNC110 - Triton's
            await asyncio.sleep(0.05)
    await harness.close()


async def test_copies_that_can_not_be_loaded_leave_those_that_answer(
    triton: TritonProcess, tmp_path: Path
) -> None:
    harness = TritonHarness(tmp_path, triton, SharedRepository(triton.server.model_repository))
    await reached(harness.client)
    ref = harness.publish("1")
    harness.ask_for(1)
    harness.show(ref)
    before = await harness.settle()
    broken = harness.process.server.model_repository / ref.triton_model / "1" / MODEL_ONNX
    broken.unlink()
    broken.write_bytes(b"no graph")
    harness.ask_for(2)
    after = await harness.settle()
    assert after.loaded == before.loaded
    assert [(item.ref, item.by_version) for item in after.failed] == [(ref, False)]
    assert await harness.client.infer(ref.triton_model, batch(3, 8)) == (3, 24)
    await harness.close()


async def test_requests_of_several_shapes_at_once_each_get_their_own_answer(
    harness: TritonHarness,
) -> None:
    ref = harness.publish("1")
    harness.show(ref)
    await harness.settle()
    session = onnxruntime.InferenceSession(harness.folder / "source-1" / MODEL_ONNX)
    shapes = [(1 + number % 3, 8 if number % 2 else 16) for number in range(30)]
    answers = await asyncio.gather(*(harness.infer(ref, batch(*shape)) for shape in shapes))
    for shape, found in zip(shapes, answers, strict=True):
        (expected,) = session.run(["logits"], batch(*shape))
        np.testing.assert_allclose(found, expected, atol=1e-5)
    async with grpc.aio.insecure_channel(harness.process.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        name = service_pb2.ModelStatisticsRequest(name=ref.triton_model)
        (statistics,) = (await stub.ModelStatistics(name, timeout=CALL_SECONDS)).model_stats
    assert statistics.execution_count < statistics.inference_count


async def test_a_request_that_the_graph_refuses_fails_alone(harness: TritonHarness) -> None:
    ref = harness.publish("1")
    harness.show(ref)
    await harness.settle()
    bad = batch(1, 8)
    bad["input_ids"][0, 0] = VOCABULARY + 1000  # beyond the table
    good = batch(1, 8)
    calls = (harness.infer(ref, tensors) for tensors in (good, bad, good, good))
    first, failed, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(failed, EngineModelError)
    assert "engine:" in str(failed)
    for result in (first, *others):
        assert not isinstance(result, BaseException)
        assert result.shape == (1, 2)


async def test_a_models_process_that_stood_still_ends_and_gives_no_wrong_answer(
    triton: TritonProcess, tmp_path: Path
) -> None:
    harness = TritonHarness(tmp_path, triton, SharedRepository(triton.server.model_repository))
    await reached(harness.client)
    ref = harness.publish("1")
    harness.show(ref)
    await harness.settle()
    session = onnxruntime.InferenceSession(harness.folder / "source-1" / MODEL_ONNX)
    (process,) = model_processes(triton)
    ids = np.random.default_rng(1)
    failed = asyncio.Semaphore(0)
    stop = asyncio.Event()

    async def call() -> None:
        while not stop.is_set():
            tensors = batch(2, 8) | {"input_ids": ids.integers(0, VOCABULARY, (2, 8))}
            try:
                found = await harness.infer(ref, tensors)
            except EngineError:
                failed.release()
                continue
            (expected,) = session.run(["logits"], tensors)
            np.testing.assert_allclose(found, expected, atol=1e-5)

    async with asyncio.timeout(LOAD_SECONDS), asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(call()) for _ in range(4)]
        os.kill(process, signal.SIGSTOP)
        for _ in range(2 * len(callers)):  # Triton takes it for dead, and frees what it reads
            await failed.acquire()
        os.kill(process, signal.SIGCONT)
        while process in model_processes(triton):  # noqa: ASYNC110 - another's process
            await asyncio.sleep(0.05)
        stop.set()
    # So that its loader loads it anew. If it was stopped while it held a lock that Triton waits
    # for, Triton itself ends; that is told, too.
    with pytest.raises((ModelProcessGoneError, TritonUnavailableError)):
        await harness.client.infer(ref.triton_model, batch(1, 8))
    await harness.close()


async def test_where_nothing_else_is_loaded_a_tiny_graph_is_the_witness(
    harness: TritonHarness,
) -> None:
    harness.show(harness.publish("1", graph=b"no graph"))
    (failure,) = (await harness.settle()).failed
    assert failure.witness is WitnessAnswer.LOADS
    assert failure.by_version


async def test_a_broken_graph_is_the_versions_fault_and_disturbs_nothing(
    harness: TritonHarness,
) -> None:
    stable, broken = harness.publish("1"), harness.publish("2", graph=b"no graph")
    harness.show(stable, broken)
    report = await harness.settle()
    assert report.ready
    assert [(item.ref, item.by_version) for item in report.failed] == [(broken, True)]
    assert "Protobuf" in report.failed[0].reason


async def test_a_killed_triton_has_its_models_again_after_its_return(
    harness: TritonHarness,
) -> None:
    first, second = harness.publish("1"), harness.publish("2")
    harness.show(first, second)
    before = await harness.settle()
    harness.process.kill9()
    assert not (await harness.settle()).ready
    harness.process.start()
    after = await harness.until_ready()
    assert {model.ref for model in after.loaded} == {model.ref for model in before.loaded}
    names = {first.triton_model, second.triton_model}
    assert (await harness.client.held(names)).keys() == names


async def test_what_nobody_names_leaves_triton_and_the_disk(harness: TritonHarness) -> None:
    first, second = harness.publish("1"), harness.publish("2")
    harness.show(first, second)
    await harness.settle()
    harness.show(first)
    await harness.settle()
    await harness.settle()
    names = {first.triton_model, second.triton_model}
    assert (await harness.client.held(names)).keys() == {first.triton_model}
    repository = harness.process.server.model_repository
    assert not (repository / second.triton_model).exists()
    assert not (harness.folder / "local" / second.package).exists()


async def test_only_who_knows_its_key_loads_models_and_everybody_infers(
    triton_files: TritonFiles, tmp_path: Path
) -> None:
    http, grpc_port, metrics = own_ports(3)
    file = tmp_path / "control-key"
    server = TritonServer(
        tmp_path / "repository", http, grpc_port, metrics, control_key=control_key(file)
    )
    process = TritonProcess(triton_files, server, tmp_path / "triton.log")
    process.start()
    stranger = GrpcTriton(process.grpc, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS)
    loader = GrpcTriton(
        process.grpc, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS, key_file=file
    )
    try:
        await reached(loader)
        await reached(stranger)
        publish(PackageStore((tmp_path / "store").as_uri()), tmp_path / "source", "1")
        overrides = UploadedFiles().place("m", tmp_path / "source", "python", InstanceSplit(1, 1))
        with pytest.raises(TritonUnavailableError, match="restricted"):
            await stranger.load("m", overrides)
        assert await stranger.held(["m"]) == {}
        await loader.load("m", overrides)
        assert list(await stranger.held(["m"])) == ["m"]
        with pytest.raises(TritonUnavailableError, match="restricted"):
            await stranger.unload("m")
        ids = np.ones((2, 4), np.int64)
        tensors = {"input_ids": ids, "attention_mask": ids}
        assert (await stranger.infer("m", tensors))[0] == 2
        url = f"http://127.0.0.1:{http}/v2"
        async with httpx.AsyncClient(timeout=CALL_SECONDS) as client:
            unload = await client.post(f"{url}/repository/models/m/unload", json={})
            region = {"key": "/any", "offset": 0, "byte_size": 4}
            memory = await client.post(f"{url}/systemsharedmemory/region/x/register", json=region)
            ready = await client.get(f"{url}/models/m/ready")
        assert [unload.status_code, memory.status_code, ready.status_code] == [403, 403, 200]
    finally:
        await stranger.close()
        await loader.close()
        process.stop()


async def test_tritons_refusals_are_told_apart(triton: TritonProcess, tmp_path: Path) -> None:
    client = GrpcTriton(triton.grpc, call_seconds=5.0, load_seconds=LOAD_SECONDS)
    try:
        await reached(client)
        with pytest.raises(TritonRefusedError, match="failed to poll"):
            await client.load("no-such-model", {})
        store = PackageStore((tmp_path / "store").as_uri())
        publish(store, tmp_path / "source", "1")
        overrides = UploadedFiles().place(
            "native", tmp_path / "source", "onnxruntime", InstanceSplit(1, 1)
        )
        with pytest.raises(BackendMissingError):
            await client.load("native", overrides)
        await client.unload("no-such-model")
        triton.send(signal.SIGSTOP)
        with pytest.raises(TritonUnavailableError):
            await client.held([])
        triton.send(signal.SIGCONT)
        triton.kill9()
        with pytest.raises(TritonUnavailableError):
            await client.held([])
    finally:
        await client.close()


async def test_a_model_whose_process_was_killed_is_told_from_one_that_refuses(
    harness: TritonHarness,
) -> None:
    ref = harness.publish("1")
    harness.show(ref)
    await harness.settle()
    for process in model_processes(harness.process):
        os.kill(process, signal.SIGKILL)
    for _ in range(2):  # nor does Triton start another by itself
        with pytest.raises(ModelProcessGoneError):
            await harness.client.infer(ref.triton_model, batch(1, 8))


# The padded model on a GPU that fails at a row which begins with 7, and from then on.
LOSES_ITS_GPU = """
import python_model

class Session:
    lost = False

    def __init__(self, session):
        self.session = session

    def run(self, outputs, feed):
        Session.lost = Session.lost or bool((feed["input_ids"][:, 0] == 7).any())
        if Session.lost:
            raise RuntimeError("CUDA failure 214: uncorrectable ECC error encountered ; GPU=0")
        return self.session.run(outputs, feed)

class TritonPythonModel(python_model.TritonPythonModel):
    def open(self, folder, options, wanted):
        return Session(super().open(folder, options, wanted))
"""


async def test_after_a_fault_of_its_gpu_a_model_answers_nobody_until_it_is_loaded_again(
    triton: TritonProcess, tmp_path: Path
) -> None:
    publish(PackageStore((tmp_path / "store").as_uri()), tmp_path / "source", "1")
    overrides = dict(UploadedFiles().place("m", tmp_path / "source", "python", InstanceSplit(1, 1)))
    overrides["file:1/python_model.py"] = overrides["file:1/model.py"]
    overrides["file:1/model.py"] = LOSES_ITS_GPU.encode()
    client = GrpcTriton(triton.grpc, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS)
    engine = TritonEngine(triton.grpc)
    good = batch(2, 8)
    good["input_ids"][:, 0] = 5
    bad = {name: np.full((1, 8), 7, np.int64) for name in good}
    try:
        await reached(client)
        await client.load("m", overrides)
        before = await engine.infer(Work("m", "logits", good), CALL_SECONDS)
        with pytest.raises(EngineProcessGoneError, match="uncorrectable ECC"):
            await engine.infer(Work("m", "logits", bad), CALL_SECONDS)
        async with asyncio.timeout(LOAD_SECONDS):
            while "model process ends: the GPU can't" not in triton.log.read_text():
                with pytest.raises(EngineProcessGoneError):
                    await engine.infer(Work("m", "logits", good), CALL_SECONDS)
        with pytest.raises(ModelProcessGoneError):
            await client.infer("m", good)
        await client.unload("m")
        await client.load("m", overrides)
        after = await engine.infer(Work("m", "logits", good), CALL_SECONDS)
        assert np.array_equal(before, after)
    finally:
        await client.close()
        await engine.close()


async def test_models_whose_processes_are_gone_are_loaded_anew_by_a_loader_that_knew_none_of_them(
    harness: TritonHarness,
) -> None:
    refs = harness.publish("1"), harness.publish("2")
    harness.show(*refs)
    await harness.settle()
    (harness.folder / "reports" / "l.json").unlink()
    harness.loader = harness.new_loader()
    for process in model_processes(harness.process):
        os.kill(process, signal.SIGKILL)
    async with asyncio.timeout(LOAD_SECONDS):
        while len((await harness.settle()).loaded) < len(refs):  # noqa: ASYNC110 - the loader's pace
            await asyncio.sleep(0.05)
    for ref in refs:
        assert (await harness.infer(ref, batch(3, 8))).shape == (3, 2)
    assert harness.loader.fault() == ""


async def test_the_simulated_accelerator_answers_zeros_after_its_time(
    triton: TritonProcess, tmp_path: Path
) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    publish(store, tmp_path / "source", "1")
    overrides = dict(
        UploadedFiles().place("sim", tmp_path / "source", "python", InstanceSplit(1, 1))
    )
    overrides["file:1/model.py"] = (h200_times.SIMULATED / "model.py").read_bytes()
    client = GrpcTriton(triton.grpc, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS)
    engine = TritonEngine(triton.grpc)
    try:
        await reached(client)
        await client.load("sim", overrides)
        started = time.monotonic()
        found = await engine.infer(Work("sim", "logits", batch(16, 512)), CALL_SECONDS)
        assert time.monotonic() - started >= 0.001 + 1.2e-6 * 16 * 512
        assert found.shape == (16, 2)
        assert not found.any()
        assert "Traceback" not in triton.log.read_text()
    finally:
        await client.close()
        await engine.close()


# TLS on both sides


async def test_two_tritons_answer_those_alone_who_show_a_certificate_of_their_authority(
    triton_files: TritonFiles, tmp_path: Path
) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
        certificate, _ = certificates.write(folder, folder.name)
        (folder / "ca.crt").write_bytes(certificate.read_bytes())
    publish(PackageStore((tmp_path / "store").as_uri()), tmp_path / "source", "1")
    overrides = UploadedFiles().place("m", tmp_path / "source", "python", InstanceSplit(1, 1))
    ids = np.ones((2, 4), np.int64)
    tensors = {"input_ids": ids, "attention_mask": ids}
    work = Work("m", "logits", tensors)
    tls, stranger = MutualTls(ours, "localhost"), MutualTls(others, "localhost")
    processes = []
    try:
        for number in range(2):
            http, grpc_port, metrics = own_ports(3)
            repository = tmp_path / f"repository-{number}"
            server = TritonServer(repository, http, grpc_port, metrics, tls_folder=ours)
            processes.append(TritonProcess(triton_files, server, tmp_path / f"log-{number}"))
            processes[-1].start()
            address = processes[-1].grpc
            async with AsyncExitStack() as open_ones:
                loader = GrpcTriton(
                    address, call_seconds=CALL_SECONDS, load_seconds=LOAD_SECONDS, tls=tls
                )
                open_ones.push_async_callback(loader.close)
                engine = TritonEngine(address, tls)
                open_ones.push_async_callback(engine.close)
                await reached(loader)
                await loader.load("m", overrides)
                assert (await loader.infer("m", tensors))[0] == 2
                async with asyncio.timeout(LOAD_SECONDS):
                    while not await engine.ready("m", CALL_SECONDS):  # noqa: ASYNC110 - it connects
                        await asyncio.sleep(0.05)
                answer = await engine.infer(work, CALL_SECONDS)
                assert answer.shape == (2, 2)
                async with httpx.AsyncClient(timeout=CALL_SECONDS) as client:
                    past = await client.post(f"http://127.0.0.1:{http}/v2/models/m/infer", json={})
                assert past.status_code == 403
                for refused in (None, stranger, MutualTls(ours, "another.example")):
                    without = TritonEngine(address, refused)
                    open_ones.push_async_callback(without.close)
                    with pytest.raises(EngineUnavailableError):
                        await without.infer(work, CALL_SECONDS)
                    plain = GrpcTriton(address, call_seconds=5.0, load_seconds=5.0, tls=refused)
                    open_ones.push_async_callback(plain.close)
                    with pytest.raises(TritonUnavailableError):
                        await plain.held(["m"])
    finally:
        for process in processes:
            process.stop()

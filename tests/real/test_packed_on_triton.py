"""A packed package through loader and real Triton, on the CPU: answers, company, its process."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from own_ports import own_ports
from own_servers import TritonProcess
from real_triton import reached
from registry_fakes import endpoint, manifest
from tiny_encoders import LONGEST, VOCABULARY, write_encoder

from contracts.endpoint import Arm, EndpointStatus, Precision, Route
from contracts.loading import DeviceKind, LoaderReport
from contracts.manifest import (
    CONFIG_PYTHON,
    DEVICE_PROOF,
    TOKENIZER,
    EngineKind,
    PackedSpec,
    TokenizerSpec,
)
from contracts.model import ModelRef
from contracts.tasks import Task, packed_inputs
from contracts.tensors import Datatype, TensorSpec
from headrace.stack import provision, triton
from headrace.stack.triton import TritonFiles, TritonServer
from registry.convert import package
from registry.loading.devices import PROBE_MODEL, Devices, Promise
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import Placement, SharedRepository, UploadedFiles
from registry.loading.triton_client import GrpcTriton
from registry.packages import triton_config
from registry.packages.cache import LocalPackages
from registry.packages.device_proof import ReferenceRow, packed_batch, proof_of
from registry.packages.store import PackageStore
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports

torch = pytest.importorskip("torch")
import transformers  # noqa: E402 - beside torch

pytestmark = [pytest.mark.real, pytest.mark.export]

SECONDS = 120.0
WIDTH = 32
LENGTHS = (3, 17, 1, LONGEST, 8, 8)


def rows_of(lengths: tuple[int, ...]) -> list[list[int]]:
    """Random ids."""
    random = np.random.default_rng(1)
    return [random.integers(5, VOCABULARY, length).tolist() for length in lengths]


def by_itself(folder: Path, row: list[int]) -> np.ndarray:
    """A row's vector as transformers gives it: the mean of its tokens, of length 1."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([row])).last_hidden_state[0]
    vector = states.mean(0).numpy()
    return np.asarray(vector / np.linalg.norm(vector))


def published(store: PackageStore, folder: Path, *, strays: bool = False) -> ModelRef:
    """The package of a tiny encoder, whose proof may be of another one."""
    write_encoder(folder, "bert", "AutoModel")
    spec = PackedSpec(loader="AutoModel", type_ids=True, modes=("mean",), normalise=True)
    text = triton_config.render_packed(
        task=Task.TEXT_EMBEDDING, width=WIDTH, type_ids=True, threads=1
    )
    (folder / CONFIG_PYTHON).write_text(text, encoding="utf-8")
    (folder / TOKENIZER).write_text("{}")
    sign = -1 if strays else 1
    rows = rows_of(LENGTHS)
    proof = proof_of(
        [ReferenceRow(row, None, sign * by_itself(folder, row)[np.newaxis]) for row in rows],
        task=Task.TEXT_EMBEDDING,
        multi_label=False,
        type_ids=True,
        scale=1.0,
        limits={"min_cosine": 0.9999},
    )
    (folder / DEVICE_PROOF).write_text(proof.model_dump_json(), encoding="utf-8")
    made = manifest().model_copy(
        update={
            "task": Task.TEXT_EMBEDDING,
            "labels": (),
            "dimension": WIDTH,
            "precision": Precision.FP32,
            "engine": EngineKind.PACKED,
            "packed": spec,
            "length_buckets": (16, LONGEST),
            "tokenizer": TokenizerSpec(max_tokens=LONGEST, pad_id=0, vocabulary=VOCABULARY),
            "inputs": packed_inputs(type_ids=True),
            "outputs": (TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, WIDTH)),),
            "files": package.proofs(folder),
        }
    )
    return store.publish(folder, made)


@pytest.fixture
def torch_triton(triton_files: TritonFiles, tmp_path: Path, cache: Path) -> Iterator[TritonProcess]:
    """A Triton whose models find torch, as those of a local stack do."""
    http, grpc, metrics = own_ports(3)
    server = TritonServer(tmp_path / "repository", http, grpc, metrics)
    python = triton.python_with(tmp_path / "python", provision.export_folder(cache))
    process = TritonProcess(triton_files, server, tmp_path / "triton.log", python)
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def client(torch_triton: TritonProcess) -> AsyncIterator[GrpcTriton]:
    made = GrpcTriton(torch_triton.grpc, call_seconds=SECONDS, load_seconds=SECONDS)
    await reached(made)
    yield made
    await made.close()


async def brought(
    folder: Path, process: TritonProcess, client: GrpcTriton, placement: Placement, ref: ModelRef
) -> LoaderReport:
    """What a loader reports after it has brought the package in, on a CPU."""
    routes = (Route(arm=Arm.STABLE, ref=ref, weight=100),)
    endpoints = FileEndpointStore(folder / "endpoints")
    endpoints.put(endpoint(EndpointStatus(routes=routes, packages=(ref,))))
    reports = FileReports(folder / "reports")
    loader = Loader(
        LoaderOptions("l", process.grpc, folder / "ledger.json", cores=2),
        endpoints=endpoints,
        packages=LocalPackages(PackageStore((folder / "store").as_uri()), folder / "local"),
        triton=client,
        placement=placement,
        reports=reports,
        devices=Devices(client, placement.place_probe, Promise.CPU),
    )
    while await loader.step():
        pass
    report = reports.get("l")
    assert report is not None
    return report


@pytest.mark.parametrize("kind", [SharedRepository, UploadedFiles])
async def test_a_packed_package_answers_each_row_as_transformers_does(
    tmp_path: Path, torch_triton: TritonProcess, client: GrpcTriton, kind: type[Placement]
) -> None:
    source = tmp_path / "source"
    ref = published(PackageStore((tmp_path / "store").as_uri()), source)
    shared = SharedRepository(torch_triton.server.model_repository)
    placement = shared if kind is SharedRepository else UploadedFiles()
    report = await brought(tmp_path, torch_triton, client, placement, ref)
    assert (report.ready, report.failed) == (True, ()), torch_triton.log.read_text()[-3000:]
    (model,) = report.loaded
    assert (model.instances, model.threads) == (1, 2)
    assert [(cost.bucket, cost.batch) for cost in model.costs] == [(64, 1), (256, 1)]
    assert report.device is not None
    assert report.device.kind is DeviceKind.CPU
    rows = rows_of(LENGTHS)
    found = await client.outputs(ref.triton_model, packed_batch(rows, None))
    expected = np.array([by_itself(source, row) for row in rows])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    await client.load(PROBE_MODEL, placement.place_probe(PROBE_MODEL))
    async with asyncio.timeout(SECONDS):
        while "useful" not in (told := json.loads(await client.ask(PROBE_MODEL))):
            await client.outputs(ref.triton_model, packed_batch(rows, None))
    assert told["useful"] == 1.0  # a CPU's runs are not filled up
    assert "Traceback" not in torch_triton.log.read_text()


async def test_a_packed_package_that_strays_is_refused_with_figures(
    tmp_path: Path, torch_triton: TritonProcess, client: GrpcTriton
) -> None:
    ref = published(PackageStore((tmp_path / "store").as_uri()), tmp_path / "source", strays=True)
    placement = SharedRepository(torch_triton.server.model_repository)
    report = await brought(tmp_path, torch_triton, client, placement, ref)
    (failure,) = report.failed
    assert failure.by_version
    assert "cosine to the original is -1, and the limit is 0.9999" in failure.reason

"""The peers with a Triton behind or around them: Headrace, the 60-line gateway, the ensemble.

Everything that a peer is made of, its Triton and engine too, runs on the cores under test. Only
Headrace's Kafka does not: brokers are another machine's.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.peers.model import MODEL, PreparedModel
from bench.peers.plan import Engine
from bench.peers.servers.embedder import MOST_ROWS, SECONDS_PER_RUN, SECONDS_PER_TOKEN
from bench.peers.started import side_by_side, started
from bench.peers.subjects import Running, Site
from bench.processes import answers, free_port, python
from contracts.endpoint import (
    Arm,
    EndpointSpec,
    EndpointStatus,
    Limits,
    Metadata,
    ModelEndpoint,
    Route,
)
from contracts.loading import CostPoint, LoadedModel, LoaderReport
from contracts.manifest import CONFIG_PYTHON, MODEL_ONNX
from contracts.rollout import RolloutSpec
from headrace.stack import kafka, triton
from registry.packages.triton_files import triton_file
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports
from service.key_files import make_key_file

_LOADED_SECONDS = 240.0
_LONG = 1e9  # no controller runs here, and none is missed
_MOST_TOKENS = 1 << 20  # as many as the most callers of the most texts bring
_BATCHES = (1, 4, 16, 64)
_OF_THE_GPU = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


@contextmanager
def headrace(site: Site) -> Iterator[Running]:
    """Gateways as ``headrace up`` runs them, with events to Kafka, a Triton and its loader.

    On the simulated accelerator no loader runs, for it would load the real engine: the report that
    it would leave is written here.
    """
    home, pinned = site.folder, site.gateways or [site.cores]
    http = tuple(free_port() for _ in pinned)
    grpc = tuple(free_port() if site.grpc else -1 for _ in pinned)
    store = FileEndpointStore(home / "endpoints")
    (home / "endpoints").mkdir(parents=True)
    (home / "reports").mkdir()
    _put(store, site.model, site.deadline_seconds)
    repository = _packaged(site) if site.engine is Engine.SIMULATED else home / "models"
    make_key_file(home / "receipt-keys")
    with (
        _events(site) as events,
        _triton(site, repository, programs=_programs(site)) as server,
        _loader(site, server.grpc),
        side_by_side(
            _gateway(site, ports, cores, events)
            for ports, cores in zip(zip(http, grpc, strict=True), pinned, strict=True)
        ),
    ):
        yield Running(
            http[0],
            f"/endpoints/{MODEL}",
            lambda seconds: _tell(store, site, seconds),
            http,
            server.metrics_port,
            site.model.manifest.ref().triton_model,
            grpc_ports=grpc,
            engine=server.grpc,
        )


@contextmanager
def _events(site: Site) -> Iterator[str]:
    """A Kafka for events, as the gateway's flag; no flag if the site has none."""
    if not site.events:
        yield ""
        return
    folder = site.folder / "kafka"
    node = kafka.KafkaNode(folder, port=free_port(), controller_port=free_port())
    broker = kafka.KafkaProcess(kafka.prepare(site.cache), node)
    try:
        broker.start(timeout_seconds=_LOADED_SECONDS)
        yield f"--kafka-bootstrap={broker.bootstrap}"
    finally:
        broker.stop()


def _gateway(
    site: Site, ports: tuple[int, int], cores: Sequence[int], events: str
) -> AbstractContextManager[int]:
    """A gateway on its cores; ``ports`` are of HTTP and of gRPC."""
    home, operations = site.folder, free_port()
    flags = {
        "home": home, "store-url": site.model.store.as_uri(),
        "http-port": ports[0], "grpc-port": ports[1], "operations-port": operations,
        "tokens-in-flight": _MOST_TOKENS, "receipt-key-file": home / "receipt-keys",
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in flags.items()]
    return started(
        python("gateway.main", *words, *filter(None, [events])),
        environment={} if site.compiled is None else {"PYTHONPATH": str(site.compiled)},
        folder=home / f"gateway-{ports[0]}",
        cores=cores,
        ready=f"http://127.0.0.1:{operations}/readyz",
    )


def _tell(store: FileEndpointStore, site: Site, seconds: float) -> None:
    """Changes the endpoint's deadline, and waits until the gateway has looked."""
    _put(store, site.model, seconds)
    time.sleep(2.5)


def _put(store: FileEndpointStore, model: PreparedModel, timeout_seconds: float) -> None:
    ref = model.manifest.ref()
    known = store.get(MODEL)
    endpoint = ModelEndpoint(
        metadata=Metadata(name=MODEL, revision="" if known is None else known.metadata.revision),
        spec=EndpointSpec(
            model=MODEL,
            limits=Limits(max_tokens_in_flight=_MOST_TOKENS, timeout_seconds=timeout_seconds),
            rollout=RolloutSpec(controller_timeout=_LONG),
        ),
        status=EndpointStatus(
            generation=1,
            task=model.manifest.task,
            routes=(Route(arm=Arm.STABLE, ref=ref, weight=100),),
            packages=(ref,),
        ),
    )
    store.put(endpoint)


@contextmanager
def _loader(site: Site, grpc: str) -> Iterator[None]:
    """The loader, until it has loaded and measured the package; on the simulator its report."""
    home, reports = site.folder, FileReports(site.folder / "reports")
    if site.engine is Engine.SIMULATED:
        reports.put(_simulated_report(site.model, grpc))
        yield
        return
    metrics = free_port()
    flags = {
        "endpoints": home / "endpoints", "reports": home / "reports",
        "store-url": site.model.store.as_uri(), "state-dir": home / "loader",
        "triton-grpc": grpc, "model-repository": home / "models", "backend": "python",
        "metrics-port": metrics, "auto-instances": 1, "device": "gpu" if site.gpu else "cpu",
    }  # fmt: skip
    with started(
        python("registry.loader_main", *(f"--{name}={value}" for name, value in flags.items())),
        environment={},
        folder=home / "loader-log",
        cores=site.cores,
        ready=f"http://127.0.0.1:{metrics}/readyz",
        seconds=_LOADED_SECONDS,
    ):
        deadline = time.monotonic() + _LOADED_SECONDS
        while not any(each.loaded for each in reports.list()):
            if time.monotonic() > deadline:
                raise RuntimeError("the loader did not load the package")
            time.sleep(0.1)
        yield


def _simulated_report(model: PreparedModel, grpc: str) -> LoaderReport:
    costs = tuple(
        CostPoint(
            bucket=bucket,
            batch=batch,
            milliseconds=1000 * (SECONDS_PER_RUN + SECONDS_PER_TOKEN * bucket * batch),
        )
        for bucket in model.manifest.length_buckets
        for batch in _BATCHES
    )
    loaded = LoadedModel(ref=model.manifest.ref(), costs=costs, instances=1)
    return LoaderReport(
        loader="local", triton_grpc=grpc, at=time.time(), ready=True, loaded=(loaded,)
    )


@contextmanager
def sixty_lines(site: Site) -> Iterator[Running]:
    """The sixty-line gateway before the same Triton model as Headrace's."""
    manifest = site.model.manifest
    port = free_port()
    names = ",".join(spec.name for spec in manifest.inputs)
    with _triton(site, _packaged(site)) as server:
        command = python(
            "bench.peers.servers.sixty_lines", str(port), server.grpc, manifest.ref().triton_model,
            str(site.model.package), names, manifest.outputs[0].name,
        )  # fmt: skip
        with started(
            command,
            environment=site.variables(),
            folder=site.folder / "gateway",
            cores=site.cores,
            ready=f"http://127.0.0.1:{port}/",
        ):
            computing = manifest.ref().triton_model
            yield Running(port, "/", metrics=server.metrics_port, computing=computing)


def _programs(site: Site) -> list[str]:
    """Where Triton's Python models find their packages, if not in our own environment."""
    return [] if site.environment is None else [str(site.environment / "bin")]


def _packaged(site: Site) -> Path:
    """A model repository with Headrace's package as its loader lays it out, or the simulator."""
    repository = site.folder / "models"
    version = repository / site.model.manifest.ref().triton_model / "1"
    version.mkdir(parents=True)
    config = (site.model.package / CONFIG_PYTHON).read_text(encoding="utf-8")
    (version.parent / "config.pbtxt").write_text(config, encoding="utf-8")
    simulated = site.engine is Engine.SIMULATED
    source = triton_file("python_model")
    if simulated:
        source = source.parents[1] / "simulated_accelerator" / source.name
    (version / "model.py").write_bytes(source.read_bytes())
    if not simulated:
        (version / MODEL_ONNX).symlink_to(site.model.package / MODEL_ONNX)
    return repository


_TOKENIZER = """
backend: "python"
max_batch_size: {rows}
input {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "IDS" data_type: TYPE_INT64 dims: [ -1 ] }}
instance_group {{ kind: KIND_CPU count: {tokenizers} }}
{batcher}
"""
_ENGINE = """
backend: "python"
max_batch_size: {rows}
input {{ name: "IDS" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }}
output {{ name: "VECTORS" data_type: TYPE_FP32 dims: [ {width} ] }}
instance_group {{ kind: {kind} count: 1 }}
{batcher}
parameters {{ key: "engine" value {{ string_value: "{engine}" }} }}
"""
_ENSEMBLE = """
platform: "ensemble"
max_batch_size: {rows}
input {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "VECTORS" data_type: TYPE_FP32 dims: [ {width} ] }}
ensemble_scheduling {{
  step {{ model_name: "tokenizer" model_version: -1
    input_map {{ key: "TEXT" value: "TEXT" }} output_map {{ key: "IDS" value: "ids" }} }}
  step {{ model_name: "engine" model_version: -1
    input_map {{ key: "IDS" value: "ids" }} output_map {{ key: "VECTORS" value: "VECTORS" }} }}
}}
"""
# Triton's page "Batchers", "Queue Policy": what waited too long is refused.
_BATCHER = (
    "dynamic_batching {{ default_queue_policy "
    "{{ timeout_action: REJECT default_timeout_microseconds: {late} }} }}"
)
# Triton's Python is an isolated one, which does not read PYTHONPATH.
_MODEL = """
import sys
sys.path.append({path!r})
from bench.peers.servers.ensemble import {model} as TritonPythonModel
"""
_MODELS = {
    "tokenizer": (_TOKENIZER, "TokenizerModel"),
    "engine": (_ENGINE, "EngineModel"),
    "minilm": (_ENSEMBLE, ""),
}


def ensemble(site: Site) -> AbstractContextManager[Running]:
    """Text in, vectors out, by Triton alone: a tokeniser for each gateway that Headrace has."""
    return _ensemble(site, _BATCHER.format(late=int(site.deadline_seconds * 1e6)))


def ensemble_without_batcher(site: Site) -> AbstractContextManager[Running]:
    """The same with each request alone: Triton's batcher holds some back before Python backends."""
    return _ensemble(site, "")


@contextmanager
def _ensemble(site: Site, batcher: str) -> Iterator[Running]:
    repository = site.folder / "models"
    for name, (config, model) in _MODELS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        text = config.format(
            rows=MOST_ROWS,
            width=site.model.manifest.dimension,
            batcher=batcher,
            tokenizers=max(1, len(site.gateways)),
            kind="KIND_GPU" if site.gpu else "KIND_CPU",
            engine=site.engine.value,
        )
        (version.parent / "config.pbtxt").write_text(text, encoding="utf-8")
        if model:
            lines = _MODEL.format(path=str(site.path), model=model)
            (version / "model.py").write_text(lines, encoding="utf-8")
    if site.environment is None:
        raise ValueError("the ensemble's models have no environment")
    with _triton(
        site,
        repository,
        site.variables(),
        _programs(site),
        [f"--http-thread-count={max(2, len(site.gateways))}"],
    ) as server:
        path, metrics = "/v2/models/minilm/infer", server.metrics_port
        yield Running(server.http_port, path, metrics=metrics, computing="engine")


@contextmanager
def _triton(
    site: Site,
    repository: Path,
    variables: Mapping[str, str] | None = None,
    programs: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Iterator[triton.TritonServer]:
    """A Triton that has loaded what lies in the repository."""
    files = triton.prepare(site.cache, lambda _: None)
    server = triton.TritonServer(
        repository, http_port=free_port(), grpc_port=free_port(), metrics_port=free_port()
    )
    url = f"http://127.0.0.1:{server.http_port}/v2"
    triton.clean(server)
    told = triton.environment(files, {**(variables or {}), **_device(site)})
    kept = {**told, "PATH": ":".join([*programs, told["PATH"]])}
    try:
        with started(
            [*triton.command(files, server), "--load-model=*", *flags],
            environment=kept,
            folder=site.folder / "triton",
            cores=site.cores,
            ready=f"{url}/health/ready",
        ):
            for each in repository.iterdir():
                if not answers(f"{url}/models/{each.name}/ready"):
                    words = (site.folder / "triton" / "log.txt").read_text(encoding="utf-8")
                    raise RuntimeError(f"Triton did not load {each.name}: {words[-2000:]}")
            yield server
    finally:
        triton.clean(server)


def _device(site: Site) -> dict[str, str]:
    """What shows Triton the GPU, or hides it: one that is seen is taken."""
    if not site.gpu:
        return {"CUDA_VISIBLE_DEVICES": ""}
    return {name: os.environ[name] for name in _OF_THE_GPU if name in os.environ}

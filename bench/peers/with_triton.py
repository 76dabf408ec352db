"""The two that are measured on a GPU: Headrace, and Triton by itself as an ensemble.

Everything that one is made of runs on the cores of its site. Only Headrace's Kafka does not:
brokers are another machine's.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench import processes, world
from bench.peers.model import MODEL
from bench.peers.servers.embedder import MOST_ROWS
from bench.peers.started import side_by_side, started
from bench.peers.subjects import (
    PATIENT_SECONDS,
    Running,
    Site,
    Subject,
    inputs,
    lists,
    oip_output,
    oip_rows,
)
from bench.processes import answers, free_port, python
from contracts.endpoint import EndpointLimits
from headrace.stack import kafka, triton
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports
from service.key_files import make_key_file

_LOADED_SECONDS = 240.0
_MOST_TOKENS = 1 << 20  # as many as the most callers of the most texts bring
_OF_THE_GPU = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


@contextmanager
def headrace(site: Site) -> Iterator[Running]:
    """Gateways as ``headrace up`` runs them, with events to Kafka, a Triton and its loader."""
    home, pinned = site.folder, site.gateways
    http = tuple(free_port() for _ in pinned)
    grpc = tuple(free_port() for _ in pinned)
    (home / "endpoints").mkdir(parents=True)
    (home / "reports").mkdir()
    limits = EndpointLimits(max_tokens_in_flight=_MOST_TOKENS, timeout_seconds=PATIENT_SECONDS)
    manifest = site.model.manifest
    endpoint = world.endpoint(manifest.ref(), manifest.task, limits)
    FileEndpointStore(home / "endpoints").put(endpoint)
    make_key_file(home / "receipt-keys")
    with (
        _events(site) as events,
        _triton(site, home / "models") as server,
        _loader(site, server.grpc),
        side_by_side(
            _gateway(site, ports, cores, events)
            for ports, cores in zip(zip(http, grpc, strict=True), pinned, strict=True)
        ),
    ):
        yield Running(http[0], f"/endpoints/{MODEL}", http, grpc, server.grpc, server.metrics_port)


@contextmanager
def _events(site: Site) -> Iterator[str]:
    """A Kafka for events, as the gateway's flag; no flag if the site has none."""
    if not site.events:
        yield ""
        return
    folder = site.folder / "kafka"
    node = kafka.KafkaNode(folder, port=free_port(), controller_port=free_port())
    files = kafka.prepare(site.cache)
    kafka.lay_out(node)
    kafka.remove_leftovers(node)
    kafka.format_storage(files, node, timeout_seconds=_LOADED_SECONDS)
    command, told = kafka.server_command(files, node), kafka.environment({})
    with processes.started(command, folder / "log", told):  # up long before a model is loaded
        yield f"--kafka-bootstrap={node.bootstrap}"


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
        environment={},
        folder=home / f"gateway-{ports[0]}",
        cores=cores,
        ready=f"http://127.0.0.1:{operations}/readyz",
    )


@contextmanager
def _loader(site: Site, grpc: str) -> Iterator[None]:
    """The loader, until it has loaded and measured the package."""
    home, reports = site.folder, FileReports(site.folder / "reports")
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


@contextmanager
def ensemble(site: Site) -> Iterator[Running]:
    """Text in, vectors out, by Triton alone: a tokeniser for each gateway that Headrace has."""
    repository = site.folder / "models"
    for name, (config, model) in _MODELS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        text = config.format(
            rows=MOST_ROWS,
            width=site.model.manifest.dimension,
            batcher=_BATCHER.format(late=int(PATIENT_SECONDS * 1e6)),
            tokenizers=max(1, len(site.gateways)),
            kind="KIND_GPU" if site.gpu else "KIND_CPU",
        )
        (version.parent / "config.pbtxt").write_text(text, encoding="utf-8")
        if model:
            lines = _MODEL.format(path=str(site.path), model=model)
            (version / "model.py").write_text(lines, encoding="utf-8")
    threads = f"--http-thread-count={max(2, len(site.gateways))}"
    with _triton(site, repository, site.variables(), [threads]) as server:
        yield Running(server.http_port, "/v2/models/minilm/infer")


@contextmanager
def _triton(
    site: Site,
    repository: Path,
    variables: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Iterator[triton.TritonServer]:
    """A Triton that has loaded what lies in the repository."""
    files = triton.prepare(site.cache, lambda _: None)
    server = triton.TritonServer(
        repository, http_port=free_port(), grpc_port=free_port(), metrics_port=free_port()
    )
    url = f"http://127.0.0.1:{server.http_port}/v2"
    triton.remove_leftovers(server)
    told = triton.environment(files, {**(variables or {}), **_device(site)})
    kept = {**told, "PATH": f"{site.environment / 'bin'}:{told['PATH']}"}
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
        triton.remove_leftovers(server)


def _device(site: Site) -> dict[str, str]:
    """What shows Triton the GPU, or hides it: one that is seen is taken."""
    if not site.gpu:
        return {"CUDA_VISIBLE_DEVICES": ""}
    return {name: os.environ[name] for name in _OF_THE_GPU if name in os.environ}


HEADRACE = Subject(headrace, inputs, lists)
ENSEMBLE = Subject(ensemble, oip_rows, oip_output)

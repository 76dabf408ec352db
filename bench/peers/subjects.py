"""How a peer is asked, read and started; those without a Triton. ``entrants.py`` names them all.

All start from a ``Site``: a folder, the core, the model, and how long requests may take. A peer
that can refuse or drop late requests is told that time in its own words.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.model import PreparedModel
from bench.peers.plan import Engine
from bench.peers.servers.embedder import MOST_ROWS, PACKAGE
from bench.peers.started import started
from bench.processes import free_port, python

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Site:
    """Where a peer runs.

    Attributes:
        folder: its own, empty.
        cache: of downloads.
        model: what it serves.
        engine: what it computes on.
        cores: the core under test.
        rest: the core of all else.
        deadline_seconds: how long a request may take.
        environment: the peer's own, if it has one.
        path: folder to import ``bench`` from.
        answer_bytes: size of an answer, for the server that only answers.
        gateways: the cores of each gateway, where there are several or they have their own.
        gpu: whether the engine is on a GPU; else none is shown to it.
        compiled: folder of Headrace with compiled modules, which its gateways run; None for the
            source.
        grpc: whether its gateways take gRPC too.
        events: whether its gateways send events, to a Kafka beside them.
    """

    folder: Path
    cache: Path
    model: PreparedModel
    engine: Engine
    cores: Sequence[int]
    rest: Sequence[int]
    deadline_seconds: float
    environment: Path | None
    path: Path
    answer_bytes: int = 0
    gateways: Sequence[Sequence[int]] = ()
    gpu: bool = False
    compiled: Path | None = None
    grpc: bool = False
    events: bool = True

    def program(self, name: str) -> str:
        """A program of the peer's own environment."""
        if self.environment is None:
            raise ValueError(f"{name} has no environment")
        return str(self.environment / "bin" / name)

    def variables(self) -> dict[str, str]:
        """What every program of ours reads."""
        return {
            "PYTHONPATH": str(self.path),
            PACKAGE: str(self.model.package),
            "PEERS_DEADLINE_SECONDS": str(self.deadline_seconds),
        }


@dataclass(frozen=True)
class Running:
    """A peer that answers.

    Attributes:
        port: of HTTP.
        path: where it is asked.
        tell: gives it another deadline without a new start.
        ports: of all its gateways, where it has several.
        metrics: port of its Triton's metrics, where it has one.
        computing: Triton's name of the model that computes there.
        grpc_ports: of all its gateways, where they take gRPC.
        engine: ``host:port`` of its Triton's gRPC, where it has one.
    """

    port: int
    path: str
    tell: Callable[[float], None] | None = None
    ports: tuple[int, ...] = ()
    metrics: int = 0
    computing: str = ""
    grpc_ports: tuple[int, ...] = ()
    engine: str = ""


Start = Callable[[Site], AbstractContextManager[Running]]
Body = Callable[[Sequence[str]], object]
Read = Callable[[Any], Vectors]


def inputs(texts: Sequence[str]) -> object:
    """``{"inputs": [...]}``."""
    return {"inputs": list(texts)}


def oip(texts: Sequence[str]) -> object:
    """The Open Inference Protocol, for MLServer."""
    return {"inputs": [_tensor(texts, [len(texts)])]}


def oip_rows(texts: Sequence[str]) -> object:
    """The same with a row a text, as Triton's batchers count."""
    return {"inputs": [_tensor(texts, [len(texts), 1])]}


def _tensor(texts: Sequence[str], shape: list[int]) -> dict[str, object]:
    return {"name": "TEXT", "datatype": "BYTES", "shape": shape, "data": list(texts)}


def lists(answer: Any) -> Vectors:  # noqa: ANN401 - JSON
    """Vectors out of a list of lists."""
    return np.asarray(answer, dtype=np.float32)


def oip_output(answer: Any) -> Vectors:  # noqa: ANN401
    """Vectors out of the one output of the Open Inference Protocol."""
    output = answer["outputs"][0]
    return np.asarray(output["data"], dtype=np.float32).reshape(output["shape"])


def openai_body(texts: Sequence[str]) -> object:
    """OpenAI's embeddings."""
    return {"model": "minilm", "input": list(texts)}


def openai(answer: Any) -> Vectors:  # noqa: ANN401
    """Vectors out of OpenAI's form."""
    return np.asarray([each["embedding"] for each in answer["data"]], dtype=np.float32)


@dataclass(frozen=True)
class Subject:
    """One peer.

    Attributes:
        name: as results have it.
        tuned: what it was set to, and by which page of its documentation.
        start: starts it.
        start_seconds: how long that takes on a quiet machine.
        body: a request of some texts, to be encoded as JSON.
        read: the vectors of an answer.
        engines: what it can compute on.
        lock: of its environment, ``locks/peers-<lock>.txt``.
        deadline: whether it can be told how long a request may take.
        computes: whether its answers are vectors of the texts at all.
    """

    name: str
    tuned: str
    start: Start
    start_seconds: float
    body: Body = inputs
    read: Read = lists
    engines: tuple[Engine, ...] = (Engine.REAL,)
    lock: str | None = None
    deadline: bool = False
    computes: bool = True


@contextmanager
def _http(
    site: Site,
    command: Callable[[int], Sequence[str]],
    path: str,
    ready: str,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """A peer that is one command."""
    port = free_port()
    with started(
        command(port),
        environment={**site.variables(), **(variables or {})},
        folder=site.folder,
        cores=site.cores,
        ready=f"http://127.0.0.1:{port}{ready}",
    ):
        yield Running(port, path)


def fastapi(site: Site) -> AbstractContextManager[Running]:
    """FastAPI, two uvicorn workers."""

    def command(port: int) -> list[str]:
        return [
            site.program("uvicorn"), "bench.peers.servers.fastapi_server:app", "--workers", "2",
            "--host", "127.0.0.1", "--port", str(port), "--loop", "uvloop", "--http", "httptools",
            "--no-access-log", "--log-level", "warning",
        ]  # fmt: skip

    return _http(site, command, "/embed", "/ready")


def bentoml(site: Site) -> AbstractContextManager[Running]:
    """A BentoML service."""

    def command(port: int) -> list[str]:
        service = "bench.peers.servers.bentoml_server:Embeddings"
        return [site.program("bentoml"), "serve", service, "--host", "127.0.0.1",
                "--port", str(port)]  # fmt: skip

    home = {"BENTOML_HOME": str(site.folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"}
    return _http(site, command, "/embed", "/readyz", home)


def litserve(site: Site) -> AbstractContextManager[Running]:
    """A LitServe server."""

    def command(port: int) -> list[str]:
        return [site.program("python"), "-m", "bench.peers.servers.litserve_server", str(port)]

    return _http(site, command, "/predict", "/health")


def mosec(site: Site) -> AbstractContextManager[Running]:
    """A mosec server."""

    def command(port: int) -> list[str]:
        milliseconds = int(site.deadline_seconds * 1000)
        return [
            site.program("python"), "-m", "bench.peers.servers.mosec_server",
            "--address", "127.0.0.1", "--port", str(port), "--timeout", str(milliseconds),
            "--path", str(site.folder / "mosec"), "--log-level", "warning",
        ]  # fmt: skip

    return _http(site, command, "/inference", "/metrics")


def mlserver(site: Site) -> AbstractContextManager[Running]:
    """MLServer with one model."""

    def command(port: int) -> list[str]:
        site.folder.mkdir(parents=True, exist_ok=True)
        server = {
            "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(),
            "metrics_port": free_port(), "debug": False, "parallel_workers": 1,
        }  # fmt: skip
        model = {
            "name": "minilm",
            "implementation": "bench.peers.servers.mlserver_server.Embeddings",
            "max_batch_size": MOST_ROWS,
            "max_batch_time": 0.005,
        }
        for name, settings in (("settings", server), ("model-settings", model)):
            (site.folder / f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
        return [site.program("mlserver"), "start", str(site.folder)]

    return _http(site, command, "/v2/models/minilm/infer", "/v2/models/minilm/ready")


def infinity(site: Site) -> AbstractContextManager[Running]:
    """Infinity's server."""

    def command(port: int) -> list[str]:
        for file in site.model.states.iterdir():  # it takes no path but one within its folder
            (site.folder / file.name).symlink_to(file)
        return [
            site.program("python"), "-m", "bench.peers.servers.infinity_server", "v2",
            "--model-id", ".", "--served-model-name", "minilm",
            "--engine", "optimum", "--device", "cpu", "--pooling-method", "mean",
            "--batch-size", str(MOST_ROWS), "--no-bettertransformer", "--no-model-warmup",
            "--onnx-disable-optimize", "--no-compile",
            "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning",
        ]  # fmt: skip

    quiet = {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "DO_NOT_TRACK": "1"}
    return _http(site, command, "/embeddings", "/health", quiet)


def bare(site: Site) -> AbstractContextManager[Running]:
    """Uvicorn with an answer of the size that the site names."""

    def command(port: int) -> list[str]:
        return python("bench.floor", str(port), str(site.answer_bytes))

    return _http(site, command, "/", "/")

"""Where a server runs, how it is asked and how it is read."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.model import PreparedModel
from bench.peers.servers.embedder import PACKAGE

PATIENT_SECONDS = 60.0  # that a request may take: nobody gives up

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Site:
    """Where a server runs.

    Attributes:
        folder: its own, empty.
        cache: of downloads.
        model: what it serves.
        cores: those of the engine, and of all that has none of its own.
        environment: whose Python Triton's models run by.
        path: folder to import ``bench`` from.
        gateways: the cores of each gateway.
        gpu: whether the engine is on a GPU; else none is shown to it.
        events: whether its gateways send events, to a Kafka beside them.
    """

    folder: Path
    cache: Path
    model: PreparedModel
    cores: Sequence[int]
    environment: Path
    path: Path
    gateways: Sequence[Sequence[int]]
    gpu: bool
    events: bool

    def variables(self) -> dict[str, str]:
        """What every program of ours reads."""
        return {"PYTHONPATH": str(self.path), PACKAGE: str(self.model.package)}


@dataclass(frozen=True)
class Running:
    """A server that answers.

    Attributes:
        port: of HTTP.
        path: where it is asked.
        ports: of all its gateways, if it has any.
        grpc_ports: of all its gateways, for gRPC.
        engine: ``host:port`` of its Triton's gRPC, if it may be asked directly.
        metrics: port of its Triton's metrics, if its packed engine counts there.
    """

    port: int
    path: str
    ports: tuple[int, ...] = ()
    grpc_ports: tuple[int, ...] = ()
    engine: str = ""
    metrics: int = 0


@dataclass(frozen=True)
class Subject:
    """One server: what starts it, a request of some texts for JSON, the vectors of an answer."""

    start: Callable[[Site], AbstractContextManager[Running]]
    body: Callable[[Sequence[str]], object]
    read: Callable[[Any], Vectors]


def inputs(texts: Sequence[str]) -> object:
    """``{"inputs": [...]}``."""
    return {"inputs": list(texts)}


def oip_rows(texts: Sequence[str]) -> object:
    """The Open Inference Protocol with a row a text, as Triton's batchers count."""
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": list(texts)}
    return {"inputs": [tensor]}


def lists(answer: Any) -> Vectors:  # noqa: ANN401 - JSON
    """Vectors out of a list of lists."""
    return np.asarray(answer, dtype=np.float32)


def oip_output(answer: Any) -> Vectors:  # noqa: ANN401
    """Vectors out of the one output of the Open Inference Protocol."""
    output = answer["outputs"][0]
    return np.asarray(output["data"], dtype=np.float32).reshape(output["shape"])

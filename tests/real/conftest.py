"""Real servers for the tests of this folder: Triton out of its wheel, MLflow on SQLite."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.stack.mlflow import MlflowProcess, MlflowServer
from headrace.stack.triton import TritonFiles, TritonProcess, TritonServer, prepare


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


@pytest.fixture(scope="session")
def triton_files() -> TritonFiles:
    """Triton itself, downloaded at the first use on a machine."""
    return prepare(Path.home() / ".cache" / "headrace", lambda _: None)


@pytest.fixture
def triton(triton_files: TritonFiles, tmp_path: Path) -> Iterator[TritonProcess]:
    """A Triton that is up and holds no model."""
    http, grpc, metrics = _free_ports(3)
    server = TritonServer(tmp_path / "repository", http, grpc, metrics)
    process = TritonProcess(triton_files, server, tmp_path / "triton.log")
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    """An MLflow server that is up. Who kills it starts it again; registered models: one a test."""
    (port,) = _free_ports(1)
    process = MlflowProcess(MlflowServer(tmp_path_factory.mktemp("mlflow"), port))
    process.start()
    yield process
    process.stop()

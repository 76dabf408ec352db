"""``headrace up`` on a Kafka, an MLflow and a Triton that run already."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_ports import own_ports
from running_stack import EXAMPLE_ENDPOINT, running_stack

from headrace.stack.kafka import KafkaProcess
from headrace.stack.mlflow import MlflowProcess, MlflowServer
from headrace.stack.triton import TritonProcess

pytestmark = pytest.mark.real


@pytest.fixture
def empty_mlflow(tmp_path: Path) -> Iterator[MlflowProcess]:
    (port,) = own_ports(1)
    process = MlflowProcess(MlflowServer(tmp_path / "mlflow", port))
    process.start()
    yield process
    process.stop()


def test_each_is_used_and_none_is_started(
    kafka: KafkaProcess, empty_mlflow: MlflowProcess, triton: TritonProcess, tmp_path: Path
) -> None:
    flags = (
        f"--kafka-bootstrap={kafka.bootstrap}",
        f"--mlflow-uri={empty_mlflow.url}",
        f"--triton-grpc={triton.grpc}",
    )
    with running_stack(tmp_path / "home", *flags) as stack:
        record = stack.record()
        assert record is not None
        assert set(record.services) == {"loader", "controller", "fold", "stats", "gateway"}
        said = stack.command("predict", EXAMPLE_ENDPOINT, "wonderful", "--json")
        assert json.loads(said.stdout)[0]["label"] == "positive"
        assert not list(triton.server.model_repository.iterdir())  # it was sent, not shared
        assert stack.stop() == 0

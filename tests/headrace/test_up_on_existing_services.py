"""``headrace up`` on a Kafka, an MLflow and a Triton that run already."""

from pathlib import Path

import pytest
from own_servers import KafkaProcess, MlflowProcess, TritonProcess
from running_stack import EXAMPLE_ENDPOINT, HEADRACE, labels_of, running_stack
from waiting import until

pytestmark = pytest.mark.real


def test_each_is_used_and_none_is_started(
    kafka: KafkaProcess, new_mlflow: MlflowProcess, triton: TritonProcess, tmp_path: Path
) -> None:
    flags = (
        f"--kafka-bootstrap={kafka.bootstrap}",
        f"--mlflow-uri={new_mlflow.url}",
        f"--triton-grpc={triton.grpc}",
    )
    with running_stack(tmp_path / "home", *flags) as stack:
        record = stack.record()
        assert record is not None
        assert set(record.services) == {"loader", "controller", "fold", "stats", "gateway"}
        predict = HEADRACE, "predict", EXAMPLE_ENDPOINT, "wonderful", "--json"
        until(
            "the text is answered", 120, lambda: labels_of(*predict, env=stack.env) == ["positive"]
        )
        assert not list(triton.server.model_repository.iterdir())  # it was sent, not shared
        assert stack.stop() == 0

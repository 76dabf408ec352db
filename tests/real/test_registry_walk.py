"""The way of a version, on real parts: registered in MLflow, converted, loaded, told about."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from tiny_models import TEXTS, classifier, tokenizer, write_json
from waiting import until

from contracts.endpoint import EndpointSpec, EndpointStatus, Metadata, ModelEndpoint, Phase
from contracts.rollout import RolloutSpec, Strategy
from headrace.stack.mlflow import MlflowProcess
from headrace.stack.triton import TritonProcess
from registry.stores.endpoints import FileEndpointStore

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]  # MLflow's own

WAIT_SECONDS = 120.0
NO_KAFKA = "127.0.0.1:9"  # nothing is judged here: versions are promoted at once
DIRECT = RolloutSpec(strategy=Strategy.DIRECT)


class ProcessHarness:
    """A controller and a loader as processes, on a home of their own."""

    def __init__(self, folder: Path, server: MlflowProcess, triton: TritonProcess) -> None:
        self.folder = folder
        self.endpoints = FileEndpointStore(folder / "endpoints")
        shared = {
            "endpoints": folder / "endpoints",
            "reports": folder / "reports",
            "store-url": (folder / "store").as_uri(),
        }
        self._flags = {
            "controller.main": {
                **shared,
                "work-dir": folder / "work",
                "mlflow-uri": server.url,
                "kafka-bootstrap": NO_KAFKA,
                "poll-seconds": 0.2,
                "mlflow-timeout-seconds": 20,
            },
            "registry.loader_main": {
                **shared,
                "state-dir": folder / "loader",
                "triton-grpc": triton.grpc,
                "model-repository": triton.server.model_repository,
                "warmup-seconds": 0.1,
                "call-timeout-seconds": 20,
            },
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, module: str) -> None:
        flags = [f"--{name}={value}" for name, value in self._flags[module].items()]
        with (self.folder / f"{module}.log").open("ab") as log:
            self.processes[module] = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *flags],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def end(self, module: str, how: signal.Signals) -> int:
        process = self.processes.pop(module)
        process.send_signal(how)
        return process.wait(WAIT_SECONDS)

    def serve(self, name: str) -> None:
        """An endpoint that promotes whatever is loaded."""
        spec = EndpointSpec(model=name, rollout=DIRECT)
        self.endpoints.put(ModelEndpoint(metadata=Metadata(name=name), spec=spec))

    def status(self, name: str) -> EndpointStatus:
        found = self.endpoints.get(name)
        return found.status if found else EndpointStatus()

    def until(self, name: str, holds: Callable[[EndpointStatus], bool]) -> EndpointStatus:
        """The endpoint's status once ``holds`` says so."""

        def so_far() -> EndpointStatus | None:
            status = self.status(name)
            return status if holds(status) else None

        return until(f"{name} is as it should be", WAIT_SECONDS, so_far)


@pytest.fixture
def harness(
    tmp_path: Path, mlflow_server: MlflowProcess, triton: TritonProcess
) -> Iterator[ProcessHarness]:
    mlflow.set_tracking_uri(mlflow_server.url)
    made = ProcessHarness(tmp_path, mlflow_server, triton)
    for module in ("controller.main", "registry.loader_main"):
        made.start(module)
    yield made
    for module in list(made.processes):
        assert made.end(module, signal.SIGTERM) == 0


def register(
    name: str, folder: Path, *, seed: int = 0, labels: tuple[str, ...] = ("no", "yes")
) -> None:
    """One version of a tiny ONNX classifier, by the standard client."""
    folder.mkdir(exist_ok=True)
    id2label = {str(place): label for place, label in enumerate(labels)}
    write_json(folder / "config.json", {"id2label": id2label, "max_position_embeddings": 24})
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "held_out.txt").write_text("\n".join(TEXTS))
    files = [str(folder / name) for name in ("config.json", "tokenizer.json")]
    model = classifier(labels=len(labels), seed=seed)
    options: dict[str, Any] = {"extra_files": files, "pip_requirements": ["onnx"]}
    mlflow.set_experiment(name)
    with mlflow.start_run():
        mlflow.log_artifact(str(folder / "held_out.txt"), "evaluation")
        mlflow.onnx.log_model(model, name="model", registered_model_name=name, **options)


def stable(number: str) -> Callable[[EndpointStatus], bool]:
    return lambda status: status.stable is not None and status.stable.version == number


def tags(name: str, number: str) -> dict[str, str]:
    return dict(mlflow.MlflowClient().get_model_version(name, number).tags)


def test_versions_are_served_in_turn_and_a_killed_controller_goes_on(
    harness: ProcessHarness, tmp_path: Path
) -> None:
    harness.serve("walk")
    register("walk", tmp_path / "v1", seed=1)
    first = harness.until("walk", stable("1"))
    register("walk", tmp_path / "v2", seed=2)
    harness.until("walk", lambda status: status.candidate is not None)
    harness.end("controller.main", signal.SIGKILL)
    harness.start("controller.main")
    second = harness.until("walk", stable("2"))
    assert first.stable in second.packages
    until(
        "MLflow says so",
        WAIT_SECONDS,
        lambda: tags("walk", "2").get("headrace.walk.verdict") == "Promoted",
    )
    assert list((tmp_path / "work").iterdir()) == []


def test_a_version_that_breaks_its_callers_says_why_in_mlflow(
    harness: ProcessHarness, tmp_path: Path
) -> None:
    harness.serve("breaks")
    register("breaks", tmp_path / "v1")
    first = harness.until("breaks", stable("1")).stable
    register("breaks", tmp_path / "v2", labels=("no", "yes", "perhaps"))
    status = harness.until("breaks", lambda status: bool(status.rejected))
    reason = status.rejected[0].reason
    assert "stable version" in reason
    assert status.stable == first
    assert status.candidate is not None
    assert status.candidate.phase is Phase.REJECTED
    until(
        "MLflow says why",
        WAIT_SECONDS,
        lambda: tags("breaks", "2").get("headrace.breaks.reason") == reason[:500],
    )
    register("breaks", tmp_path / "v3", seed=3)
    harness.until("breaks", stable("3"))


def test_mlflow_killed_and_back_loses_nothing(
    harness: ProcessHarness, tmp_path: Path, mlflow_server: MlflowProcess
) -> None:
    harness.serve("outage")
    register("outage", tmp_path / "v1", seed=1)
    harness.until("outage", stable("1"))
    mlflow_server.kill9()
    harness.end("controller.main", signal.SIGKILL)
    harness.start("controller.main")
    mlflow_server.start()
    register("outage", tmp_path / "v2", seed=2)
    harness.until("outage", stable("2"))

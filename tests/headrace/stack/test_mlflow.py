"""How the embedded MLflow is started. That it runs is shown in tests/real."""

from pathlib import Path

import pytest

from contracts import telemetry_off
from headrace.stack import mlflow
from headrace.stack.mlflow import LocalMlflowServer


def test_it_is_one_process_on_the_loopback(tmp_path: Path) -> None:
    words = mlflow.command(LocalMlflowServer(tmp_path, 5001))
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--port") + 1] == "5001"
    assert "-P" in words
    assert "--workers" not in words


def test_its_state_lies_in_its_folder_and_its_artifacts_are_served(tmp_path: Path) -> None:
    made = mlflow.environment(LocalMlflowServer(tmp_path), {"KEPT": "yes"})
    assert made["_MLFLOW_SERVER_FILE_STORE"] == f"sqlite:///{tmp_path}/mlflow.db"
    assert made["_MLFLOW_SERVER_ARTIFACT_DESTINATION"] == str(tmp_path / "artifacts")
    assert made["_MLFLOW_SERVER_SERVE_ARTIFACTS"] == "true"
    assert telemetry_off.VARIABLES.items() <= made.items()
    assert made["KEPT"] == "yes"


def test_laying_out_keeps_what_is_there(tmp_path: Path) -> None:
    server = LocalMlflowServer(tmp_path / "mlflow")
    mlflow.lay_out(server)
    (server.artifacts / "kept").touch()
    mlflow.lay_out(server)
    assert (server.artifacts / "kept").exists()


@pytest.mark.slow
def test_the_names_told_to_the_server_are_the_ones_that_it_reads(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.find_spec("mlflow")
    assert spec is not None
    assert spec.origin is not None
    constants = Path(spec.origin).parent / "server" / "constants.py"
    text = constants.read_text(encoding="utf-8")
    for name in mlflow.environment(LocalMlflowServer(tmp_path), {}):
        if name.startswith("_MLFLOW_SERVER"):
            assert f'"{name}"' in text

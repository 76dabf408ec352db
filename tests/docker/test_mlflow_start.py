"""MLflow's container ends with a sentence where its volume can't be written to, and else starts.

Nothing here rests on permissions: tests may run as a user that none of them hold.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headrace.stack import mlflow
from headrace.stack.mlflow import LocalMlflowServer

SCRIPT = Path(__file__).parent.parent.parent / "docker" / "mlflow" / "start.py"
STARTED = "started in place of MLflow"


def start(server: LocalMlflowServer, **more: str) -> subprocess.CompletedProcess[str]:
    """Starts a module in MLflow's place, with the environment that MLflow has."""
    module = server.folder.parent / "stand_in.py"
    module.write_text(f"import sys\nprint({STARTED!r}, sys.argv[1:])\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "stand_in", "--port=5000"],
        env=mlflow.environment(server, {"PYTHONPATH": str(module.parent), **more}),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def a_file_for_the_folder(server: LocalMlflowServer) -> Path:
    server.folder.touch()
    return server.folder


def a_folder_for_the_database(server: LocalMlflowServer) -> Path:
    server.database.mkdir(parents=True)
    return server.database


def another_file_for_the_database(server: LocalMlflowServer) -> Path:
    server.folder.mkdir()
    server.database.write_text("no database" * 100, encoding="utf-8")
    return server.database


def a_file_for_the_artifacts(server: LocalMlflowServer) -> Path:
    server.folder.mkdir()
    server.artifacts.touch()
    return server.artifacts


@pytest.mark.parametrize(
    "spoil",
    [
        a_file_for_the_folder,
        a_folder_for_the_database,
        another_file_for_the_database,
        a_file_for_the_artifacts,
    ],
)
def test_a_volume_that_cannot_be_written_to_is_told_in_one_sentence(
    spoil: Callable[[LocalMlflowServer], Path], tmp_path: Path
) -> None:
    server = LocalMlflowServer(tmp_path / "data")
    place = spoil(server)
    done = start(server)
    assert done.returncode == 1
    assert STARTED not in done.stdout
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"MLflow can't write to {place} as user {os.getuid()} (")
    assert "mlflow.embedded.persistence" in sentence
    assert sentence.endswith(f"that group {os.getgid()} may write to.")


def test_a_file_system_that_takes_no_files_is_told_with_the_systems_reason() -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "platform"],
        env=mlflow.environment(LocalMlflowServer(Path("/proc")), {}),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("MLflow can't write to /proc as user ")
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_volume_and_one_in_use_are_taken_and_the_words_passed_on(tmp_path: Path) -> None:
    server = LocalMlflowServer(tmp_path / "data")
    for _ in range(2):
        done = start(server)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{STARTED} ['--port=5000']\n"
    with closing(sqlite3.connect(server.database)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
        connection.execute("BEGIN EXCLUSIVE")  # as the pod before it might, for a moment
        assert start(server).returncode == 0


def test_a_database_elsewhere_is_left_to_mlflow(tmp_path: Path) -> None:
    server = LocalMlflowServer(tmp_path / "data")
    elsewhere = {"_MLFLOW_SERVER_FILE_STORE": "postgresql://db/mlflow"}
    environment = mlflow.environment(server, {"PYTHONPATH": str(tmp_path)}) | elsewhere
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), "platform"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert not server.database.exists()

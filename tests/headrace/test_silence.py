"""Whatever takes over a second without a word says on standard error what it waits for."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import write_kubeconfig
from waiting import until

from headrace import program
from headrace.cli import whole_program
from headrace.stack.state import Home


def leaves(command: Any, path: str = "headrace") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        yield from leaves(each, f"{path} {name}")


COMMANDS = dict(leaves(whole_program()))


@pytest.fixture
def hanging() -> Iterator[str]:
    """A server that takes connections, and answers nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_says_what_it_waits_for(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def hang(**_: object) -> None:
        told.append(until("it is said", 60, lambda: capsys.readouterr().err))

    monkeypatch.setattr(program, "SILENT_SECONDS", 0.0)
    command = COMMANDS[path]
    monkeypatch.setattr(command, "callback", hang)
    with command.make_context(path, [], resilient_parsing=True) as context:
        command.invoke(context)
    assert "".join(told) == f"Waiting: {path} ...\n"


def test_programs_are_told_nothing_but_an_error(hanging: str, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path, hanging)
    words = ["get", "-o", "json", "--kubeconfig", str(config)]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", *words], stderr=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stderr is not None
        (said,) = asked.stderr.readlines()
    assert json.loads(said)["error"]["exit_status"] == asked.returncode


@pytest.mark.parametrize(
    ("line", "waited"),
    [
        ("models --mlflow-uri URL --home HOME", "MLflow at URL has 20 s to answer"),
        ("predict e a --url URL --home HOME", "the gateway at URL has 60 s to answer"),
        ("get --kubeconfig CONFIG", "the cluster's API server"),
    ],
)
def test_a_server_that_hangs_is_named(hanging: str, tmp_path: Path, line: str, waited: str) -> None:
    home = Home(tmp_path)
    home.marker.touch()
    home.endpoints.mkdir()
    config = write_kubeconfig(tmp_path, hanging)
    words = [
        {"URL": hanging, "HOME": str(tmp_path), "CONFIG": str(config)}.get(word, word)
        for word in line.split()
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", *words], stderr=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stderr is not None
        try:
            assert asked.stderr.readline() == f"Waiting: {waited.replace('URL', hanging)} ...\n"
        finally:
            asked.kill()


def test_each_change_is_said_once_it_is_slow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SILENT_SECONDS", 0.0)
    with program.slow("MLflow"):
        told = until("it is said", 60, lambda: capsys.readouterr().err)
        program.say_wait("Kafka")
        program.say_wait("Kafka")
    program.say_wait("nobody")
    assert told + capsys.readouterr().err == "Waiting: MLflow ...\nWaiting: Kafka ...\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_who_has_written_something_is_not_silent(
    stream: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SILENT_SECONDS", 3600.0)
    with program.slow("MLflow"):
        getattr(sys, stream).write("a")
        (timer,) = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
        timer.join(60)
        assert not timer.is_alive()
    assert "MLflow" not in capsys.readouterr().err

"""``headrace up`` as a newcomer meets it, on the real parts: from an empty folder to its end.

What a killed service of it costs, and that it is started again, is in ``tests/stack``.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos.processes import descendants
from own_ports import own_ports
from running_stack import (
    EXAMPLE_ENDPOINT,
    HEADRACE,
    PORTS,
    RunningStack,
    labels_of,
    running_stack,
)
from waiting import until

from headrace.stack.ports import is_free
from headrace.stack.state import claim_home

pytestmark = pytest.mark.real

SERVICES = {"mlflow", "kafka", "triton", "loader", "controller", "fold", "stats", "gateway"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(tmp_path_factory.mktemp("up") / "home") as stack:
        until("it says what to try", 120, lambda: "Try it" in stack.output.read_text())
        yield stack


@pytest.fixture
def first(shared: RunningStack) -> RunningStack:
    """A stack with one of each part, for all tests of this module; who ended it finds it again."""
    if shared.process.poll() is not None:
        shared.start()
    return shared


def printed(stack: RunningStack, begins: str) -> list[str]:
    """The words of the command that ``up`` printed and that begins so."""
    lines = stack.output.read_text().splitlines()
    return shlex.split(next(line.strip() for line in lines if begins in line))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_all_services_run_and_the_printed_curl_line_answers(first: RunningStack) -> None:
    record = first.record()
    assert record is not None
    assert set(record.services) == SERVICES
    until(
        "the line is answered", 120, lambda: labels_of(*printed(first, "curl -s")) == ["positive"]
    )


def test_the_commands_say_what_runs(first: RunningStack) -> None:
    status = json.loads(first.command("status", "--json").stdout)
    assert status["running"]
    assert [item["metadata"]["name"] for item in status["endpoints"]] == [EXAMPLE_ENDPOINT]
    (line,) = json.loads(first.command("models", "--json").stdout)
    assert (line["version"], line["state"]) == ("1", "Serving")
    predict = HEADRACE, "predict", EXAMPLE_ENDPOINT, "dull", "wonderful", "--json"
    until(
        "the texts are answered",
        120,
        lambda: labels_of(*predict, env=first.env) == ["negative", "positive"],
    )
    refused = first.command("predict", "nobody", "text")
    assert refused.returncode != 0
    assert "nobody" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_second_up_on_the_home_is_refused_and_harms_nothing(first: RunningStack) -> None:
    before = first.record()
    refused = first.command("up")
    assert refused.returncode == 5
    assert "already runs" in refused.stderr
    assert first.record() == before
    first.until_answers(EXAMPLE_ENDPOINT)


def test_a_taken_port_is_named_and_nothing_is_left_running(
    first: RunningStack, tmp_path: Path
) -> None:
    port = first.ports["mlflow"]
    refused = first.command("up", "--home", str(tmp_path / "other"), f"--port-mlflow={port}")
    assert refused.returncode == 4
    assert str(port) in refused.stderr
    assert "--port-mlflow" in refused.stderr


def shown(stack: RunningStack, version: str) -> str:
    """A version's state, as ``headrace models`` shows it; empty before it is known."""
    lines = json.loads(stack.command("models", "--json").stdout)
    return next((line["state"] for line in lines if line["version"] == version), "")


def routed(stack: RunningStack) -> list[tuple[str, str, float]]:
    """Arm, version and weight of each route of the example's endpoint."""
    status = json.loads(stack.command("status", "--json").stdout)
    routes = status["endpoints"][0]["status"]["routes"]
    return [(route["arm"], route["ref"]["version"], route["weight"]) for route in routes]


def test_a_second_version_rolls_out_as_printed_survives_ctrl_c_and_a_killed_up_leaves_nothing(
    first: RunningStack,
) -> None:
    subprocess.run(
        printed(first, "--variant"), check=True, timeout=300, capture_output=True, cwd=first.home
    )
    until("version 2 is in shadow", 600, lambda: shown(first, "2") == "Shadow")
    in_shadow = [("stable", "1", 100), ("shadow", "2", 100)]
    assert routed(first) == in_shadow
    looked = [word for word in printed(first, "rollout status") if word != "--watch"]
    said = subprocess.run(looked, capture_output=True, text=True, check=True, timeout=300)
    assert "with traffic of the stable version are known" in " ".join(said.stdout.split())

    with bystander() as other:
        below = descendants(first.process.pid)
        assert len(below) > len(SERVICES)
        assert first.stop() == 0
        assert not [pid for pid in below if alive(pid)]
        assert other.poll() is None
    assert all(is_free(port) for port in first.ports.values())
    assert first.record() is None
    before = first.output.read_text()
    assert before.rstrip().endswith("Stopped.")

    first.start()
    # A rollout without traffic stands where it stood; a person can end it.
    until("version 2 is in shadow again", 300, lambda: len(routed(first)) == 2)
    assert routed(first) == in_shadow
    first.until_answers(EXAMPLE_ENDPOINT)
    promote = printed(first, "rollout promote")
    subprocess.run(promote, check=True, timeout=300, capture_output=True)
    until("version 2 has the callers", 300, lambda: routed(first)[0] == ("stable", "2", 95))
    first.until_answers(EXAMPLE_ENDPOINT)
    below = descendants(first.process.pid)
    first.process.kill()
    until("all are gone", 300, lambda: not [pid for pid in below if alive(pid)])
    # Not a second time.
    assert "registered in MLflow" not in first.output.read_text().removeprefix(before)


def test_a_half_written_state_is_a_sentence(tmp_path: Path) -> None:
    with claim_home(tmp_path) as home:
        endpoint = home.endpoints / f"{EXAMPLE_ENDPOINT}.json"
        endpoint.write_text('{"metadata": {"name": "sen', encoding="utf-8")
    refused = subprocess.run(
        [HEADRACE, "up", "--home", str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "HEADRACE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert refused.returncode == 6
    assert endpoint.name in refused.stderr
    assert "Traceback" not in refused.stderr


def test_ctrl_c_while_starting_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ports = zip(PORTS, own_ports(len(PORTS)), strict=True)
    flags = [f"--port-{name}={port}" for name, port in ports]
    with subprocess.Popen(
        [HEADRACE, "up", "--home", str(home), *flags],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as up:  # fmt: skip
        try:
            until("a service runs", 120, (home / "logs" / "mlflow.log").exists)
            below = descendants(up.pid)
            up.send_signal(signal.SIGINT)
            said, _ = up.communicate(timeout=120)
        finally:
            up.kill()
    assert up.returncode == 130
    assert "Stopped before" in said
    assert not [pid for pid in below if alive(pid)]


@contextmanager
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that the stack did not start."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            yield other
        finally:
            other.send_signal(signal.SIGKILL)

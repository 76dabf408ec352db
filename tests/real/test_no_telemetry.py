"""No library reports to its maker.

The kernel tells what a process connects to: libraries in C++ pass by all that Python could show.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import mlflow
import pytest
from tiny_models import TEXTS, classifier, tokenizer

from headrace.stack.mlflow import MlflowProcess
from registry.conversions.messages import ConversionRequest
from service.no_telemetry import NO_TELEMETRY

STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
    pytest.mark.skipif(STRACE is None, reason="strace is not on PATH"),
]


def addresses(trace: str) -> set[str]:
    """Every address on a network to which something was sent, or a connection begun."""
    found = re.findall(
        r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([0-9a-f.:]+)"', trace
    )
    return {f"{host}:{port}" for port, host in found}


def traced(folder: Path, *command: str) -> set[str]:
    """The addresses that a command and its children connect to, in a home folder of their own."""
    home, trace = folder / "home", folder / "trace.txt"
    home.mkdir()
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    environment = {name: value for name, value in os.environ.items() if name not in NO_TELEMETRY}
    subprocess.run(
        [str(STRACE), "-f", "-qq", "-e", calls, "-o", str(trace), *command],
        env={**environment, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        check=True,
        timeout=300,
    )
    assert not [each for each in home.rglob("*") if each.is_file()]
    return addresses(trace.read_text(encoding="utf-8", errors="replace"))


def test_a_conversion_connects_to_mlflow_and_to_nobody_else(
    mlflow_server: MlflowProcess, tmp_path: Path
) -> None:
    mlflow.set_tracking_uri(mlflow_server.url)
    mlflow.set_experiment("quiet")
    texts, words = tmp_path / "held_out.jsonl", tmp_path / "tokenizer.json"
    texts.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    tokenizer().save(str(words))
    with mlflow.start_run():
        mlflow.log_artifact(str(texts), "evaluation")
        mlflow.log_artifact(str(words), "tokenizer")
        mlflow.onnx.log_model(
            classifier(labels=2), name="model", registered_model_name="quiet",
            pip_requirements=["onnx"],
        )  # fmt: skip
    (tmp_path / "work").mkdir()
    request = ConversionRequest.model_validate(
        {
            "tracking_uri": mlflow_server.url,
            "model": "quiet",
            "version": "1",
            "store_url": (tmp_path / "store").as_uri(),
            "serving": {},
            "work_dir": str(tmp_path / "work"),
        }
    )
    asked, result = tmp_path / "request.json", tmp_path / "result.json"
    asked.write_text(request.model_dump_json())
    command = (sys.executable, "-P", "-m", "registry.convert", str(asked), str(result))
    connected = traced(tmp_path, *command)
    assert json.loads(result.read_text())["kind"] == "published"
    assert connected == {urlsplit(mlflow_server.url).netloc}


GATEWAY = """
import os, signal, sys, threading, time
from gateway import main
def end():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.1)
    time.sleep(3)  # what it would send, it sends in this time
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
sys.exit(main.main(sys.argv[1:]))
"""


def test_a_gateway_that_nothing_was_named_to_connects_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    flags = ("--engine", "echo", "--http-port", "0", "--grpc-port", "0", "--operations-port", "0")
    command = (sys.executable, "-P", "-c", GATEWAY, "--home", str(tmp_path / "gateway"), *flags)
    assert traced(tmp_path, *command) == set()


def test_without_the_variable_onnx_runtime_leaves_files_in_the_home_folder(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [sys.executable, "-P", "-c", "import onnxruntime, time; time.sleep(3)"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        check=True,
        timeout=60,
    )
    assert [each for each in tmp_path.rglob("*") if each.is_file()]

"""The process of a model that writes, started as Triton's Python backend starts it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from tiny_models import decoder

from contracts import gpu_faults
from registry.packages import token_rules
from registry.packages.triton_files import triton_file

pytestmark = pytest.mark.real

# Triton's own module, as far as the model uses it.
BACKEND = """
import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

class Tensor:
    from_dlpack = staticmethod(lambda name, capsule: (name, capsule))

class TritonError(str):
    pass

class InferenceResponse:
    def __init__(self, tensors=(), error=None):
        self.error = error

def get_input_tensor_by_name(request, name):
    return request.tensors.get(name)
"""
# A request whose first response can't be sent, and one behind it.
ASKS = """
import json, sys, time
import numpy as np
import model

class Request:
    tensors = {"input_ids": np.array([[2, 3]]), "max_tokens": np.array([[4]], np.int32)}

    def get_response_sender(self):
        return self

    def is_cancelled(self):
        return False

    def send(self, response=None, flags=0):
        print("sends", flush=True)
        if sys.argv[2] == "broken":
            raise RuntimeError("no shared memory is left")

loaded = model.TritonPythonModel()
config = json.dumps({"parameters": {"rows": {"string_value": "1"}}})
loaded.initialize({
    "model_config": config, "model_repository": sys.argv[1], "model_version": "1",
    "model_instance_kind": "CPU", "model_instance_device_id": "0",
})
loaded.execute([Request(), Request()])
if sys.argv[2] == "broken":
    time.sleep(60)
loaded.finalize()
print("goes on", flush=True)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A model's folder, with what runs it beside the graph."""
    folder = tmp_path / "1"
    folder.mkdir()
    onnx.save(decoder(), folder / "model.onnx")
    shutil.copy(triton_file("generation_model"), folder / "model.py")
    shutil.copy(triton_file("python_model"), folder / "python_model.py")
    for beside in (token_rules, gpu_faults):
        shutil.copy(str(beside.__file__), folder)
    (folder / "triton_python_backend_utils.py").write_text(BACKEND)
    (folder / "asks.py").write_text(ASKS)
    return tmp_path


def run(repository: Path, how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, repository / "1" / "asks.py", repository, how],
        env={key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_generating_thread_that_fails_ends_its_process_and_says_why(repository: Path) -> None:
    ended = run(repository, "broken")
    assert ended.returncode == 1
    assert "goes on" not in ended.stdout
    assert "the generating thread failed" in ended.stderr
    assert "no shared memory is left" in ended.stderr


def test_one_that_is_told_to_end_ends_nothing(repository: Path) -> None:
    ended = run(repository, "well")
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["goes on"]), ended.stderr

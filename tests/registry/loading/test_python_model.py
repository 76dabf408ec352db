"""``triton/python_model`` on the device that it was promised, or not at all."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gpu_messages import OF_ALL
from loaded_script import loaded
from tiny_models import classifier
from waiting import until

from contracts import gpu_faults
from registry.loading import devices, refusals
from registry.packages import token_rules
from registry.packages.triton_files import triton_file


@pytest.fixture
def model() -> Iterator[ModuleType]:
    """The module, with a small one in the place of Triton's own."""
    before = set(sys.modules)
    backend = ModuleType("triton_python_backend_utils")
    backend.__dict__.update(
        InferenceResponse=SimpleNamespace,
        TritonError=str,
        get_input_tensor_by_name=lambda request, name: request[name],
    )
    sys.modules["triton_python_backend_utils"] = backend
    yield loaded(triton_file("python_model"))
    for name in sys.modules.keys() - before:
        if name in {"triton_python_backend_utils", "python_model_model"}:
            del sys.modules[name]


def test_it_says_what_the_loader_knows_for_the_machines_fault(model: ModuleType) -> None:
    assert model.CANT_USE == devices.CANT_USE
    assert not refusals.is_version_fault(f"TritonModelException: {model.CANT_USE}: why")


def test_a_cpu_gets_the_provider_of_cpus(model: ModuleType) -> None:
    assert model.providers("CPU", "0") == ["CPUExecutionProvider"]


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="this ONNX Runtime has CUDA",
)
def test_a_gpu_without_cuda_in_onnx_runtime_is_refused_and_no_cpu_taken(
    model: ModuleType,
) -> None:
    with pytest.raises(RuntimeError, match="can't use a GPU: its Python has an ONNX Runtime wi"):
        model.providers("GPU", "0")


def test_float32_is_float32_on_a_gpu(model: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = "CUDAExecutionProvider"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [cuda])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    (name, options), cpu = model.providers("GPU", "1")
    assert (name, cpu) == (cuda, "CPUExecutionProvider")
    # Else ONNX Runtime keeps ten bits of each factor, and the limits of fp32 are not kept to.
    assert options == {"device_id": 1, "use_tf32": 0}


def test_a_session_that_left_cuda_out_is_refused(model: ModuleType, tmp_path: Path) -> None:
    graph = tmp_path / "model.onnx"
    graph.write_bytes(classifier().SerializeToString())
    options = model.session_options(1)
    assert model.open_session(graph, options, ["CPUExecutionProvider"]).get_providers()
    # As ONNX Runtime does for want of a library: it goes on with the provider that is left.
    left_out = [("CUDAExecutionProvider", {"device_id": 7}), "CPUExecutionProvider"]
    refused = pytest.raises(RuntimeError, match="could not start it")
    with refused, warnings.catch_warnings(action="ignore"):  # it says that it has none such
        model.open_session(graph, options, left_out)


class FailingSession:
    """A session that says some words at each run."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.runs = 0

    def run(self, _outputs: Any, _feed: Any) -> Any:
        self.runs += 1
        raise RuntimeError(self.words)


def instance(module: ModuleType, session: FailingSession, ended: list[str]) -> Any:
    """An instance of the model that runs on ``session``, and notes why its process ends."""
    made = module.TritonPythonModel()
    made.inputs, made.outputs, made.session = ["input_ids"], ["logits"], session
    made.heartbeat = module.Heartbeat(ended.append)
    return made


def requests(*lengths: int) -> list[dict[str, np.ndarray]]:
    """A request of each length: none of them can be joined."""
    return [{"input_ids": np.ones((1, length), np.int64)} for length in lengths]


@pytest.mark.parametrize(("name", "words"), OF_ALL)
def test_after_a_fault_of_the_gpu_nobody_is_answered_and_the_process_ends(
    model: ModuleType, name: str, words: str
) -> None:
    del name
    ended: list[str] = []
    session = FailingSession(words)
    served = instance(model, session, ended)
    said = [response.error for response in served.execute(requests(3, 4))]
    if not gpu_faults.ends_process(words):
        assert said == [f"engine: {words}"] * 2
        assert served.heartbeat.lost == ""
        return
    assert said == [f"Stub process ends: the GPU can't be used any more: {words}"] * 2
    assert session.runs == 1
    # What comes before it has ended is not run either.
    assert [response.error for response in served.execute(requests(3))] == said[:1]
    assert session.runs == 1
    served.heartbeat.start()
    until("the process ends", 30.0, lambda: ended)
    served.heartbeat.stop()
    assert words in ended[0]


@pytest.mark.real  # starts a process
@pytest.mark.parametrize("name", ["python_model", "generation_model"])
def test_onnx_runtime_keeps_no_device_id_below_the_home_folder(name: str, tmp_path: Path) -> None:
    """Also in a Triton of one's own, whose environment says nothing of it."""
    graph, home = tmp_path / "model.onnx", tmp_path / "home"
    graph.write_bytes(classifier().SerializeToString())
    home.mkdir()
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "triton_python_backend_utils.py").write_text("")
    shutil.copy(triton_file("python_model"), modules / "python_model.py")
    for beside in (token_rules, gpu_faults):
        shutil.copy(str(beside.__file__), modules)
    shutil.copy(triton_file(name), modules / "asked.py")
    session = f"asked.ort.InferenceSession({str(graph)!r}, providers=asked.providers('CPU', '0'))"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(modules)}
    program = [sys.executable, "-P", "-c", f"import asked; {session}"]
    subprocess.run(program, check=True, timeout=180, env=environment)
    assert list(home.rglob("*")) == []

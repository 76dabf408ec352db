"""What ``triton/device_probe`` says of a machine, by an NVML whose answers are known."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from loaded_script import loaded

from registry.loading.devices import Seen
from registry.packages.triton_files import triton_file

GIB = 1 << 30


class FakeNvml:
    """NVML of a machine with some GPUs, each with a UUID, free bytes and a share of busy time.

    ``refuses`` are functions that fail.
    """

    def __init__(self, *gpus: tuple[str, int, int], refuses: tuple[str, ...] = ()) -> None:
        self.gpus = gpus
        self.refuses = refuses
        self.closed = 0
        self.nvmlErrorString = ErrorString()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name in self.refuses:
                return 9
            return int(getattr(self, f"_{name}")(*arguments) or 0)

        return call

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's own name
        self.closed += 1

    def _nvmlInit_v2(self) -> None:  # noqa: N802
        return

    def _nvmlSystemGetDriverVersion(self, text: Any, _: int) -> None:  # noqa: N802
        text.value = b"580.95.05"

    def _nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> None:  # noqa: N802
        number._obj.value = 13020

    def _nvmlDeviceGetCount_v2(self, number: Any) -> None:  # noqa: N802
        number._obj.value = len(self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:  # noqa: N802
        handle._obj.value = index.value + 1

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, _: int) -> None:  # noqa: N802
        text.value = self.gpus[handle.value - 1][0].encode()

    def _nvmlDeviceGetName(self, handle: Any, text: Any, _: int) -> None:  # noqa: N802
        text.value = b"NVIDIA H200"

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:  # noqa: N802
        memory._obj.total, memory._obj.free = 140 * GIB, self.gpus[handle.value - 1][1]

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, used: Any) -> None:  # noqa: N802
        used._obj.gpu = self.gpus[handle.value - 1][2]


class ErrorString:
    """``nvmlErrorString``, whose type of answer is set like that of a real one."""

    restype: Any = None

    def __call__(self, code: int) -> bytes:
        return f"error {code}".encode()


@pytest.fixture
def probe() -> Iterator[ModuleType]:
    """The module, with an empty one in the place of Triton's own."""
    before = set(sys.modules)
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    yield loaded(triton_file("device_probe"))
    for name in sys.modules.keys() - before:
        if name in {"triton_python_backend_utils", "device_probe_model"}:
            del sys.modules[name]


TWO = (("GPU-a", 100 * GIB, 30), ("GPU-b", 90 * GIB, 70))


def seen(probe: ModuleType, nvml: FakeNvml, **environment: str) -> Seen:
    """What a loader makes of what the probe says."""
    return Seen.of(probe.device(environment, lambda _: nvml))


def test_a_gpu_is_told_with_its_memory_its_driver_and_how_busy_it_is(probe: ModuleType) -> None:
    nvml = FakeNvml(*TWO)
    found = seen(probe, nvml)
    device = found.device
    assert (device.kind, device.name, device.count) == ("gpu", "NVIDIA H200", 2)
    assert (device.memory_bytes, device.free_bytes) == (140 * GIB, 90 * GIB)
    assert device.busy == 0.5
    assert (device.driver, found.cuda, found.why) == ("580.95.05", "13.2", "")
    assert nvml.closed == 1


def test_a_gpu_that_can_not_say_how_busy_it_is_is_one_all_the_same(probe: ModuleType) -> None:
    found = seen(probe, FakeNvml(*TWO, refuses=("nvmlDeviceGetUtilizationRates",)))
    assert (found.device.kind, found.device.busy) == ("gpu", 0.0)


@pytest.mark.parametrize(
    ("nvml", "why"),
    [
        (FakeNvml(*TWO, refuses=("nvmlInit_v2",)), "the driver does not answer: nvmlInit_v2"),
        (FakeNvml(*TWO, refuses=("nvmlDeviceGetMemoryInfo",)), "error 9"),
        (FakeNvml(), "the driver has no GPU"),
    ],
)
def test_a_gpu_that_can_not_be_used_is_told_with_the_reason(
    probe: ModuleType, nvml: FakeNvml, why: str
) -> None:
    found = seen(probe, nvml)
    assert found.device.kind == "cpu"
    assert why in found.why


def test_a_machine_without_a_driver_is_a_cpu(probe: ModuleType) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    found = Seen.of(probe.device({}, missing))
    assert found.device.kind == "cpu"
    assert "libnvidia-ml.so.1 is not here" in found.why


@pytest.mark.parametrize(
    ("allowed", "count"), [("0", 1), ("GPU-b", 1), ("1,0", 2), ("GPU-b,-1,0", 1), ("MIG-x", 1)]
)
def test_gpus_that_cuda_is_not_shown_do_not_count(
    probe: ModuleType, allowed: str, count: int
) -> None:
    assert seen(probe, FakeNvml(*TWO), CUDA_VISIBLE_DEVICES=allowed).device.count == count


@pytest.mark.parametrize("allowed", ["", "-1", "7", "NoDevFiles"])
def test_a_machine_whose_gpus_are_all_hidden_is_a_cpu(probe: ModuleType, allowed: str) -> None:
    found = seen(probe, FakeNvml(*TWO), CUDA_VISIBLE_DEVICES=allowed)
    assert found.device.kind == "cpu"
    assert "hides every GPU" in found.why


def test_packages_tell_the_cuda_that_they_were_built_for(
    probe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '13.2'\n")
    capi = tmp_path / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("torch", "onnxruntime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert probe.packages() == {"torch": "13.2", "onnxruntime": ""}
    (capi / "libonnxruntime_providers_cuda.so").write_bytes(b"")
    assert probe.packages()["onnxruntime"] == "any"
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    assert probe.packages()["torch"] == ""

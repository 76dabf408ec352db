"""What a loader learns of a real GPU, and which packages it lets run there."""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from registry_fakes import manifest

from contracts.endpoint import Precision
from contracts.gpu_faults import is_broken
from contracts.loading import DeviceKind
from contracts.manifest import EngineKind
from registry.errors import DeviceUnfitError
from registry.loading.devices import Devices, Promise
from registry.loading.triton_client import Overrides
from registry.packages.triton_files import triton_file

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def probe() -> Iterator[ModuleType]:
    """``triton/device_probe``, as a module; of Triton it needs only the name of a package."""
    fake = "triton_python_backend_utils"
    spec = importlib.util.spec_from_file_location("probe", triton_file("device_probe"))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[fake] = ModuleType(fake)
    spec.loader.exec_module(made)
    yield made
    del sys.modules[fake]


class Answering:
    """A Triton whose probe has said this."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    async def load(self, name: str, overrides: Overrides) -> None:
        raise AssertionError("it is there")

    async def unload(self, name: str) -> None:
        raise AssertionError("it stays")

    async def ask(self, name: str) -> bytes:
        return json.dumps(self._told).encode()


def test_the_probe_knows_the_gpu_that_torch_knows(probe: ModuleType) -> None:
    import torch

    found = probe.device(os.environ)
    assert (found["kind"], found["count"]) == ("gpu", torch.cuda.device_count())
    assert found["name"] == torch.cuda.get_device_name(0)
    assert 0 < found["free_bytes"] <= found["memory_bytes"]
    assert torch.cuda.get_device_properties(0).total_memory <= found["memory_bytes"]
    assert 0 <= found["busy"] <= 1
    assert probe.packages()["torch"] == torch.version.cuda


def test_the_driver_tells_its_errors_from_now_on_and_has_none_that_needs_repair(
    probe: ModuleType,
) -> None:
    xids = probe.Xids()
    for _ in range(2):
        found = xids.look(os.environ)
        assert [is_broken(f"Xid {number}") for number in found["xids"]].count(True) == 0


def test_a_gpu_that_is_hidden_is_none_with_the_reason(probe: ModuleType) -> None:
    found = probe.device({**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert found["kind"] == "cpu"
    assert "CUDA_VISIBLE_DEVICES" in found["fault"]


async def test_a_loader_puts_packed_packages_there_and_refuses_int8(probe: ModuleType) -> None:
    told = probe.device(os.environ) | probe.packages()
    devices = Devices(Answering(told), lambda _: {}, Promise.GPU)
    await devices.look()
    packed = manifest().model_copy(update={"engine": EngineKind.PACKED})
    int8 = manifest().model_copy(update={"precision": Precision.INT8})
    assert devices.kind_for(packed, "python") is DeviceKind.GPU
    with pytest.raises(DeviceUnfitError, match="int8 has no kernels on a GPU"):
        devices.kind_for(int8, "python")


async def test_a_loader_that_was_promised_a_hidden_gpu_refuses_with_the_reason(
    probe: ModuleType,
) -> None:
    hidden = probe.device({**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    devices = Devices(Answering(hidden | probe.packages()), lambda _: {}, Promise.GPU)
    await devices.look()
    packed = manifest().model_copy(update={"engine": EngineKind.PACKED})
    with pytest.raises(DeviceUnfitError, match="CUDA_VISIBLE_DEVICES"):
        devices.kind_for(packed, "python")

"""What a loader makes of what a Triton computes with."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from registry_fakes import manifest

from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from contracts.manifest import EngineKind, Manifest, PyfuncSpec
from registry.errors import (
    DeviceUnfitError,
    ModelProcessGoneError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading import refusals
from registry.loading.devices import PROBE_MODEL, Devices, Promise
from registry.loading.triton_client import Overrides

GPU = {
    "kind": "gpu",
    "name": "NVIDIA H200",
    "count": 1,
    "memory_bytes": 140,
    "free_bytes": 100,
    "busy": 0.5,
    "driver": "580.95.05",
    "cuda": "13.0",
    "onnxruntime": "13.0",
    "torch": "13.2",
}
CPU = {"kind": "cpu", "fault": "the driver's library is not here", "torch": "13.2"}
PADDED = manifest()
INT8 = PADDED.model_copy(update={"precision": Precision.INT8})
PACKED = PADDED.model_copy(update={"engine": EngineKind.PACKED})
PYFUNC = PADDED.model_copy(
    update={"pyfunc": PyfuncSpec(python="3.11", example=(1.0,), model_bytes=1, site_bytes=1)}
)


@dataclass
class Machine:
    """A Triton whose probe says what ``told`` is, once it is loaded."""

    told: dict[str, Any]
    loaded: bool = False
    gone: bool = False
    down: bool = False
    refuses: bool = False
    calls: list[str] = field(default_factory=list)
    time: float = 0.0

    def place(self, name: str) -> Overrides:
        self.calls.append(f"place {name}")
        return {"config": "of the probe"}

    async def load(self, name: str, overrides: Overrides) -> None:
        assert overrides == {"config": "of the probe"}
        if self.loaded:
            return  # Triton does nothing about one that it holds
        self.calls.append(f"load {name}")
        if self.refuses:
            raise TritonRefusedError("no Python backend")
        self.loaded = True

    async def unload(self, name: str) -> None:
        self.calls.append(f"unload {name}")
        self.loaded = self.gone = False

    async def ask(self, name: str) -> bytes:
        if self.gone:
            raise ModelProcessGoneError("Stub process is not healthy")
        if self.down:
            raise TritonUnavailableError("connection refused")
        if not self.loaded:
            raise TritonRefusedError("unknown model")
        self.calls.append(f"ask {name}")
        return json.dumps(self.told).encode()

    async def devices(self, promise: Promise = Promise.AUTO) -> Devices:
        """That have looked once."""
        found = Devices(self, self.place, promise, clock=lambda: self.time)
        await found.look()
        return found


async def test_the_probe_is_brought_once_and_asked_when_it_is_due() -> None:
    machine = Machine(GPU)
    devices = await machine.devices()
    first = [f"place {PROBE_MODEL}", f"load {PROBE_MODEL}", f"ask {PROBE_MODEL}"]
    assert machine.calls == first
    await devices.look()
    assert machine.calls == first
    machine.time = 10.0
    machine.told = {**GPU, "free_bytes": 60}
    await devices.look()
    assert machine.calls == [*first, f"ask {PROBE_MODEL}"]
    assert devices.free_bytes() == 60
    machine.told = {**GPU, "free_bytes": 40}
    await devices.look(now=True)
    assert devices.free_bytes() == 40


async def test_a_probe_that_answers_late_takes_nothing_away_and_ends_no_pass() -> None:
    machine = Machine(GPU)
    devices = await machine.devices(Promise.GPU)
    machine.down = True
    await devices.look(now=True)
    assert devices.fault() == ""
    assert devices.kind_for(PADDED, "python") is DeviceKind.GPU


HIDDEN = {"kind": "cpu", "fault": "CUDA_VISIBLE_DEVICES= hides every GPU"}
SILENT = {"kind": "cpu", "fault": "the driver does not answer: nvmlInit_v2", "unsure": True}


@pytest.mark.parametrize("told", [CPU, HIDDEN, SILENT])
async def test_a_gpu_that_was_seen_is_none_only_after_three_looks_in_a_row_without_it(
    told: dict[str, Any],
) -> None:
    machine = Machine(GPU)
    devices = await machine.devices()
    kinds = []
    for says in (told, told, GPU, told, told, told):
        machine.told = says
        machine.time += 10.0
        await devices.look()
        kinds.append(devices.kind_for(PADDED, "python"))
    assert kinds == [DeviceKind.GPU] * 5 + [DeviceKind.CPU]


async def test_a_gpu_that_is_missed_is_looked_for_again_soon() -> None:
    machine = Machine(GPU)
    devices = await machine.devices()
    machine.told = SILENT
    for machine.time in (10.0, 11.0, 11.5, 12.0):
        await devices.look()
    assert machine.calls.count(f"ask {PROBE_MODEL}") == 1 + 3


async def test_a_driver_that_fails_to_answer_once_makes_no_cpu_of_a_machine() -> None:
    machine = Machine(SILENT)
    devices = await machine.devices()
    assert devices.kind_for(PADDED, "python") is None
    assert devices.device is None
    machine.time, machine.told = 1.0, GPU
    await devices.look()
    assert devices.kind_for(PADDED, "python") is DeviceKind.GPU


async def test_a_driver_that_never_answers_makes_a_cpu_of_a_machine() -> None:
    machine = Machine(SILENT)
    devices = await machine.devices()
    for machine.time in (1.0, 2.0):
        await devices.look()
    assert devices.kind_for(PADDED, "python") is DeviceKind.CPU
    machine.time = 3.0
    await devices.look()
    assert devices.kind_for(PADDED, "python") is DeviceKind.CPU


async def test_a_machine_without_a_driver_is_a_cpu_at_once() -> None:
    assert (await Machine(CPU).devices()).kind_for(PADDED, "python") is DeviceKind.CPU


async def test_what_models_hold_of_a_gpu_is_told_by_name_where_the_driver_says_it() -> None:
    machine = Machine({**GPU, "held": {"m": 700, "": 30}})
    devices = await machine.devices()
    assert (devices.held_bytes("m"), devices.held_bytes("other")) == (700, None)
    assert (await Machine(GPU).devices()).held_bytes("m") is None


async def test_the_share_of_useful_work_is_told_in_steps() -> None:
    device = (await Machine({**GPU, "useful": 0.934}).devices()).device
    assert device is not None
    assert device.useful == pytest.approx(0.95)
    device = (await Machine(GPU).devices()).device
    assert device is not None
    assert device.useful is None


async def test_a_triton_that_came_back_is_brought_the_probe_again_at_once() -> None:
    machine = Machine(GPU)
    devices = await machine.devices()
    machine.loaded = False
    devices.away()
    await devices.look()
    assert machine.calls.count(f"load {PROBE_MODEL}") == 2


async def test_a_triton_that_refuses_the_probe_is_asked_less_often() -> None:
    machine = Machine(GPU, refuses=True)
    devices = await machine.devices()
    for machine.time in (10.0, 59.0):
        await devices.look()
    assert machine.calls.count(f"load {PROBE_MODEL}") == 1
    machine.time, machine.refuses = 60.0, False
    await devices.look()
    assert devices.free_bytes() == 100


async def test_a_probe_whose_process_ended_is_brought_anew() -> None:
    machine = Machine(GPU)
    devices = await machine.devices()
    machine.gone = True
    machine.told = {**GPU, "free_bytes": 60}
    await devices.look(now=True)
    assert devices.free_bytes() == 60
    assert machine.calls[-4:] == [
        f"{what} {PROBE_MODEL}" for what in ("unload", "place", "load", "ask")
    ]


async def test_a_report_tells_the_gpu() -> None:
    told = {**GPU, "memory_bytes": 140_000_000_000, "free_bytes": 90_000_000_000, "busy": 0.5}
    device = (await Machine(told).devices()).device
    assert device is not None
    assert (device.kind, device.name, device.free_bytes) == (
        DeviceKind.GPU,
        "NVIDIA H200",
        90_000_000_000,
    )
    assert (device.busy, device.driver, device.fault) == (0.5, "580.95.05", "")


async def test_a_report_does_not_change_with_every_byte_and_per_cent() -> None:
    machine = Machine({**GPU, "free_bytes": 90_020_000_000, "busy": 0.51})
    devices = await machine.devices()
    before = devices.device
    machine.told = {**GPU, "free_bytes": 90_080_000_000, "busy": 0.49}
    await devices.look(now=True)
    assert devices.device == before
    assert devices.free_bytes() == 90_080_000_000
    machine.told = {**GPU, "free_bytes": 89_000_000_000, "busy": 0.49}
    await devices.look(now=True)
    assert devices.device != before


async def test_a_gpu_that_was_promised_and_is_not_there_is_a_fault_with_the_reason() -> None:
    devices = await Machine(CPU).devices(Promise.GPU)
    assert devices.fault() == "this Triton can't use a GPU: the driver's library is not here"
    assert devices.device is not None
    assert devices.device.fault == devices.fault()
    with pytest.raises(DeviceUnfitError, match="library is not here"):
        devices.kind_for(PADDED, "python")


async def test_a_gpu_that_was_promised_to_a_triton_that_can_not_say_is_a_fault() -> None:
    devices = await Machine(GPU, refuses=True).devices(Promise.GPU)
    assert "no Python backend" in devices.fault()


@pytest.mark.parametrize("promise", [Promise.AUTO, Promise.CPU])
async def test_without_a_promise_a_cpu_is_no_fault(promise: Promise) -> None:
    devices = await Machine(CPU).devices(promise)
    assert devices.fault() == ""
    assert devices.device is not None
    assert (devices.device.kind, devices.device.fault) == (DeviceKind.CPU, "")
    assert devices.free_bytes() is None
    assert devices.kind_for(PADDED, "python") is DeviceKind.CPU


async def test_a_triton_told_to_use_cpus_leaves_its_gpu_alone() -> None:
    devices = await Machine(GPU).devices(Promise.CPU)
    assert devices.device is not None
    assert devices.device.kind is DeviceKind.CPU
    for each in (PADDED, INT8, PACKED, PYFUNC):
        assert devices.kind_for(each, "python") is DeviceKind.CPU


async def test_triton_decides_while_nobody_knows_what_it_has() -> None:
    devices = await Machine(GPU, refuses=True).devices()
    assert devices.device is None
    assert devices.kind_for(PADDED, "python") is None


LACKS = [
    (INT8, "python", GPU, "int8 has no kernels on a GPU"),
    (INT8, "onnxruntime", GPU, "int8 has no kernels on a GPU"),
    (PADDED, "python", {**GPU, "onnxruntime": ""}, "no onnxruntime that was built for CUDA"),
    (PACKED, "python", {**GPU, "torch": ""}, "no torch that was built for CUDA"),
    (PACKED, "python", {**GPU, "cuda": "12.2"}, "its driver runs CUDA 12.2 at most, and torch"),
]


@pytest.mark.parametrize(("package", "backend", "told", "why"), LACKS)
async def test_what_can_not_run_on_the_gpu_is_refused_if_one_was_promised_and_else_takes_the_cpu(
    package: Manifest, backend: str, told: dict[str, Any], why: str
) -> None:
    with pytest.raises(DeviceUnfitError, match=why) as refusal:
        (await Machine(told).devices(Promise.GPU)).kind_for(package, backend)
    assert not refusals.is_version_fault(str(refusal.value))
    assert (await Machine(told).devices()).kind_for(package, backend) is DeviceKind.CPU


@pytest.mark.parametrize(
    ("package", "backend", "told"),
    [
        (PADDED, "python", GPU),
        (PADDED, "onnxruntime", {**GPU, "onnxruntime": ""}),
        (PACKED, "python", {**GPU, "onnxruntime": ""}),
        (PADDED, "python", {**GPU, "onnxruntime": "any"}),
    ],
)
@pytest.mark.parametrize("promise", [Promise.AUTO, Promise.GPU])
async def test_what_can_runs_on_the_gpu(
    package: Manifest, backend: str, told: dict[str, Any], promise: Promise
) -> None:
    devices = await Machine(told).devices(promise)
    assert devices.kind_for(package, backend) is DeviceKind.GPU


async def test_tables_and_python_of_users_own_run_on_the_cpu_beside_a_gpu() -> None:
    devices = await Machine(GPU).devices(Promise.GPU)
    assert devices.kind_for(PYFUNC, "python") is DeviceKind.CPU


async def test_a_look_that_fails_once_takes_nothing_away() -> None:
    machine = Machine(GPU)
    devices = await machine.devices(Promise.GPU)
    machine.loaded, machine.refuses = False, True
    await devices.look(now=True)
    assert devices.fault() == ""
    assert devices.kind_for(PADDED, "python") is DeviceKind.GPU


@pytest.mark.parametrize("promise", [Promise.AUTO, Promise.GPU])
async def test_a_gpu_of_which_the_driver_says_that_it_needs_repair_is_a_fault(
    promise: Promise,
) -> None:
    machine = Machine({**GPU, "xids": [13, 31, 63, 94]})  # of programs
    devices = await machine.devices(promise)
    assert devices.fault() == ""
    machine.told = {**GPU, "xids": [13, 79]}
    await devices.look(now=True)
    assert "the driver reported Xid 79" in devices.fault()
    assert devices.device is not None
    assert devices.device.fault == devices.fault()
    with pytest.raises(DeviceUnfitError, match="Xid 79"):
        devices.kind_for(PADDED, "python")


@pytest.mark.parametrize("promise", [Promise.AUTO, Promise.GPU])
async def test_a_gpu_that_is_lost_is_a_fault_and_makes_no_cpu_of_the_machine(
    promise: Promise,
) -> None:
    machine = Machine(GPU)
    devices = await machine.devices(promise)
    why = "the GPU does not answer: nvmlDeviceGetMemoryInfo: GPU is lost"
    machine.told = {"kind": "cpu", "fault": why, "unsure": True}
    for _ in range(3):
        await devices.look(now=True)
    assert why in devices.fault()
    with pytest.raises(DeviceUnfitError, match="GPU is lost"):
        devices.kind_for(PADDED, "python")


async def test_what_tritons_own_process_says_of_its_gpu_counts_until_triton_is_away() -> None:
    devices = await Machine(GPU).devices()
    assert devices.lose("CUDA failure 700: an illegal memory access was encountered")
    assert not devices.lose("CUDA failure 700: an illegal memory access was encountered")
    assert "illegal memory access" in devices.fault()
    devices.away()
    assert devices.fault() == ""
    assert devices.lose("CUDA failure 214: uncorrectable ECC error encountered")
    assert devices.lose("")
    assert devices.fault() == ""


async def test_a_triton_told_to_use_cpus_has_no_fault_of_a_gpu() -> None:
    devices = await Machine({**GPU, "xids": [79]}).devices(Promise.CPU)
    assert devices.fault() == ""

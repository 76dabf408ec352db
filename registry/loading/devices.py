"""What computes a Triton's batches, and which packages may run on it.

A tiny model in Triton itself is asked (``triton/device_probe``), so that the answer is that of
Triton's machine, also if it is elsewhere. It is no package: it is in no ledger and no report, and
nobody unloads it. Nothing here loads a package or weighs memory.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from contracts.endpoint import Precision
from contracts.gpu_faults import is_broken
from contracts.loading import Device, DeviceKind
from contracts.manifest import EngineKind, Manifest
from registry.errors import (
    DeviceUnfitError,
    ModelProcessGoneError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading.triton_client import Overrides
from registry.packages.triton_config import BACKEND_PYTHON

log = logging.getLogger(__name__)

PROBE_MODEL = "headrace-device-probe"
EVERY_SECONDS = 10.0
_REFUSED_TIMES = 6  # as long until the next look at a Triton that refuses the probe
# Looks in a row that find no GPU if one was seen, or a driver that does not answer, before they
# are believed, and how soon they follow each other: a driver may fail to answer for a moment.
_DOUBTED_LOOKS = 3
_DOUBT_SECONDS = 1.0
_TOLD_BYTES, _TOLD_BUSY = 100_000_000, 0.05  # steps in which a report tells what always changes
# How sentences begin that say why a GPU is not used; the models of ``triton/`` begin theirs so too.
CANT_USE = "this Triton can't use a GPU"


class Promise(StrEnum):
    """What the operator says that a Triton computes with; ``auto``: what there is."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe said: the device, why it is no GPU, and the CUDA of packages and driver.

    The CUDA of a package is empty if it can use no GPU. ``unsure``: there is a driver, and it
    failed. ``xids``: what the driver reported since Triton started. ``held``: bytes of a GPU's
    memory by Triton's name of a model, those that are known.
    """

    device: Device
    why: str = ""
    unsure: bool = False
    xids: tuple[int, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    cuda: str = ""
    onnxruntime: str = ""
    torch: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "ProbeResult":
        """From the probe's object; raises ``ValueError``."""
        fields = {name: value for name, value in told.items() if name != "fault"}
        words = {name: str(told.get(name, "")) for name in ("cuda", "onnxruntime", "torch")}
        held = {str(name): int(value) for name, value in dict(told.get("held") or {}).items()}
        why, unsure = str(told.get("fault", "")), bool(told.get("unsure"))
        xids = tuple(map(int, told.get("xids") or ()))
        return cls(Device.model_validate(fields), why, unsure, xids, held, **words)

    @property
    def broken(self) -> str:
        """Why somebody has to repair the GPU, in the driver's words; empty if nobody has."""
        said = [f"the driver reported Xid {number}" for number in self.xids]
        if self.unsure:
            said.append(self.why)
        return next(filter(is_broken, said), "")


class ProbedTriton(Protocol):
    """The Triton that is asked."""

    async def load(self, name: str, overrides: Overrides) -> None:
        """Loads a model; as ``registry.loading.triton_client.Triton`` has it."""

    async def unload(self, name: str) -> None:
        """Unloads a model, and raises the same errors."""

    async def ask(self, name: str) -> bytes:
        """The one answer of a model that takes nothing.

        Raises:
            TritonRefusedError: it is not loaded, or failed.
            TritonUnavailableError: Triton does not answer.
        """


class Devices:
    """One Triton's device, looked at now and then."""

    def __init__(
        self,
        triton: ProbedTriton,
        place: Callable[[str], Overrides],
        promise: Promise,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._triton = triton
        self._place = place
        self._promise = promise
        self._clock = clock
        self._due_at: float | None = None  # None: at once
        self._seen: ProbeResult | None = None
        self._failure = ""
        self._lost = ""  # as Triton's own process says of its GPU
        self._doubts = 0  # looks in a row that are not believed

    @property
    def device(self) -> Device | None:
        """For the report, which is written when it changes; None while it is not known."""
        fault = self.fault()
        if self._seen is None:
            return Device(kind=DeviceKind.GPU, fault=fault) if fault else None
        device = self._seen.device
        if self._promise is Promise.CPU:
            return Device(kind=DeviceKind.CPU)
        coarse = {
            "free_bytes": device.free_bytes - device.free_bytes % _TOLD_BYTES,
            "busy": _coarse(device.busy),
            "useful": None if device.useful is None else _coarse(device.useful),
        }
        return device.model_copy(update={**coarse, "fault": fault})

    def fault(self) -> str:
        """Why the GPU can't be used, if one was promised or was there; empty if it can."""
        if self._promise is Promise.CPU:
            return ""
        if said := self._lost or (self._seen.broken if self._seen else ""):
            return f"this Triton's GPU can't be used any more: {said}"
        if self._promise is not Promise.GPU:
            return ""
        if self._seen is None:
            return f"{CANT_USE}: {self._failure}" if self._failure else ""
        if self._seen.device.kind is DeviceKind.GPU:
            return ""
        return f"{CANT_USE}: {self._seen.why or 'it has none'}"

    def free_bytes(self) -> int | None:
        """Memory of a GPU that is free; None if there is no GPU, or it is unknown."""
        if self._promise is Promise.CPU or self._seen is None:
            return None
        device = self._seen.device
        return device.free_bytes if device.kind is DeviceKind.GPU else None

    async def free_now(self) -> int | None:
        """The same at this moment."""
        if self.free_bytes() is not None:
            await self.look(now=True)
        return self.free_bytes()

    def held_bytes(self, name: str) -> int | None:
        """Memory of a GPU that a model holds, by Triton's name; None if it is unknown."""
        return None if self._seen is None else self._seen.held.get(name)

    async def look(self, *, now: bool = False) -> None:
        """Asks if it is due, or ``now``; the probe is brought to a Triton that lacks it.

        A look that fails takes nothing away that was seen: a busy machine answers late, and whether
        Triton is there at all is found out by others. One that is refused is tried less often. A
        GPU that is not found any more is looked for twice again before that is believed.
        """
        at = self._clock()
        if not now and self._due_at is not None and at < self._due_at:
            return
        self._due_at = at + EVERY_SECONDS
        try:
            seen = ProbeResult.of(json.loads(await self._ask_probe()))
        except TritonUnavailableError as error:
            self._note(None, f"the probe of devices does not answer: {error}")
        except (TritonRefusedError, OSError, ValueError) as error:
            self._due_at = at + _REFUSED_TIMES * EVERY_SECONDS
            self._note(None, f"the probe of devices fails: {error}")
        else:
            believed = self._believes(seen)
            if not believed:
                self._due_at = at + _DOUBT_SECONDS
            self._note(seen if believed else None, seen.why)

    def away(self) -> None:
        """Triton went away: what it has when it is back has to be asked."""
        self._due_at = None
        self._lost = ""

    def lose(self, words: str) -> bool:
        """Takes what Triton's own process says of its GPU; returns whether that is news."""
        before, self._lost = self._lost, words
        return before != words

    def kind_for(self, manifest: Manifest, backend: str) -> DeviceKind | None:
        """Where a package runs; None leaves it to Triton, as nobody knows what it has.

        Raises:
            DeviceUnfitError: the operator promised a GPU, and it can't run there; with why.
        """
        if self._promise is Promise.CPU or manifest.pyfunc or manifest.features:
            return DeviceKind.CPU  # rows of tables have no graph that a GPU would speed up
        if fault := self.fault():
            raise DeviceUnfitError(fault)
        seen = self._seen
        if seen is None:
            return None
        if seen.device.kind is DeviceKind.CPU:
            return DeviceKind.CPU
        lack = _lack(seen, manifest, backend)
        if not lack:
            return DeviceKind.GPU
        if self._promise is Promise.GPU:
            raise DeviceUnfitError(f"{CANT_USE} for this package: {lack}")
        log.info("%s v%s runs on the CPU: %s", manifest.model, manifest.version, lack)
        return DeviceKind.CPU

    async def _ask_probe(self) -> bytes:
        try:
            return await self._triton.ask(PROBE_MODEL)
        except ModelProcessGoneError:  # Triton holds it for ready, and a load would change nothing
            await self._triton.unload(PROBE_MODEL)
        except TritonRefusedError:
            pass  # a Triton that has just started
        await self._triton.load(PROBE_MODEL, self._place(PROBE_MODEL))
        return await self._triton.ask(PROBE_MODEL)

    def _believes(self, seen: ProbeResult) -> bool:
        """Whether a look counts: no GPU becomes a CPU because a driver did not answer once."""
        had = self._seen is not None and self._seen.device.kind is DeviceKind.GPU
        if seen.device.kind is DeviceKind.GPU or not (had or seen.unsure):
            self._doubts = 0
            return True
        self._doubts += 1
        return self._doubts >= _DOUBTED_LOOKS

    def _note(self, seen: ProbeResult | None, why: str) -> None:
        if why and why != self._failure:
            level = logging.INFO if self._promise is not Promise.GPU else logging.WARNING
            log.log(level, "no GPU: %s", why)
        self._failure = why
        self._seen = seen or self._seen


def _coarse(share: float) -> float:
    return round(share / _TOLD_BUSY) * _TOLD_BUSY


def _lack(seen: ProbeResult, manifest: Manifest, backend: str) -> str:
    """Why a package can't run on the GPU that is there; empty if it can."""
    if manifest.engine is EngineKind.PACKED:
        return _old(seen.cuda, "torch", seen.torch)
    if manifest.precision is Precision.INT8:
        return "int8 has no kernels on a GPU: convert it for GPUs, to fp16 or fp32"
    if backend == BACKEND_PYTHON:
        return _old(seen.cuda, "onnxruntime", seen.onnxruntime)
    return ""  # Triton's own backend brings what it needs


def _old(driver: str, package: str, needs: str) -> str:
    """Why a package beside Triton's Python can't use the GPU, by the CUDA of both."""
    if not needs:
        return f"its Python has no {package} that was built for CUDA"
    major, has = needs.partition(".")[0], driver.partition(".")[0]
    if major.isdecimal() and has.isdecimal() and int(major) > int(has):
        return (
            f"its driver runs CUDA {driver} at most, and {package} was built for CUDA {needs}: "
            "update the driver"
        )
    return ""

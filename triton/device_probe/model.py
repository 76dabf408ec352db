"""A Triton model that says what this Triton's machine computes with, as one JSON object.

It asks NVML, the library of NVIDIA's driver, by ctypes: it never makes a CUDA context, which would
take memory of the GPU, and imports no torch. Without that library the machine has no GPU that could
be used. It runs no model, and loads nothing but NVML.

The object has ``kind`` (``cpu`` or ``gpu``), ``name``, ``count``, ``memory_bytes``, ``free_bytes``,
``busy``, ``driver``, ``cuda`` (the newest that the driver runs), ``fault`` (a sentence: why a GPU
can't be used), and what the packages beside Python could use a GPU by: ``onnxruntime`` and
``torch`` (the CUDA that it was built for; empty if it is missing or was built without).
"""

import ctypes
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

LIBRARY = "libnvidia-ml.so.1"
ANSWER = "device"  # as ``registry/packages/triton_config.py`` has it
_NAME_BYTES = 96
_TAKEN = b"used_dltensor"
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class TritonPythonModel:
    """The one instance."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request with what is so now."""
        answer = json.dumps(device(os.environ) | packages()).encode()
        return [pb_utils.InferenceResponse([_output(answer)]) for _ in requests]


class NvmlError(Exception):
    """NVML refused, in its own words."""


class Memory(ctypes.Structure):
    """``nvmlMemory_t``, bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Utilisation(ctypes.Structure):
    """``nvmlUtilization_t``, per cent of the last period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """The library, opened for one look."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")

    def close(self) -> None:
        """Lets go of the driver."""
        self._library.nvmlShutdown()

    def driver(self) -> str:
        """The driver's version."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("nvmlSystemGetDriverVersion", text, _NAME_BYTES)
        return text.value.decode(errors="replace")

    def cuda(self) -> str:
        """The newest CUDA that the driver runs."""
        number = ctypes.c_int()
        self._call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def gpus(self) -> list[ctypes.c_void_p]:
        """A handle of each."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = [ctypes.c_void_p() for _ in range(count.value)]
        for index, handle in enumerate(found):
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return found

    def text(self, name: str, gpu: ctypes.c_void_p) -> str:
        """A name of one GPU."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call(name, gpu, text, _NAME_BYTES)
        return text.value.decode(errors="replace")

    def memory(self, gpu: ctypes.c_void_p) -> Memory:
        """Of one GPU."""
        memory = Memory()
        self._call("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory))
        return memory

    def busy(self, gpu: ctypes.c_void_p) -> float:
        """Share of the time in which it computed; 0 if it can't say so, as a part of a GPU."""
        used = Utilisation()
        try:
            self._call("nvmlDeviceGetUtilizationRates", gpu, ctypes.byref(used))
        except NvmlError:
            return 0.0
        return min(1.0, used.gpu / 100)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            words = self._library.nvmlErrorString(code) or b"no words"
            raise NvmlError(f"{name}: {words.decode(errors='replace')}")


def device(
    environment: Mapping[str, str], opened: Callable[[str], ctypes.CDLL] = ctypes.CDLL
) -> dict[str, Any]:
    """What this machine computes with.

    Args:
        environment: whose ``CUDA_VISIBLE_DEVICES`` may hide GPUs.
        opened: opens a shared library; raises ``OSError`` if there is none.
    """
    try:
        library = opened(LIBRARY)
    except OSError:
        return {"kind": "cpu", "fault": "the driver's library " + LIBRARY + " is not here"}
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        return {"kind": "cpu", "fault": f"the driver does not answer: {error}"}
    try:
        return _look_up(nvml, environment.get("CUDA_VISIBLE_DEVICES"))
    except NvmlError as error:
        return {"kind": "cpu", "fault": f"the GPU does not answer: {error}"}
    finally:
        nvml.close()


def _look_up(nvml: Nvml, allowed: "str | None") -> dict[str, Any]:
    driver = {"driver": nvml.driver(), "cuda": nvml.cuda()}
    gpus = nvml.gpus()
    if not gpus:
        return {"kind": "cpu", "fault": "the driver has no GPU", **driver}
    names = [nvml.text("nvmlDeviceGetUUID", gpu) for gpu in gpus]
    seen = [gpus[index] for index in visible(names, allowed)]
    if not seen:
        fault = f"CUDA_VISIBLE_DEVICES={allowed} hides every GPU"
        return {"kind": "cpu", "fault": fault, **driver}
    memory = [nvml.memory(gpu) for gpu in seen]
    return {
        "kind": "gpu",
        "name": nvml.text("nvmlDeviceGetName", seen[0]),
        "count": len(seen),
        "memory_bytes": min(each.total for each in memory),
        "free_bytes": min(each.free for each in memory),
        "busy": sum(map(nvml.busy, seen)) / len(seen),
        **driver,
    }


def visible(names: list[str], allowed: "str | None") -> list[int]:
    """Which GPUs CUDA shows a program, of these by their UUIDs.

    As CUDA has it: what comes after a word that names none is hidden.

    >>> visible(["GPU-a", "GPU-b"], None), visible(["GPU-a", "GPU-b"], "1,0")
    ([0, 1], [1, 0])
    >>> visible(["GPU-a", "GPU-b"], ""), visible(["GPU-a", "GPU-b"], "GPU-b,-1,0")
    ([], [1])
    """
    if allowed is None:
        return list(range(len(names)))
    found: list[int] = []
    for word in (each.strip() for each in allowed.split(",")):
        if word.isdecimal() and int(word) < len(names):
            found.append(int(word))
        elif word.startswith("MIG-") and names:
            found.append(0)  # a part of a GPU, of which NVML has no such handle
        elif word.startswith("GPU-") and any(name.startswith(word) for name in names):
            found.append(next(i for i, name in enumerate(names) if name.startswith(word)))
        else:
            break
    return list(dict.fromkeys(found))


def packages() -> dict[str, str]:
    """The CUDA that packages beside this Python were built for; their files say it."""
    return {"onnxruntime": _onnxruntime(_folder("onnxruntime")), "torch": _torch(_folder("torch"))}


def _folder(package: str) -> "Path | None":
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _onnxruntime(folder: "Path | None") -> str:
    """Of the provider for CUDA: its version, or ``any`` if it does not tell it."""
    if folder is None or not (folder / "capi" / "libonnxruntime_providers_cuda.so").is_file():
        return ""
    return _told(folder / "capi" / "build_and_package_info.py", "cuda_version") or "any"


def _torch(folder: "Path | None") -> str:
    return "" if folder is None else _told(folder / "version.py", "cuda")


def _told(file: Path, name: str) -> str:
    """A version in a Python file that a build wrote, without running it."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([0-9.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else ""


def _output(answer: bytes) -> "pb_utils.Tensor":
    """The one output; Triton marks the capsule by a name that numpy knows for a fault."""
    capsule = np.frombuffer(answer, np.uint8).copy().__dlpack__()
    made = pb_utils.Tensor.from_dlpack(ANSWER, capsule)
    _set_name(capsule, _TAKEN)
    return made

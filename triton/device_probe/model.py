"""A Triton model that says what this Triton's machine computes with, as one JSON object.

It asks NVML, the library of NVIDIA's driver, by ctypes: it never makes a CUDA context, which would
take memory of the GPU, and imports no torch. Without that library the machine has no GPU that could
be used. It runs no model, and loads nothing but NVML.

The object has ``kind`` (``cpu`` or ``gpu``), ``name``, ``count``, ``memory_bytes``, ``free_bytes``,
``busy``, ``xids`` (what the driver reported of these GPUs since this started), ``driver``, ``cuda``
(the newest that the driver runs), ``fault`` (a sentence: why a GPU can't be used), ``unsure``
(there is a driver, and it failed), and what the packages beside Python could use a GPU by:
``onnxruntime`` and ``torch`` (the CUDA that it was built for; empty if it is missing or was built
without). ``held`` is the memory of a GPU that each model's own process holds, by Triton's name of
the model; models whose processes the driver does not tell are not in it. ``useful`` is the share of
tokens, of those that packed engines computed since the question before, that were of texts:
Triton's own metrics say it (``packed_model/packed_counts.py``).
"""

import ctypes
import http.client
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
_MOST_PROCESSES = 256
_MOST_EVENTS = 64  # of one look
_XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
_NOT_TOLD = (1 << 64) - 1  # NVML's word for a value that it can't say
_PROGRAM = "triton_python_backend_stub"
_METRICS_SECONDS = 1.0
_TOKENS, _PADDING = "headrace_packed_tokens_total", "headrace_packed_padding_tokens_total"
_TAKEN = b"used_dltensor"
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class TritonPythonModel:
    """The one instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Finds out where Triton's metrics are."""
        del args
        self.useful = UsefulTokens(metrics_place(command_line(os.getppid())))
        self.xids = Xids()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request with what is so now."""
        found = device(os.environ) | self.xids.look(os.environ) | packages() | self.useful.look()
        answer = json.dumps(found).encode()
        return [pb_utils.InferenceResponse([_output(answer)]) for _ in requests]


class NvmlError(Exception):
    """NVML refused, in its own words."""


class NvmlMemory(ctypes.Structure):
    """``nvmlMemory_t``, bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Utilisation(ctypes.Structure):
    """``nvmlUtilization_t``, per cent of the last period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Process(ctypes.Structure):
    """``nvmlProcessInfo_t``: a process that computes on a GPU."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("part", ctypes.c_uint),
    )


class Event(ctypes.Structure):
    """``nvmlEventData_t``; of an Xid, ``data`` is its number."""

    _fields_ = (
        ("gpu", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("part", ctypes.c_uint),
    )


class Nvml:
    """The library, opened until it is closed."""

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

    def memory(self, gpu: ctypes.c_void_p) -> NvmlMemory:
        """Of one GPU."""
        memory = NvmlMemory()
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

    def processes(self, gpu: ctypes.c_void_p) -> dict[int, int]:
        """Bytes that each process holds of one GPU; empty if it can't say so."""
        count, found = ctypes.c_uint(_MOST_PROCESSES), (Process * _MOST_PROCESSES)()
        try:
            self._call("nvmlDeviceGetComputeRunningProcesses_v3", gpu, ctypes.byref(count), found)
        except (AttributeError, NvmlError):  # an older driver lacks the function
            return {}
        return {each.pid: each.used for each in found[: count.value] if each.used != _NOT_TOLD}

    def register(self, gpus: "list[ctypes.c_void_p]") -> ctypes.c_void_p:
        """A set of events that tells the Xids of these GPUs from now on."""
        events = ctypes.c_void_p()
        self._call("nvmlEventSetCreate", ctypes.byref(events))
        for gpu in gpus:
            self._call("nvmlDeviceRegisterEvents", gpu, ctypes.c_ulonglong(_XID_EVENT), events)
        return events

    def xid(self, events: ctypes.c_void_p) -> "int | None":
        """The next Xid that came; None if there is none."""
        event = Event()
        try:
            self._call("nvmlEventSetWait_v2", events, ctypes.byref(event), ctypes.c_uint(0))
        except (AttributeError, NvmlError):  # nothing came in time
            return None
        return int(event.data) if event.kind == _XID_EVENT else None

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            words = self._library.nvmlErrorString(code) or b"no words"
            raise NvmlError(f"{name}: {words.decode(errors='replace')}")


def device(
    environment: Mapping[str, str],
    opened: Callable[[str], ctypes.CDLL] = ctypes.CDLL,
    words_of: "Callable[[int], list[str]] | None" = None,
) -> dict[str, Any]:
    """What this machine computes with.

    Args:
        environment: whose ``CUDA_VISIBLE_DEVICES`` may hide GPUs.
        opened: opens a shared library; raises ``OSError`` if there is none.
        words_of: the command line of a process; empty if there is none.
    """
    try:
        library = opened(LIBRARY)
    except OSError:
        return {"kind": "cpu", "fault": "the driver's library " + LIBRARY + " is not here"}
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        fault = f"the driver does not answer: {error}"
        return {"kind": "cpu", "fault": fault, "unsure": True}
    try:
        allowed = environment.get("CUDA_VISIBLE_DEVICES")
        return _look_up(nvml, allowed, words_of or command_line)
    except NvmlError as error:
        return {"kind": "cpu", "fault": f"the GPU does not answer: {error}", "unsure": True}
    finally:
        nvml.close()


def _look_up(
    nvml: Nvml, allowed: "str | None", words_of: Callable[[int], list[str]]
) -> dict[str, Any]:
    driver = {"driver": nvml.driver(), "cuda": nvml.cuda()}
    gpus = nvml.gpus()
    if not gpus:
        return {"kind": "cpu", "fault": "the driver has no GPU", **driver}
    seen = _visible_gpus(nvml, gpus, allowed)
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
        "held": sum_held([nvml.processes(gpu) for gpu in seen], words_of),
        **driver,
    }


def _visible_gpus(
    nvml: Nvml, gpus: "list[ctypes.c_void_p]", allowed: "str | None"
) -> "list[ctypes.c_void_p]":
    names = [nvml.text("nvmlDeviceGetUUID", gpu) for gpu in gpus]
    return [gpus[index] for index in visible(names, allowed)]


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


def sum_held(by_gpu: list[dict[int, int]], words_of: Callable[[int], list[str]]) -> dict[str, int]:
    """The bytes of each model on the GPU on which it holds most.

    A process of another container has no command line here, or has another program's.
    """
    found: dict[str, int] = {}
    for processes in by_gpu:
        here: dict[str, int] = {}
        for pid, used in processes.items():
            if name := model_of(words_of(pid)):
                here[name] = here.get(name, 0) + used
        found.update((name, max(used, found.get(name, 0))) for name, used in here.items())
    return found


def model_of(words: list[str]) -> str:
    """Triton's name of the model that such a process runs; empty if it is none.

    >>> model_of(["/b/triton_python_backend_stub", "/models/m-1/1/model.py", "shm"])
    'm-1'
    >>> model_of(["python3", "/models/m-1/1/model.py"])
    ''
    """
    if len(words) < 2 or not words[0].endswith(_PROGRAM):
        return ""
    parts = Path(words[1]).parts
    return parts[-3] if len(parts) > 3 else ""


def command_line(pid: int) -> list[str]:
    """Of a process; empty if there is none that may be looked at."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def metrics_place(words: list[str]) -> "tuple[str, int] | None":
    """Where a Triton of such a command line has its metrics; None if they are off.

    >>> metrics_place(["tritonserver", "--metrics-port=9002", "--metrics-address=127.0.0.1"])
    ('127.0.0.1', 9002)
    >>> metrics_place(["tritonserver", "--metrics-port", "9002", "--http-address", "0.0.0.0"])
    ('127.0.0.1', 9002)
    >>> metrics_place(["tritonserver", "--allow-metrics=false"]), metrics_place([])
    (None, None)
    """
    if not words:
        return None
    given: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        given[name] = value if equals else following
    address = given.get("--metrics-address") or given.get("--http-address") or "127.0.0.1"
    port = given.get("--metrics-port", "8002")
    if given.get("--allow-metrics", "true").lower() in {"false", "0"} or not port.isdecimal():
        return None
    return "127.0.0.1" if address in {"0.0.0.0", "::"} else address, int(port)


class Xids:
    """What the driver reports of the GPUs that this process may use, from its start.

    The library stays open for it: one that is closed forgets whom it has to tell.
    """

    def __init__(self, opened: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> None:
        self._opened = opened
        self._nvml: Nvml | None = None
        self._events = ctypes.c_void_p()
        self._numbers: list[int] = []

    def look(self, environment: Mapping[str, str]) -> dict[str, list[int]]:
        """``xids``: each number once, in order; nothing if the driver does not tell them."""
        nvml = self._nvml or self._register(environment.get("CUDA_VISIBLE_DEVICES"))
        if nvml is None:
            return {}
        for _ in range(_MOST_EVENTS):
            number = nvml.xid(self._events)
            if number is None:
                break
            if number not in self._numbers:
                self._numbers.append(number)
        return {"xids": list(self._numbers)}

    def _register(self, allowed: "str | None") -> "Nvml | None":
        try:
            nvml = Nvml(self._opened(LIBRARY))
        except (OSError, NvmlError):
            return None
        try:
            self._events = nvml.register(_visible_gpus(nvml, nvml.gpus(), allowed))
        except (AttributeError, NvmlError):  # as a part of a GPU may not
            nvml.close()
            return None
        self._nvml = nvml
        return nvml


class UsefulTokens:
    """The share of packed engines' tokens that are of texts, from one question to the next.

    Args:
        place: of Triton's metrics; None if it has none.
    """

    def __init__(self, place: "tuple[str, int] | None") -> None:
        self._place = place
        self._before: tuple[float, float] = (0.0, 0.0)

    def look(self) -> dict[str, float]:
        """``useful``, or nothing if no packed engine has computed, or nobody says so."""
        try:
            now = self._read()
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        tokens, padding = (after - before for before, after in zip(self._before, now, strict=True))
        self._before = now
        if tokens <= 0 or padding < 0:
            return {}
        return {"useful": tokens / (tokens + padding)}

    def _read(self) -> tuple[float, float]:
        if self._place is None:
            raise ValueError("no metrics")
        connection = http.client.HTTPConnection(*self._place, timeout=_METRICS_SECONDS)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode(errors="replace")
        finally:
            connection.close()
        return total(text, _TOKENS), total(text, _PADDING)


def total(text: str, name: str) -> float:
    r"""The sum of all series of a family, in Prometheus' text format.

    >>> total('# TYPE a counter\na{model="x y"} 2\na{model="z"} 1.5\nab{} 9\n', "a")
    3.5
    """
    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


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
    return _read_version(folder / "capi" / "build_and_package_info.py", "cuda_version") or "any"


def _torch(folder: "Path | None") -> str:
    return "" if folder is None else _read_version(folder / "version.py", "cuda")


def _read_version(file: Path, name: str) -> str:
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

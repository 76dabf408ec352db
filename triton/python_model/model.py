"""A Triton model that runs an ONNX graph, for Tritons without the native ONNX Runtime backend.

Triton's Python backend starts it in a process of its own for each instance. ``model.onnx`` lies
beside this file. Triton's dynamic batcher hands over requests that may run together as a list;
those of one shape become one run of the graph. It never pads, tokenises or pools: rows arrive
padded, and pooling is part of the graph.

A process that stood still for a while ends itself, and so does one that can compute nothing more on
its GPU, by the words in ``gpu_faults.py`` beside this file: see ``Heartbeat``.

Tensors pass through DLPack only: the stub of Triton 2.51 was built for numpy 1 and, under numpy 2,
its own conversions silently read zeros and write nothing.
"""

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_faults
import numpy as np

# It reads this when it is loaded, and would call its maker; a Triton of one's own may not say it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

BEAT_SECONDS = 0.1
# Triton takes a process that gave no sign for about a second for dead; this is well below that.
MOST_STILL_SECONDS = 0.75

Batch = tuple[int, dict[str, np.ndarray]]  # position among the requests, arrays by input name
THREADS = "intra_op_thread_count"
CANT_USE = "this Triton can't use a GPU"  # as ``registry/loading/devices.py`` has it
_CUDA = "CUDAExecutionProvider"
_ENDS = "Stub process ends: "

# DLPack's name for a capsule whose tensor was taken; a capsule holds only the pointer.
_TAKEN = b"used_dltensor"
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class TritonPythonModel:
    """One instance of the engine."""

    def initialize(self, args: dict[str, str]) -> None:
        """Builds the session; an exception here is the reason that Triton gives for refusing."""
        config = json.loads(args["model_config"])
        self.inputs = [spec["name"] for spec in config["input"]]
        self.outputs = [spec["name"] for spec in config["output"]]
        threads = int(config.get("parameters", {}).get(THREADS, {}).get("string_value", "1"))
        folder = Path(args["model_repository"]) / args["model_version"]
        device = providers(args["model_instance_kind"], args["model_instance_device_id"])
        self.session = self.open(folder, session_options(threads), device)
        self.heartbeat = Heartbeat()
        self.heartbeat.start()

    def open(self, folder: Path, options: ort.SessionOptions, wanted: list[Any]) -> Any:  # noqa: ANN401
        """What runs batches, as a session does; another model may run them otherwise."""
        return open_session(folder / "model.onnx", options, wanted)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers every request, in order; a failure is the failure of its own request alone.

        After a fault of the GPU nothing is run: whatever came back might be wrong.
        """
        self.heartbeat.check()
        responses: list[Any] = [None] * len(requests)
        for members in same_shape(requests, self.inputs):
            for (index, _), response in zip(members, self._run(members), strict=True):
                responses[index] = response
        self.heartbeat.check()
        return responses

    def finalize(self) -> None:
        """Frees the session's memory before Triton reports the model as gone."""
        self.heartbeat.stop()
        self.session = None

    def _run(self, members: list[Batch]) -> list[Any]:
        """One run for requests of one shape; where that fails, one run each to find the culprit."""
        if self.heartbeat.lost:
            return [_refusal(self.heartbeat.lost) for _ in members]
        try:
            return self._run_joined([arrays for _, arrays in members])
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors have no common base
            if gpu_faults.ends_process(str(error)):
                self.heartbeat.lose(error)
                return self._run(members)
            if len(members) > 1:
                return [response for member in members for response in self._run([member])]
            return [_refusal(f"engine: {error}")]

    def _run_joined(self, batches: list[dict[str, np.ndarray]]) -> list[Any]:
        feed = {
            name: batches[0][name]
            if len(batches) == 1
            else np.concatenate([arrays[name] for arrays in batches])
            for name in self.inputs
        }
        results = self.session.run(self.outputs, feed)
        ends = np.cumsum([len(arrays[self.inputs[0]]) for arrays in batches])[:-1]
        parts = zip(*(np.split(result, ends) for result in results), strict=True)
        return [
            pb_utils.InferenceResponse(
                [output(name, array) for name, array in zip(self.outputs, part, strict=True)]
            )
            for part in parts
        ]


def _refusal(reason: str) -> "pb_utils.InferenceResponse":
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(reason))


def end_process(reason: str) -> None:
    """Ends the process at once: the loader has Triton start another."""
    os.write(2, f"model process ends: {reason}\n".encode())
    os._exit(1)


class Heartbeat(threading.Thread):
    """Ends this process if it stood still: stopped, or without a processor, for too long.

    Triton fails the requests of a process that stands still, says that it "is not healthy", and
    frees the shared memory in which they lie. It does not end the process. One that goes on later
    answers the old requests into memory that holds other ones by then: callers get wrong answers,
    and Triton ends by a ``lock_exception``. A process that has ended is safe: Triton refuses what
    comes for it, and the loader loads the model again. One that stands still while it holds a lock
    that Triton waits for ends Triton after a second, whatever it does later.

    It also ends one whose GPU is lost, a beat after that was said, so that who asked is told.

    Attributes:
        lost: what every request is told then; empty while the GPU can be used.
    """

    def __init__(self, end: Callable[[str], None] = end_process) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.lost = ""
        self._end = end
        self._lost_at = 0.0
        self._beat = time.monotonic()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Beats until it is told to stop."""
        while not self._stopped.wait(BEAT_SECONDS):
            self.check()
            self._beat = time.monotonic()
            if self.lost and self._beat - self._lost_at > BEAT_SECONDS:
                self._end(self.lost.removeprefix(_ENDS))

    def lose(self, error: Exception) -> str:
        """The GPU can't be used any more; returns what requests are told.

        Gateways and loaders know these words, which are Triton's: another one is asked.
        """
        self._lost_at = time.monotonic()
        self.lost = f"{_ENDS}the GPU can't be used any more: {error}"
        return self.lost

    def stop(self) -> None:
        """Ends nothing any more."""
        self._stopped.set()

    def check(self) -> None:
        """Ends the process if the last beat is too long ago.

        Called before requests are run and before they are answered too: this thread may not have
        had its turn yet.
        """
        still = time.monotonic() - self._beat
        if still > MOST_STILL_SECONDS and not self._stopped.is_set():
            self._end(f"it stood still for {still:.2f} s")


def output(name: str, array: np.ndarray) -> "pb_utils.Tensor":
    """An output for Triton, which takes over the array's memory.

    Triton marks the capsule as taken by a name of its own, which numpy knows for a fault: each
    output would leave a traceback in the log.
    """
    capsule = np.ascontiguousarray(array).__dlpack__()
    made = pb_utils.Tensor.from_dlpack(name, capsule)
    _set_name(capsule, _TAKEN)
    return made


def same_shape(requests: list[Any], names: list[str]) -> list[list[Batch]]:
    """Groups of batches that may be joined along the batch dimension."""
    groups: dict[tuple[tuple[int, ...], ...], list[Batch]] = {}
    for index, request in enumerate(requests):
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
        arrays = {name: np.from_dlpack(tensor) for name, tensor in tensors.items()}
        groups.setdefault(tuple(array.shape[1:] for array in arrays.values()), []).append(
            (index, arrays)
        )
    return list(groups.values())


def session_options(threads: int) -> ort.SessionOptions:
    """Threads as set, and no busy waiting: other processes share these cores."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def providers(kind: str, device_id: str) -> list[Any]:
    """Those that a session asks for: on a GPU CUDA's, whose float32 is no TF32 of ten bits.

    Raises:
        RuntimeError: ONNX Runtime has none. It would run on the CPU, slowly and in silence.
    """
    if kind != "GPU":
        return ["CPUExecutionProvider"]
    if _CUDA not in ort.get_available_providers():
        raise RuntimeError(
            f"{CANT_USE}: its Python has an ONNX Runtime without CUDA (install onnxruntime-gpu, or "
            "run the loader with --device=cpu)"
        )
    ort.preload_dlls()
    return [(_CUDA, {"device_id": int(device_id), "use_tf32": 0}), "CPUExecutionProvider"]


def open_session(
    graph: Path, options: ort.SessionOptions, wanted: list[Any]
) -> ort.InferenceSession:
    """A session on the device that was asked for.

    Raises:
        RuntimeError: ONNX Runtime left the GPU out, as it does for want of a library or a driver.
    """
    session = ort.InferenceSession(str(graph), options, providers=wanted)
    if len(wanted) > 1 and _CUDA not in session.get_providers():
        raise RuntimeError(
            f"{CANT_USE}: ONNX Runtime {ort.__version__} has CUDA and could not start it; the log "
            "of Triton says which library or driver it lacks"
        )
    return session

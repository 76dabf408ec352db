"""A Triton model that only pretends: it takes as long as an accelerator might compute.

For tests of batching without a GPU. It is never part of a package, and its
figures are never mixed with a real engine's.

- Without a table, one execution takes 1 ms + 1.2 us for each padded token of the batch; requests of
  one shape that Triton hands over together are one execution. The answers are zeros.
- With ``accelerator.json`` beside it (such as ``tests/support/h200.json``) and the parameter
  ``accelerator`` in its configuration, an engine of that table. A padded one takes its shapes'
  times instead. A packed one takes requests as ``packed_model`` does, and joins them by the same
  ``packed_joining.py``, which then lies beside it. So that an answer that went to another row
  shows, each row is answered its first token and the sum of its tokens modulo 2**20, again and
  again in its columns.

Tensors pass through DLPack: see ``python_model/model.py``.
"""

import ctypes
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS_PER_EXECUTION = 0.001
SECONDS_PER_TOKEN = 1.2e-6
TABLE = "accelerator.json"
PARAMETER = "accelerator"
MODULUS = 1 << 20  # sums below it are exact as float32
MOST_ROWS = 2048  # of a packed run
HELD_RUNS = 4  # what is held at most, in full runs
NO_LIMIT = 1 << 30

_TAKEN = b"used_dltensor"  # see python_model/model.py
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class TritonPythonModel:
    """One simulated accelerator: executions follow one another."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads names and widths of the tensors from the configuration, and the table."""
        config = json.loads(args["model_config"])
        self.first_input = config["input"][0]["name"]
        self.outputs = {spec["name"]: int(spec["dims"][-1]) for spec in config["output"]}
        engine = config.get("parameters", {}).get(PARAMETER, {}).get("string_value")
        self.times: Any = None  # of what ``accelerator_times.read`` gives
        self.pipeline: Any = None
        if engine is not None:
            import accelerator_times

            folder = Path(args["model_repository"]) / args["model_version"]
            self.times = accelerator_times.read(folder / TABLE, engine)
            if isinstance(self.times, accelerator_times.PackedTimes):
                ((name, width),) = self.outputs.items()
                self.pipeline = build_pipeline(self.times, name, max(width, 1))
                self.pipeline.start()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Sleeps once for each shape among the requests; a packed engine keeps them."""
        if self.pipeline is not None:
            for request in requests:
                self.pipeline.offer(asked_of(request))
            return None
        shapes = [
            np.from_dlpack(pb_utils.get_input_tensor_by_name(request, self.first_input)).shape
            for request in requests
        ]
        for length in {shape[1] for shape in shapes}:
            self._sleep(sum(rows for rows, columns in shapes if columns == length), length)
        return [self._zeros(rows) for rows, _ in shapes]

    def finalize(self) -> None:
        """Ends the threads of a packed engine."""
        if self.pipeline is not None:
            self.pipeline.close()

    def _sleep(self, rows: int, length: int) -> None:
        if self.times is None:
            time.sleep(SECONDS_PER_EXECUTION + SECONDS_PER_TOKEN * rows * length)
        else:
            time.sleep(self.times.seconds(rows, length))

    def _zeros(self, rows: int) -> "pb_utils.InferenceResponse":
        return pb_utils.InferenceResponse(
            [
                output(name, np.zeros((rows, max(width, 1)), np.float32))
                for name, width in self.outputs.items()
            ]
        )


class SimulatedRun:
    """A run that is over at a moment."""

    def __init__(self, over: float, values: np.ndarray, tokens: int, took: float) -> None:
        self._over = over
        self._values = values
        self._took = took
        self.tokens = tokens

    def values(self) -> np.ndarray:
        """Waits until then."""
        time.sleep(max(0.0, self._over - time.monotonic()))
        return self._values

    def seconds(self) -> float:
        """How long a device would have computed."""
        return self._took


class PretendingRunner:
    """Runs follow one another on a device that computes nothing; see ``packed_joining.Runner``."""

    def __init__(self, times: Any, width: int) -> None:
        self._times = times
        self._width = width
        self._free_at = 0.0
        self._lock = threading.Lock()

    def begin(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> SimulatedRun:
        """Starts a run, behind those before it."""
        del types
        with self._lock:
            now = time.monotonic()
            took = self._times.seconds(len(ids))
            self._free_at = max(self._free_at, now) + took
            over = self._free_at
        sums = np.add.reduceat(ids, starts[:-1], dtype=np.int64) % MODULUS
        pair = np.stack([ids[starts[:-1]], sums], axis=1).astype(np.float32)
        values = np.resize(pair.T, (self._width, len(pair))).T.copy()
        return SimulatedRun(over, values, self._times.fill_up(len(ids)), took)

    def free_memory(self) -> None:
        """Has none."""


class SimulatedReplies:
    """Answers requests by Triton's response senders; see ``packed_joining.Replies``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def answer(self, asked: Any, values: np.ndarray) -> None:
        """Sends values."""
        self._send(asked, pb_utils.InferenceResponse([output(self._name, values)]))

    def fail(self, asked: Any, reason: str) -> None:
        """Sends an error."""
        self._send(asked, pb_utils.InferenceResponse(error=pb_utils.TritonError(reason)))

    def drop(self, asked: Any) -> None:
        """Ends a request whose caller is gone."""
        self.fail(asked, "engine: its caller is gone")

    def is_gone(self, asked: Any) -> bool:
        """Whether the caller gave up."""
        return bool(asked.caller.is_cancelled())

    def _send(self, asked: Any, response: "pb_utils.InferenceResponse") -> None:
        asked.caller.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def build_pipeline(times: Any, name: str, width: int) -> Any:
    """What joins requests, has them run and answers them.

    Args:
        times: of the engine.
        name: of the output.
        width: its columns.
    """
    from packed_joining import RunLimits, RunPipeline

    limits = RunLimits(
        run_tokens=times.most_tokens,
        run_rows=MOST_ROWS,
        held_tokens=HELD_RUNS * times.most_tokens,
        row_tokens=times.most_tokens,
        vocabulary=NO_LIMIT,
        types=2,
    )
    return RunPipeline(PretendingRunner(times, width), SimulatedReplies(name), limits)


def asked_of(request: "pb_utils.InferenceRequest") -> Any:
    """What a request brings: copies, since its memory is Triton's."""
    from packed_joining import PackedRequest

    ids, starts, types = (
        None if given is None else np.from_dlpack(given).copy()
        for given in (
            pb_utils.get_input_tensor_by_name(request, name)
            for name in ("input_ids", "row_starts", "token_type_ids")
        )
    )
    return PackedRequest(ids, starts, types, caller=request.get_response_sender())


def output(name: str, array: np.ndarray) -> "pb_utils.Tensor":
    """An output for Triton, whose name for a capsule that was taken numpy takes for a fault."""
    capsule = array.__dlpack__()
    made = pb_utils.Tensor.from_dlpack(name, capsule)
    _set_name(capsule, _TAKEN)
    return made

"""A Triton model that only pretends: it sleeps as long as an accelerator might compute.

For benchmarks of batching where there is no GPU. One execution takes 1 ms + 1.2 us for each padded
token of the batch; requests of one shape that Triton hands over together are one execution. The
answers are zeros. It is never part of a package, and its figures are never mixed with a real
engine's. Tensors pass through DLPack: see ``python_model/model.py``.
"""

import ctypes
import json
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS_PER_EXECUTION = 0.001
SECONDS_PER_TOKEN = 1.2e-6

_TAKEN = b"used_dltensor"  # see python_model/model.py
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int


class TritonPythonModel:
    """One simulated accelerator: executions follow one another."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads names and widths of the tensors from the configuration."""
        config = json.loads(args["model_config"])
        self.first_input = config["input"][0]["name"]
        self.outputs = {spec["name"]: int(spec["dims"][-1]) for spec in config["output"]}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Sleeps once for each shape among the requests."""
        shapes = [
            np.from_dlpack(pb_utils.get_input_tensor_by_name(request, self.first_input)).shape
            for request in requests
        ]
        for length in {shape[1] for shape in shapes}:
            tokens = sum(rows * columns for rows, columns in shapes if columns == length)
            time.sleep(SECONDS_PER_EXECUTION + SECONDS_PER_TOKEN * tokens)
        return [self._zeros(rows) for rows, _ in shapes]

    def _zeros(self, rows: int) -> "pb_utils.InferenceResponse":
        return pb_utils.InferenceResponse(
            [
                output(name, np.zeros((rows, max(width, 1)), np.float32))
                for name, width in self.outputs.items()
            ]
        )


def output(name: str, array: np.ndarray) -> "pb_utils.Tensor":
    """An output for Triton, whose name for a capsule that was taken numpy takes for a fault."""
    capsule = array.__dlpack__()
    made = pb_utils.Tensor.from_dlpack(name, capsule)
    _set_name(capsule, _TAKEN)
    return made

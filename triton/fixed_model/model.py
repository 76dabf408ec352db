"""A Triton model that runs a graph which was fused for GPUs, in shapes that are warm.

All but how batches are run is ``python_model``'s, which lies beside this file, as do
``fixed_shapes.py``, ``model.onnx`` and ``shapes.json``. An instance that was promised a GPU refuses
to load without.
"""

from functools import partial
from pathlib import Path
from typing import Any

import fixed_shapes
import python_model


class TritonPythonModel(python_model.TritonPythonModel):
    """One instance."""

    def open(self, folder: Path, options: Any, wanted: list[Any]) -> Any:  # noqa: ANN401
        """The graph, once it has run in every shape."""
        open_on = partial(python_model.open_session, folder / "model.onnx", options)
        return fixed_shapes.load(folder, open_on, wanted)

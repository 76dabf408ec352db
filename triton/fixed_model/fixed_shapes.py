"""Runs a graph in a fixed set of shapes, each of which has run before the first request.

A fused graph compiles a plan for each new shape on a GPU, so that no request may bring one. Rows
and lengths are filled up to the next shape, batches beyond the largest become several runs, and
what was filled up is cut off again. Each shape has its own buffers at fixed addresses, bound once,
and on a GPU a CUDA graph. Without a GPU the same code runs, without graphs. It never runs a shape
that is not in the set.

``shapes.json`` beside this file says the shapes, what inputs are filled up with, and the output.
"""

import json
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

SETTINGS_FILE = "shapes.json"
_MASK = "attention_mask"
_GRAPHS, _GRAPH_ID = "enable_cuda_graph", "gpu_graph_id"
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Open = Callable[[list[Any]], ort.InferenceSession]  # the providers that are wanted -> a session


class FixedShapes:
    """A session that runs in some shapes only; ``run`` is called as the session's own.

    Args:
        session: on the graph.
        told: what ``shapes.json`` says.
        gpu: number of the GPU that the session runs on; None for the CPU.
        graphs: the session captures CUDA graphs.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        told: Mapping[str, Any],
        *,
        gpu: int | None = None,
        graphs: bool = False,
    ) -> None:
        self._fill: Mapping[str, int] = told["fill"]
        self._output: str = told["output"]
        self._rows: dict[int, list[int]] = {}
        for rows, length in sorted(told["shapes"]):
            self._rows.setdefault(length, []).append(rows)
        self._lengths = sorted(self._rows)
        dtypes = {each.name: _DTYPES[each.type] for each in session.get_inputs()}
        # The largest first: a GPU's memory is taken once, and smaller shapes find theirs in it.
        shapes = sorted(map(tuple, told["shapes"]), key=lambda shape: -shape[0] * shape[1])
        self._bound = {
            shape: _BoundShape(
                session,
                {name: np.full(shape, fill, dtypes[name]) for name, fill in self._fill.items()},
                (self._output, (*(shape if told["rank"] > 2 else shape[:1]), told["width"])),
                gpu=gpu,
                graph=number if graphs else None,
            )
            for number, shape in enumerate(shapes, start=1)
        }
        for bound in self._bound.values():
            for _ in range(1 if gpu is None else 2):  # the first plans, the next may capture
                bound.run()

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(rows, length) of all runs that there are."""
        return list(self._bound)

    def run(self, outputs: Sequence[str], feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The answers to a batch, as the session would give them.

        Raises:
            ValueError: no rows, rows longer than any shape, or another output.
        """
        if list(outputs) != [self._output]:
            raise ValueError(f"it gives {self._output}, and not {', '.join(outputs)}")
        count, longest = feed[next(iter(self._fill))].shape
        at = bisect_left(self._lengths, longest)
        if count == 0 or at == len(self._lengths):
            most = self._lengths[-1]
            raise ValueError(f"{count} rows of {longest} tokens; it takes rows of {most} at most")
        length = self._lengths[at]
        sizes, parts = self._rows[length], []
        for begin in range(0, count, sizes[-1]):
            part = {name: feed[name][begin : begin + sizes[-1]] for name in self._fill}
            parts.append(self._run_part(part, sizes, length))
        return [parts[0] if len(parts) == 1 else np.concatenate(parts)]

    def _run_part(
        self, part: Mapping[str, np.ndarray], sizes: Sequence[int], length: int
    ) -> np.ndarray:
        count, longest = next(iter(part.values())).shape
        bound = self._bound[sizes[bisect_left(sizes, count)], length]
        for name, rows in part.items():
            buffer = bound.inputs[name]
            buffer[:] = self._fill[name]
            buffer[:count, :longest] = rows
            if name == _MASK:
                # Attention over nothing has no value: rows that nobody reads look at one token.
                buffer[count:, 0] = 1
        # A copy: the next run writes into the same buffer.
        values = bound.run()[:count]
        return np.array(values[:, :longest] if values.ndim > 2 else values)


class _BoundShape:
    """The buffers of one shape, bound to the session."""

    def __init__(
        self,
        session: ort.InferenceSession,
        inputs: dict[str, np.ndarray],
        output: tuple[str, tuple[int, ...]],
        *,
        gpu: int | None,
        graph: int | None,
    ) -> None:
        self.inputs = inputs
        if _MASK in inputs:
            inputs[_MASK][:, 0] = 1
        where = ("cpu", 0) if gpu is None else ("cuda", gpu)
        self._session, self._binding = session, session.io_binding()
        self._there = {
            name: ort.OrtValue.ortvalue_from_numpy(array, *where) for name, array in inputs.items()
        }
        for name, value in self._there.items():
            self._binding.bind_ortvalue_input(name, value)
        name, shape = output
        self._given = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, *where)
        self._binding.bind_ortvalue_output(name, self._given)
        self._options = ort.RunOptions()
        if graph is not None:
            self._options.add_run_config_entry(_GRAPH_ID, str(graph))

    def run(self) -> np.ndarray:
        """What the graph gives for what ``inputs`` hold now."""
        for name, value in self._there.items():
            value.update_inplace(self.inputs[name])
        self._session.run_with_iobinding(self._binding, self._options)
        values: np.ndarray = self._given.numpy()
        return values


def load(folder: Path, open_on: Open, wanted: list[Any]) -> FixedShapes:
    """All shapes, warm. On a GPU by CUDA graphs, or without if the graph does not let itself be.

    Args:
        folder: holds ``shapes.json``.
        open_on: opens a session on providers, or refuses with the reason.
        wanted: the providers; CUDA's first if there is a GPU.
    """
    told = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    if len(wanted) == 1:
        return FixedShapes(open_on(wanted), told)
    (cuda, options), *others = wanted
    gpu = int(options["device_id"])
    try:
        with_graphs = [(cuda, {**options, _GRAPHS: "1"}), *others]
        return FixedShapes(open_on(with_graphs), told, gpu=gpu, graphs=True)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors have no common base
        print(f"no CUDA graphs of this model: {error}", file=sys.stderr, flush=True)
    return FixedShapes(open_on(wanted), told, gpu=gpu)

"""Where the packed engine runs: at once on a CPU, or beside the host's work on a GPU.

On a GPU a run's inputs are copied from pinned memory on a stream of their own, while the run before
it still computes, and so are answers. Small runs are replayed as CUDA graphs, which are captured
when the model is loaded; what fits none is launched kernel by kernel.
A GPU that was promised and can't be used is a reason to refuse the model: nothing here goes to a
CPU instead.
"""

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from packed_buckets import (
    LONGEST_ROW,
    MOST_ROWS,
    MOST_TOKENS,
    GraphShape,
    fill_rows,
    shape_for,
    shapes,
)
from packed_engine import PackedEngine

CPU_TOKENS = 2048  # of a run; more at a time is no faster there
HELD_RUNS = 16
_OLDEST_CAPABILITY = (8, 0)  # of variable-length attention
# Of torch's words for an operation that waits for the GPU, if it was told to refuse such.
_WAITS = "synchronizing"


def missing_gpu(number: int) -> str:
    """Why this process can't use a GPU, in words; empty if it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} here was built without CUDA"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError, OSError) as error:
        return f"torch {torch.__version__} for CUDA {torch.version.cuda} finds no GPU: {error}"
    found = torch.cuda.device_count()
    if number >= found:
        return f"GPU {number} is not among the {found} that torch {torch.__version__} sees"
    major, minor = torch.cuda.get_device_capability(number)
    if (major, minor) < _OLDEST_CAPABILITY:
        name = torch.cuda.get_device_name(number)
        return f"{name} has compute capability {major}.{minor}, and 8.0 or newer is needed"
    return ""


@dataclass(frozen=True)
class CpuRun:
    """A run that is over.

    Attributes:
        array: what was computed.
        tokens: that were.
        took: seconds.
    """

    array: np.ndarray
    tokens: int
    took: float

    def values(self) -> np.ndarray:
        """What was computed."""
        return self.array

    def seconds(self) -> float:
        """How long that took."""
        return self.took


class OnCpu:
    """Runs at once."""

    run_tokens = CPU_TOKENS
    run_rows = MOST_ROWS

    def __init__(self, engine: PackedEngine) -> None:
        self._engine = engine

    def begin(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> CpuRun:
        """Computes."""
        began = time.monotonic()
        values = self._engine.run(ids, starts, types)
        return CpuRun(values, len(ids), time.monotonic() - began)

    def free_memory(self) -> None:
        """Nothing is kept."""


class OnGpu:
    """Runs while the host goes on.

    Args:
        engine: on the GPU.
        buckets: shapes of graphs, the largest first; without variable-length attention none.
    """

    run_tokens = MOST_TOKENS
    run_rows = MOST_ROWS

    def __init__(self, engine: PackedEngine, buckets: Iterable[GraphShape] | None = None) -> None:
        self._engine = engine
        self._device = engine.device
        self._longest = min(LONGEST_ROW, engine.row_tokens)
        self._runs = torch.cuda.Stream(self._device)
        # One each way: a run's inputs must not wait until the answers before them have left.
        self._arriving, self._leaving = (torch.cuda.Stream(self._device) for _ in range(2))
        self._graphs: dict[GraphShape, tuple[Any, torch.Tensor]] = {}
        self._left_out: list[GraphShape] = []
        self._fault = ""
        self._capture_seconds = 0.0
        # The inputs of every graph begin where it begins: one run at a time replays one of them.
        self._inputs = torch.zeros(
            4 * MOST_TOKENS + MOST_ROWS + 1, dtype=torch.int32, device=self._device
        )
        if engine.has_variable_lengths:
            self._capture_all(shapes(self._longest) if buckets is None else buckets)

    def begin(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> "OnTheWay":
        """Queues copies and a run; waits for neither."""
        asked = len(ids) if self._engine.by_token else len(starts) - 1
        shape = shape_for(starts, self._longest)
        if shape not in self._graphs:
            shape = None
        longest = self._longest if shape else int(np.diff(starts).max())
        if shape:
            starts = fill_rows(starts, shape, self._longest)
        with torch.inference_mode(), torch.cuda.device(self._device):
            made = torch.from_numpy(self._engine.inputs(ids, starts, types)).pin_memory()
            with torch.cuda.stream(self._arriving):
                inputs = made.to(self._device, non_blocking=True)
                arrived = self._arriving.record_event()
            with torch.cuda.stream(self._runs):
                self._runs.wait_event(arrived)
                inputs.record_stream(self._runs)
                began = self._runs.record_event(torch.cuda.Event(enable_timing=True))
                if shape:
                    graph, answers = self._graphs[shape]
                    self._inputs[: len(inputs)].copy_(inputs)
                    graph.replay()
                    answers = answers[:asked].clone()  # the next replay writes over it
                else:
                    answers = self._engine.forward(inputs, int(starts[-1]), longest)
                computed = self._runs.record_event(torch.cuda.Event(enable_timing=True))
            with torch.cuda.stream(self._leaving):
                self._leaving.wait_event(computed)
                answers.record_stream(self._leaving)
                back = torch.empty(answers.shape, dtype=answers.dtype, pin_memory=True)
                back.copy_(answers, non_blocking=True)
                done = self._leaving.record_event()
                return OnTheWay(back, done, made, int(starts[-1]), (began, computed))

    def free_memory(self) -> None:
        """Gives what torch keeps for later back to the GPU; the graphs keep theirs."""
        torch.cuda.empty_cache()

    def describe(self) -> str:
        """What was captured, for the log."""
        free, whole = torch.cuda.mem_get_info(self._device)
        return (
            f"{len(self._graphs)} CUDA graphs captured in {self._capture_seconds:.1f} s, "
            f"{len(self._left_out)} left out for want of memory{self._fault}; "
            f"{torch.cuda.memory_reserved(self._device) >> 20} MiB reserved, "
            f"{free >> 20} of {whole >> 20} MiB free on {torch.cuda.get_device_name(self._device)}"
        )

    def _capture_all(self, buckets: Iterable[GraphShape]) -> None:
        began = time.monotonic()
        torch.cuda.synchronize(self._device)
        pool = torch.cuda.graph_pool_handle()
        for shape in buckets:
            try:
                self._graphs[shape] = self._capture(shape, pool)
            except torch.OutOfMemoryError:
                self._left_out.append(shape)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                # An architecture that waits for the GPU in its layers: it runs without graphs.
                if _WAITS not in str(error):
                    # After a capture that broke off, torch frees no memory that two streams used.
                    raise RuntimeError(f"it can't use a GPU for CUDA graphs: {error}") from error
                self._fault = f", and no more after {shape}: {error}"
                break
        self._capture_seconds = time.monotonic() - began

    def _capture(self, shape: GraphShape, pool: Any) -> tuple[Any, torch.Tensor]:  # noqa: ANN401
        """A graph, and where its answers lie."""
        row = min(self._longest, shape.tokens)
        starts = fill_rows(np.array([0, row], np.int32), shape, self._longest)
        made = torch.from_numpy(self._engine.inputs(np.zeros(row, np.int32), starts, None))
        inputs = self._inputs[: len(made)]
        with torch.inference_mode(), torch.cuda.device(self._device):
            with torch.cuda.stream(self._runs):
                inputs.copy_(made)
                self._engine.forward(inputs, shape.tokens, self._longest)  # libraries set up
                with _refusing_waits():
                    self._engine.forward(inputs, shape.tokens, self._longest)
            self._runs.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                graph, pool=pool, stream=self._runs, capture_error_mode="thread_local"
            ):
                answers = self._engine.forward(inputs, shape.tokens, self._longest)
            with torch.cuda.stream(self._runs):
                graph.replay()
            self._runs.synchronize()
        return graph, answers


@contextmanager
def _refusing_waits() -> Iterator[None]:
    """Operations that wait for the GPU fail, before they would break off a capture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it does not know every such operation
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class OnTheWay:
    """A run on a GPU, and the copy of what it gives.

    Args:
        back: pinned memory, which the copy writes.
        done: after the copy.
        made: the inputs' pinned memory, which must outlast their copy.
        tokens: that are computed, those that fill a graph up included.
        bounds: events before and after the run itself.
    """

    def __init__(
        self,
        back: torch.Tensor,
        done: Any,  # noqa: ANN401 - torch has no types for its events
        made: torch.Tensor,
        tokens: int,
        bounds: tuple[Any, Any],
    ) -> None:
        self._back = back
        self._done = done
        self._made = made
        self._bounds = bounds
        self.tokens = tokens

    def values(self) -> np.ndarray:
        """Waits for the copy."""
        self._done.synchronize()
        return np.asarray(self._back.numpy())

    def seconds(self) -> float:
        """Of the GPU, by its own clock; without waits for inputs and for the run before."""
        began, computed = self._bounds
        return float(began.elapsed_time(computed)) / 1000

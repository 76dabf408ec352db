"""Measures the packed engine in this process: a program for a Python that has torch.

``alone.py`` starts it, with what to measure on its standard input. It imports the engine from where
a loader would lay it out, and nothing of Headrace. A line of JSON is written for each run that was
measured, so that one that is cut off keeps what it has.
"""

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

EAGER, GRAPH, PIPELINED, COMPILED, ON_CPU = (
    "kernel by kernel",
    "CUDA graphs",
    "CUDA graphs, two runs on the way",
    "compiled",
    "on the CPU",
)
_FEWEST_RUNS = 5
_SETTLING_RUNS = 3
_MOST_RUNS = 2000


def main() -> None:
    """Measures what standard input names, in a Python with torch."""
    told = json.loads(sys.stdin.read())
    folder = Path(told["folder"])
    sys.path.insert(0, str(folder))
    placed, packed = (importlib.import_module(f"packed_{each}") for each in ("device", "engine"))

    ends = time.monotonic() + told["limit"]
    engine = packed.PackedEngine(folder, None, "cuda:0" if told["gpu"] else "cpu")
    batches = [
        (
            np.array([each for row in batch for each in row], np.int32),
            np.cumsum([0, *map(len, batch)]).astype(np.int32),
        )
        for batch in told["batches"]
    ]
    modes: dict[str, Callable[[Any, Any], Any]] = {}
    if told["gpu"]:
        graphs, eager = placed.OnGpu(engine), placed.OnGpu(engine, ())
        print(graphs.describe(), file=sys.stderr, flush=True)
        modes[GRAPH] = lambda ids, starts: graphs.begin(ids, starts, None).values()
        modes[EAGER] = lambda ids, starts: eager.begin(ids, starts, None).values()
        modes[PIPELINED] = _ahead(graphs)
        if told["compiled"]:
            modes[COMPILED] = _compiled(engine)
    else:
        importlib.import_module("torch").set_num_threads(1)
        on_cpu = placed.OnCpu(engine)
        modes[ON_CPU] = lambda ids, starts: on_cpu.begin(ids, starts, None).values()
    failed = False
    for mode, run in modes.items():
        # To compile takes many seconds for each shape: the smallest and the largest.
        some = batches if mode != COMPILED else (batches[0], batches[-2])
        try:
            _measure(mode, run, some, told["seconds"], ends)
        except Exception:  # noqa: BLE001 - one mode may fail in any way, and the others go on
            traceback.print_exc()
            failed = True
    sys.exit(failed)


def _measure(
    mode: str, run: Callable[[Any, Any], Any], batches: Sequence[Any], seconds: float, ends: float
) -> None:
    """Writes what each batch takes."""
    for ids, starts in batches:
        if time.monotonic() > ends:
            return
        taken = 1000 * _seconds(lambda: run(ids, starts), seconds)  # noqa: B023
        found = {"mode": mode, "rows": len(starts) - 1, "tokens": len(ids)}
        print(json.dumps({**found, "milliseconds": taken}), flush=True)


def _ahead(runner: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401 - torch has no types here
    """A run that is begun before the one before it is waited for."""
    before: list[Any] = []

    def run(ids: Any, starts: Any) -> Any:  # noqa: ANN401
        before.append(runner.begin(ids, starts, None))
        return before.pop(0).values() if len(before) > 1 else None

    return run


def _compiled(engine: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401
    """What torch's compiler makes of the model, copies included: a limit, which nothing serves."""
    import torch  # noqa: PLC0415 - on a GPU only

    forward = torch.compile(engine.forward, dynamic=False)

    def run(ids: Any, starts: Any) -> Any:  # noqa: ANN401
        with torch.inference_mode():
            inputs = torch.from_numpy(engine.inputs(ids, starts, None)).pin_memory()
            inputs = inputs.to(engine.device, non_blocking=True)
            return forward(inputs, int(starts[-1]), int(np.diff(starts).max())).cpu()

    return run


def _seconds(run: Callable[[], object], seconds: float) -> float:
    """The median of a run."""
    for _ in range(_SETTLING_RUNS):
        run()
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while len(taken) < _FEWEST_RUNS or (time.perf_counter() < ends and len(taken) < _MOST_RUNS):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return median(taken)


if __name__ == "__main__":
    main()

"""What goes wrong on a GPU: memory that runs out, a GPU that is lost, one that is not there."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
LONGEST = 40
_SECONDS = 120.0

# The process in which a GPU is lost: an index out of range, which no request can bring.
LOST = """
import sys
import numpy as np, torch
from packed_files import packed
joining = packed("packed_joining")

class Runner:
    def begin(self, ids, starts, types):
        torch.zeros(1, device="cuda")[torch.tensor([1 << 20], device="cuda")]
        return self
    def values(self):
        torch.cuda.synchronize()
    def free_memory(self):
        pass

class Replies:
    def answer(self, asked, values): print("answered", flush=True)
    def fail(self, asked, reason): print("failed", reason, flush=True)
    def drop(self, asked): pass
    def is_gone(self, asked): return False

limits = joining.RunLimits(run_tokens=64, run_rows=8, held_tokens=640, row_tokens=40, vocabulary=60)
pipeline = joining.RunPipeline(Runner(), Replies(), limits)
pipeline.start()
pipeline.offer(joining.PackedRequest(np.zeros(4, np.int32), np.array([0, 4], np.int32)))
pipeline.close()
"""
HIDDEN = """
from packed_files import packed
print(packed("packed_device").missing_gpu(0))
"""


def in_a_process(program: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program beside this one, with the same packages."""
    path = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip


class Replies:
    """Keeps what requests are told."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.told = threading.Event()

    def answer(self, asked: Any, values: Any) -> None:
        self.said.append(values)
        self.told.set()

    def fail(self, asked: Any, reason: str) -> None:
        self.said.append(reason)
        self.told.set()

    def drop(self, asked: Any) -> None:
        self.told.set()

    def is_gone(self, asked: Any) -> bool:
        return False

    def last(self) -> Any:
        """What the next request is told."""
        assert self.told.wait(_SECONDS)
        self.told.clear()
        return self.said[-1]


def test_a_run_that_the_memory_does_not_suffice_for_fails_and_the_next_is_answered(
    folder: Path, engines: ModuleType, devices: ModuleType
) -> None:
    import torch
    from packed_files import packed
    from tiny_encoders import write_encoder, write_told

    joining = packed("packed_joining")
    write_encoder(folder, "bert", "AutoModel")
    told = write_told(folder, "AutoModel", modes=["mean"], normalise=True, dtype="fp16")
    runner = devices.OnGpu(engines.PackedEngine(folder, told, "cuda:0"), ())
    rows, replies = 50_000, Replies()
    ended: list[str] = []
    limits = joining.RunLimits(
        run_tokens=LONGEST * rows, run_rows=rows, held_tokens=2 * LONGEST * rows,
        row_tokens=LONGEST, vocabulary=60,
    )  # fmt: skip
    pipeline = joining.RunPipeline(runner, replies, limits, end=ended.append)
    pipeline.start()
    starts = np.arange(0, (rows + 1) * LONGEST, LONGEST, dtype=np.int32)
    large = joining.PackedRequest(np.full(starts[-1], 31, np.int32), starts)
    small = joining.PackedRequest(np.full(8, 31, np.int32), np.array([0, 8], np.int32))
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    ballast = torch.empty(free - (128 << 20), dtype=torch.uint8, device="cuda")
    try:
        pipeline.offer(large)
        said = replies.last()
        assert isinstance(said, str)
        assert "memory does not suffice" in said
        pipeline.offer(small)
        assert replies.last().shape == (1, 32)
    finally:
        del ballast
        torch.cuda.empty_cache()
    pipeline.offer(large)
    assert replies.last().shape == (rows, 32)
    pipeline.close()
    assert ended == []


def test_a_lost_gpu_ends_the_process_and_gives_nobody_values() -> None:
    done = in_a_process(LOST)
    assert done.returncode == 1
    assert "model process ends: the GPU can't be used any more" in done.stderr
    assert done.stdout.startswith("failed Stub process ends: ")
    assert "answered" not in done.stdout


def test_a_gpu_that_is_hidden_is_missed_with_the_reason() -> None:
    done = in_a_process(HIDDEN, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert "GPU" in done.stdout
    assert in_a_process(HIDDEN).stdout == "\n"


def test_a_model_that_waits_for_its_gpu_runs_without_graphs_and_keeps_no_memory(
    folder: Path, engines: ModuleType, devices: ModuleType
) -> None:
    import torch
    from tiny_encoders import write_encoder, write_told

    class WaitingEngine(engines.PackedEngine):  # type: ignore[name-defined]
        def forward(self, inputs: Any, tokens: int, longest: int) -> Any:
            values = super().forward(inputs, tokens, longest)
            values.sum().item()
            return values

    write_encoder(folder, "bert", "AutoModel")
    told = write_told(folder, "AutoModel", modes=["mean"], normalise=True, dtype="fp16")
    runner = devices.OnGpu(WaitingEngine(folder, told, "cuda:0"))
    assert runner.describe().startswith("0 CUDA graphs")
    ids, starts = np.full(4000, 31, np.int32), np.arange(0, 4001, LONGEST, dtype=np.int32)
    held = []
    for _ in range(50):
        assert np.isfinite(runner.begin(ids, starts, None).values()).all()
        held.append(torch.cuda.memory_allocated())
    assert held[-1] <= held[4]
    assert torch.cuda.get_sync_debug_mode() == 0

"""A packed engine on a GPU: held to the same engine on the CPU. Skipped where there is no GPU."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from packed_files import beside_each_other, packed
from tiny_encoders import LONGEST, VOCABULARY, starts_of, write_encoder, write_told

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.export

has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICE = "cuda:0"
HALF = 2e-2  # of vectors of length 1
# Heads have 8 values each, which is the least that flash attention takes, or 6.
KINDS: tuple[tuple[str, Mapping[str, int]], ...] = (
    *(("bert", {}), ("bert", {"hidden_size": 24}), ("eurobert", {}), ("modernbert", {})),
    ("roberta", {}),
)


@pytest.fixture(scope="module")
def device_module() -> Iterator[ModuleType]:
    with beside_each_other():
        yield packed("packed_device")


def engines(
    folder: Path, kind: str, sizes: Mapping[str, int] | None = None, **told: object
) -> tuple[Any, Any]:
    """The same model on the GPU in fp16 and on the CPU in fp32."""
    module = packed("packed_engine")
    write_encoder(folder, kind, "AutoModel", 0, **(sizes or {}))
    further = {"modes": ["mean", "max"], "normalise": True, **told}
    there = write_told(folder, "AutoModel", **{"dtype": "fp16", **further})
    here = write_told(folder, "AutoModel", **{**further, "dtype": "fp32"})
    return module.PackedEngine(folder, there, DEVICE), module.PackedEngine(folder, here)


def rows_of(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array(starts_of(lengths), np.int32)
    random = np.random.default_rng(seed)
    return random.integers(5, VOCABULARY, starts[-1]).astype(np.int32), starts


def test_without_a_gpu_the_reason_names_what_is_missing(device_module: ModuleType) -> None:
    why = device_module.missing_gpu(torch.cuda.device_count())
    if torch.cuda.is_available():
        assert "is not among the" in why
    else:
        assert why.startswith(f"torch {torch.__version__}")


@has_gpu
@pytest.mark.parametrize(("kind", "sizes"), KINDS)
def test_a_gpu_answers_as_the_cpu_with_and_without_a_graph(
    device_module: ModuleType, tmp_path: Path, kind: str, sizes: Mapping[str, int]
) -> None:
    there, here = engines(tmp_path, kind, sizes)
    there.check()
    few = device_module.shapes()[-8:]
    for runner in (device_module.OnGpu(there, few), device_module.OnGpu(there, ())):
        for lengths in ([3], [LONGEST, 1, 9], [2] * 12, [LONGEST] * 30):
            ids, starts = rows_of(lengths)
            answers = runner.begin(ids, starts, None).values()
            np.testing.assert_allclose(answers, here.run(ids, starts), atol=HALF)


@has_gpu
def test_runs_on_the_way_at_once_keep_their_own_answers(
    device_module: ModuleType, tmp_path: Path
) -> None:
    there, here = engines(tmp_path, "bert")
    runner = device_module.OnGpu(there)
    assert "0 left out" in runner.describe()
    random = np.random.default_rng(0)
    runs = []
    for seed in range(200):
        ids, starts = rows_of(random.integers(1, LONGEST, random.integers(1, 60)).tolist(), seed)
        runs.append((ids, starts, runner.begin(ids, starts, None)))
    for ids, starts, result in runs:
        np.testing.assert_allclose(result.values(), here.run(ids, starts), atol=HALF)


@has_gpu
def test_full_precision_runs_on_a_gpu_without_graphs(
    device_module: ModuleType, tmp_path: Path
) -> None:
    there, here = engines(tmp_path, "modernbert", dtype="fp32")
    runner = device_module.OnGpu(there)
    assert runner.describe().startswith("0 CUDA graphs")
    ids, starts = rows_of([7, LONGEST, 1])
    np.testing.assert_allclose(
        runner.begin(ids, starts, None).values(), here.run(ids, starts), atol=1e-4
    )

"""A fused graph in fixed shapes on a GPU answers as on the CPU, by CUDA graphs too."""

import json
from pathlib import Path
from typing import Any

import fixed_graphs
import numpy as np
import onnxruntime
import pytest
from fixed_graphs import OUTPUT, batch_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

SHAPES = [(1, 4), (4, 4), (1, 8), (4, 8)]
CUDA = "CUDAExecutionProvider"


@pytest.fixture
def _cuda() -> None:
    if CUDA not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no CUDA (install onnxruntime-gpu)")
    onnxruntime.preload_dlls()


@pytest.mark.usefixtures("_cuda")
@pytest.mark.parametrize("graphs", [False, True], ids=["kernel by kernel", "CUDA graphs"])
def test_batches_answer_as_each_row_alone_on_the_cpu(tmp_path: Path, *, graphs: bool) -> None:
    path = fixed_graphs.write_attending(tmp_path / "model.onnx")
    options: dict[str, Any] = {"device_id": 0, **({"enable_cuda_graph": "1"} if graphs else {})}
    session = onnxruntime.InferenceSession(
        str(path), providers=[(CUDA, options), "CPUExecutionProvider"]
    )
    assert CUDA in session.get_providers()
    told = json.loads(json.dumps(fixed_graphs.told(SHAPES)))
    fixed = fixed_graphs.fixed_shapes().FixedShapes(session, told, gpu=0, graphs=graphs)
    plain = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for count in (1, 3, 4, 9):
        rows = [random.integers(1, 20, size=random.integers(1, 9)).tolist() for _ in range(count)]
        (found,) = fixed.run([OUTPUT], batch_of(rows))
        for row, answer in zip(rows, found, strict=True):
            (alone,) = plain.run([OUTPUT], batch_of([row]))
            np.testing.assert_allclose(answer, alone[0], atol=5e-3)  # TF32 products

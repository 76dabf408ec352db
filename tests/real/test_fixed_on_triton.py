"""A fused graph in fixed shapes, placed as a loader does, on a real Triton."""

from pathlib import Path

import fixed_graphs
import numpy as np
import onnxruntime
import pytest
from fixed_graphs import OUTPUT, WIDTH, batch_of
from own_servers import TritonProcess
from real_triton import reached
from registry_fakes import manifest

from contracts.manifest import CONFIG_PYTHON, DEVICE_PROOF, MANIFEST, MODEL_ONNX, FixedSpec
from contracts.tensors import Datatype, TensorSpec
from registry.errors import TritonRefusedError
from registry.loading.placement import UploadedFiles
from registry.loading.splits import InstanceSplit
from registry.loading.triton_client import GrpcTriton
from registry.packages import triton_config

pytestmark = pytest.mark.real

ROWS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 13], [14]]


async def test_batches_of_any_shape_answer_as_each_row_alone_and_too_long_rows_are_refused(
    triton: TritonProcess, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    graph = fixed_graphs.write_attending(package / MODEL_ONNX)
    output = TensorSpec(name=OUTPUT, datatype=Datatype.FP32, shape=(-1, WIDTH))
    changes = {"fixed": FixedSpec(rows=(1, 8), fused={"Attention": 1}), "outputs": (output,)}
    made = manifest().model_copy(update=changes)
    (package / MANIFEST).write_bytes(made.canonical())
    (package / DEVICE_PROOF).write_text("{}")
    config, _ = triton_config.render(
        inputs=made.inputs, outputs=made.outputs, max_batch_size=8, threads=1
    )
    (package / CONFIG_PYTHON).write_text(config)
    client = GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0)
    plain = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    try:
        await reached(client)
        await client.load(
            "fixed", UploadedFiles().place("fixed", package, "python", InstanceSplit(1, 1))
        )
        for count in range(1, len(ROWS) + 1):
            found = await client.outputs("fixed", batch_of(ROWS[:count]))
            alone = [plain.run([OUTPUT], batch_of([row]))[0][0] for row in ROWS[:count]]
            np.testing.assert_allclose(found, alone, atol=2e-5)
        with pytest.raises(TritonRefusedError, match="it takes rows of 8 at most"):
            await client.outputs("fixed", batch_of(ROWS, 9))
        assert "Traceback" not in triton.log.read_text()
    finally:
        await client.close()

"""A Triton in a process of its own, which can be killed: ``python -P simulated_triton.py PORT``.

It computes one batch after the other, each in the time of ``echo_engine``'s simulated accelerator,
and answers each row the sum of its tokens, and 1.
"""

import asyncio
import sys
from typing import Any

import grpc
import numpy as np
from echo_engine import SimulatedCost
from tritonclient.grpc import service_pb2, service_pb2_grpc

from bench.core.instant_triton import InstantTriton

COST = SimulatedCost()


class SimulatedTriton(InstantTriton):
    """Answers batches of any model."""

    def __init__(self) -> None:
        super().__init__(2)
        self._turn = asyncio.Lock()

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The sum of each row of the first tensor, and 1."""
        rows, length = request.inputs[0].shape
        ids = np.frombuffer(request.raw_input_contents[0], np.int64).reshape(rows, length)
        async with self._turn:
            await asyncio.sleep(COST.batch_seconds + COST.padded_token_seconds * ids.size)
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        answer.outputs.add(name=request.outputs[0].name, datatype="FP32", shape=[rows, 2])
        values = np.stack([ids.sum(axis=1), np.ones(rows)], axis=1).astype(np.float32)
        answer.raw_output_contents.append(values.tobytes())
        return answer


async def serve(port: int) -> None:
    """Until it is killed."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(SimulatedTriton(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

"""A Triton that answers every batch at once: ``python -P -m bench.core.instant_triton WIDTH``.

It prints its port and serves until its standard input ends. What a gateway spends on gRPC is real
before it, and no engine has to be waited for.
"""

import asyncio
import sys
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc


class InstantTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers batches of any model with zeros, ``width`` values a row."""

    def __init__(self, width: int) -> None:
        self._width = width

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Always ready."""
        return service_pb2.ModelReadyResponse(ready=True)

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: ANN401, ARG002, N802
        """Zeros for each row of the first tensor."""
        rows = request.inputs[0].shape[0]
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        name = request.outputs[0].name
        answer.outputs.add(name=name, datatype="FP32", shape=[rows, self._width])
        answer.raw_output_contents.append(np.zeros((rows, self._width), np.float32).tobytes())
        return answer


async def _serve(width: int) -> None:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(InstantTriton(width), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))

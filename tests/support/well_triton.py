"""What a well Triton that holds one model, ``m``, answers over gRPC: a server in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

KEY = ("triton-grpc-protocol-headrace-key", "secret")
VALUES = np.array([[0.25, 0.75]], np.float32)


class WellTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers what a Triton would."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.values = VALUES

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ModelReadyResponse(ready=request.name == "m")

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        if KEY not in {(key, value) for key, value in context.invocation_metadata()}:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
        self.loaded.append(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.model_name != "m":
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown model")
        rows = request.inputs[0].shape[0]
        answer = pb.ModelInferResponse(model_name="m")
        answer.outputs.add(name="logits", datatype="FP32", shape=[rows, 2])
        answer.raw_output_contents.append(np.tile(self.values, (rows, 1)).tobytes())
        return answer

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802
        async for each in requests:
            answer = pb.ModelStreamInferResponse()
            answer.infer_response.id = each.id
            yield answer


@asynccontextmanager
async def well_triton() -> AsyncIterator[tuple[str, WellTriton]]:
    """One that listens: ``host:port``, and what it was asked."""
    server, well = grpc.aio.server(), WellTriton()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(well, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", well
    finally:
        await server.stop(None)

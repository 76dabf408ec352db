"""Streams of tokens from one Triton, over gRPC's own client: ``http2/unary.py`` makes no streams.

Its connection is made for the first prompt, so that a gateway without models that write has none.
"""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from contracts.tasks import (
    ENGINE_OUTPUT,
    INPUT_IDS,
    MAX_TOKENS,
    SEED,
    STOP_IDS,
    TEMPERATURE,
    TOP_P,
    Task,
)
from gateway.engine.channel import open_channel
from gateway.engine.protocol import (
    Ending,
    EngineError,
    EngineModelError,
    EngineUnavailableError,
    Prompt,
    TokenChunk,
)
from service.mutual_tls import MutualTls

_TOKENS = ENGINE_OUTPUT[Task.TEXT_GENERATION].name

ErrorOf = Callable[[grpc.StatusCode, str, str], EngineError]


class TextStreams:
    """All streams to one Triton.

    Args:
        address: ``host:port`` of its gRPC service.
        error_of: the error for a status, its details and the address.
        tls: None: the connection is plain.
    """

    def __init__(self, address: str, error_of: ErrorOf, tls: MutualTls | None = None) -> None:
        self._address = address
        self._error_of = error_of
        self._tls = tls
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    def open(self, prompt: Prompt, timeout_seconds: float) -> "TritonStream":
        """Sends a prompt."""
        if self._channel is None:
            self._channel = open_channel(self._address, self._tls)
            self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        requests = iter((prompt_request(prompt),))
        call = self._stub.ModelStreamInfer(requests, timeout=timeout_seconds)
        return TritonStream(call, self._error_of, self._address)

    async def close(self) -> None:
        """Closes the connection; what is written breaks off as unavailable."""
        if self._channel is not None:
            await self._channel.close()


class TritonStream:
    """One prompt on its own stream of gRPC, whose end Triton takes for a cancellation."""

    def __init__(self, call: Any, error_of: ErrorOf, address: str) -> None:  # noqa: ANN401
        self._call = call
        self._error_of = error_of
        self._address = address

    async def next(self) -> TokenChunk:
        """See ``TokenStream`` in ``gateway/engine/protocol.py``."""
        while True:
            try:
                part = await self._call.read()
            except grpc.aio.AioRpcError as error:
                details = error.details() or ""
                raise self._error_of(error.code(), details, self._address) from error
            except grpc.aio.UsageError as closed:  # the channel was closed under the call
                raise EngineUnavailableError(f"{self._address}: {closed}") from closed
            if part is grpc.aio.EOF:
                raise EngineUnavailableError(f"{self._address}: the stream ended before the text")
            if part.error_message:
                status = grpc.StatusCode.INTERNAL
                raise self._error_of(status, part.error_message, self._address)
            if part.infer_response.raw_output_contents:
                return generated(part.infer_response)

    def close(self) -> None:
        """See ``TokenStream`` in ``gateway/engine/protocol.py``."""
        self._call.cancel()


def prompt_request(prompt: Prompt) -> Any:  # noqa: ANN401 - protobuf's messages have no types
    """The protobuf message of a prompt."""
    request = service_pb2.ModelInferRequest(model_name=prompt.model)
    for name, datatype, array in (
        (INPUT_IDS, "INT64", np.array(prompt.ids, np.int64)),
        (MAX_TOKENS, "INT32", np.array([prompt.most], np.int32)),
        (TEMPERATURE, "FP32", np.array([prompt.temperature], np.float32)),
        (TOP_P, "FP32", np.array([prompt.top_p], np.float32)),
        (SEED, "INT64", np.array([prompt.seed], np.int64)),
        (STOP_IDS, "INT64", np.array(prompt.stop_ids, np.int64)),
    ):
        if array.size:
            request.inputs.add(name=name, datatype=datatype, shape=array.shape)
            request.raw_input_contents.append(array.tobytes())
    return request


def generated(response: Any) -> TokenChunk:  # noqa: ANN401 - as above
    """The tokens of a response, and whether they are the last.

    Raises:
        EngineModelError: the answer has not the two tensors that it should have.
    """
    found = {
        tensor.name: np.frombuffer(content, np.int32).tolist()
        for tensor, content in zip(response.outputs, response.raw_output_contents, strict=False)
        if tensor.datatype == "INT32"
    }
    tokens, finish = found.get(_TOKENS), found.get("finish")
    if not tokens or not finish:
        raise EngineModelError(f"the answer has no tensors {_TOKENS} and finish")
    return TokenChunk(tokens, Ending(finish[0]) if finish[0] else None)

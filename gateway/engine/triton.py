"""The client of one Triton over gRPC: one connection, raw tensors, a deadline on every call.

It uses ``tritonclient`` only for the messages of the Open Inference Protocol: its client class
copies every tensor. Calls go through ``http2/unary.py``, or through gRPC's channel if asked for.
If no server listens at the address, a call fails at once, and the next one tries to connect again.
"""

import math
from typing import Any, Protocol

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from contracts.gpu_faults import ends_process
from gateway.engine.channel import ChannelClient
from gateway.engine.http2.unary import CallError, UnaryClient
from gateway.engine.large_answers import BATCH_INLINE_BYTES, beside
from gateway.engine.protocol import (
    EngineBusyError,
    EngineError,
    EngineMissingModelError,
    EngineModelError,
    EngineProcessGoneError,
    EngineTimeoutError,
    EngineUnavailableError,
    Prompt,
    Work,
)
from gateway.engine.text_streams import TextStreams, TritonStream
from service.mutual_tls import MutualTls

_INFER = "/inference.GRPCInferenceService/ModelInfer"
_READY = "/inference.GRPCInferenceService/ModelReady"

_DATATYPES = {
    np.dtype(np.int64): "INT64",
    np.dtype(np.int32): "INT32",
    np.dtype(np.uint8): "UINT8",
    np.dtype(np.float64): "FP64",
}

# Triton's messages under the status INTERNAL for errors that are not the model's: the Python
# backend's process was killed, which Triton does not start again, or Triton itself shuts down.
_PROCESS_GONE = ("stub process", "is not healthy")
_GOING_AWAY = ("shutting down", "server exiting")
_BUSY = ("queue is full",)  # of ``triton/generation_model``
_SAID: tuple[tuple[tuple[str, ...], type[EngineError]], ...] = (
    (_PROCESS_GONE, EngineProcessGoneError),
    (_GOING_AWAY, EngineUnavailableError),
    (_BUSY, EngineBusyError),
)
# How an error begins that a model of the Python backend raised (``triton/``). What follows may be a
# stranger's words, and says nothing of Triton.
_OF_MODEL = "engine: "
# Triton's messages for a model that is not loaded, under more than one status.
_NOT_HELD = ("unknown model", "is not found", "is not ready", "no available versions")


class RpcClient(Protocol):
    """What makes unary calls to one address."""

    async def call(self, method: str, message: bytes, timeout_seconds: float) -> bytes:
        """The message that answers one; raises ``CallError``."""

    async def close(self) -> None:
        """Closes the connection; calls in flight fail as unavailable."""


class TritonEngine:
    """One Triton, by ``host:port`` of its gRPC service, over TLS if told.

    ``own_client``: whether unary calls are made by ``http2/unary.py``, or by gRPC's own channel.
    """

    def __init__(
        self, address: str, tls: MutualTls | None = None, *, own_client: bool = True
    ) -> None:
        self._address = address
        self._client: RpcClient = (
            UnaryClient(address, tls, beside=beside) if own_client else ChannelClient(address, tls)
        )
        self._streams = TextStreams(address, engine_error, tls)

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """The result of one batch; see ``Engine`` in ``gateway/engine/protocol.py``."""
        message = infer_request(work).SerializeToString()
        try:
            answer = await self._client.call(_INFER, message, timeout_seconds)
        except CallError as error:
            raise engine_error(error.code, error.details, self._address) from error
        if len(answer) > BATCH_INLINE_BYTES:
            return await beside(lambda: self._result(answer, work.output))
        return self._result(answer, work.output)

    def _result(self, answer: bytes, output: str) -> NDArray[np.float32]:
        try:
            response = service_pb2.ModelInferResponse.FromString(answer)
        except DecodeError as broken:
            raise EngineModelError(f"{self._address}: the answer is no message") from broken
        return result(response, output)

    def generate(self, prompt: Prompt, timeout_seconds: float) -> TritonStream:
        """The tokens of a prompt; see ``Engine`` in ``gateway/engine/protocol.py``."""
        return self._streams.open(prompt, timeout_seconds)

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """Whether Triton answers and calls the model ready."""
        message = service_pb2.ModelReadyRequest(name=model).SerializeToString()
        try:
            answer = await self._client.call(_READY, message, timeout_seconds)
            return bool(service_pb2.ModelReadyResponse.FromString(answer).ready)
        except (CallError, DecodeError):
            return False

    async def close(self) -> None:
        """Closes the connection; calls in flight fail as unavailable."""
        await self._client.close()
        await self._streams.close()


def infer_request(work: Work) -> Any:  # noqa: ANN401 - protobuf's messages have no types
    """The protobuf message of a batch; raises ``TypeError``."""
    request = service_pb2.ModelInferRequest(model_name=work.model)
    for name, array in work.tensors.items():
        datatype = _DATATYPES.get(array.dtype)
        if datatype is None:
            raise TypeError(f"tensor {name} is {array.dtype}, not int64, int32, uint8 or float64")
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    request.outputs.add(name=work.output)
    return request


def result(response: Any, output: str) -> NDArray[np.float32]:  # noqa: ANN401 - as above
    """The named float32 tensor of an answer, rows first, read-only.

    Raises:
        EngineModelError: the answer lacks it, or its type or size is another.
    """
    for index, tensor in enumerate(response.outputs):
        if tensor.name == output and index < len(response.raw_output_contents):
            shape = tuple(tensor.shape)
            if tensor.datatype != "FP32" or len(shape) < 2:
                raise EngineModelError(
                    f"{output} is {tensor.datatype} {shape}, not FP32 [n, width]"
                )
            values = np.frombuffer(response.raw_output_contents[index], np.float32)
            if values.size != math.prod(shape):
                raise EngineModelError(f"{output} has {values.size} values for shape {shape}")
            return values.reshape(shape)
    raise EngineModelError(f"the answer has no tensor {output}")


def engine_error(code: grpc.StatusCode, details: str, address: str) -> EngineError:
    """The error for a gRPC status, with Triton's message in it."""
    message = f"{address}: {code.name}: {details}"
    words = details.lower()
    status = grpc.StatusCode
    if code == status.INTERNAL and details.startswith(_OF_MODEL):
        return EngineModelError(message)
    if code == status.DEADLINE_EXCEEDED:
        return EngineTimeoutError(message)
    if code == status.NOT_FOUND or any(phrase in words for phrase in _NOT_HELD):
        return EngineMissingModelError(message)
    if code in {status.UNAVAILABLE, status.CANCELLED, status.RESOURCE_EXHAUSTED}:
        return EngineUnavailableError(message)
    return _kind_of(words)(message)


def _kind_of(words: str) -> type[EngineError]:
    """What Triton's own words mean; they may be of its process's GPU."""
    if ends_process(words):
        return EngineProcessGoneError
    for phrases, error in _SAID:
        if any(phrase in words for phrase in phrases):
            return error
    return EngineModelError

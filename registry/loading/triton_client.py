"""Speaks to one Triton about its models, over gRPC.

Predictions go from the gateway to Triton without it. Every call has a deadline. It keeps the
channel, which reconnects by itself within a second of Triton's return, and how each model that
stays ready is run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from contracts.loading import CONTROL_KEY
from contracts.tasks import INPUT_IDS, MAX_TOKENS
from registry.errors import (
    BackendMissingError,
    ModelProcessGoneError,
    TritonLateError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.packages.triton_config import ASK, THREADS
from service import mutual_tls
from service.mutual_tls import MutualTls

_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
_NO_BACKEND = ("unable to find backend library", "unable to find 'libtriton_")
_PROCESS_GONE = "Stub process"
OF_MODEL = "engine: "  # how what a model of the Python backend raised begins (``triton/``)
PROBE = "headrace-probe"  # the id of a request of the prober's (``triton/pyfunc_model``)
_DATATYPES = {"int64": "INT64", "int32": "INT32", "uint8": "UINT8", "float64": "FP64"}
_OPTIONS = (
    ("grpc.max_send_message_length", -1),  # a whole model may be uploaded
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # of one attempt: a busy machine needs more than 0.1 s
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)

Overrides = Mapping[str, str | bytes]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ModelInstances:
    """How Triton runs a model: ``copies`` on each GPU if it is on GPUs, ``instances`` in all.

    ``threads``: of a CPU, for one execution; 0 if Triton is not told.
    """

    backend: str
    copies: int
    instances: int
    threads: int
    on_gpu: bool = False


class Triton(Protocol):
    """One Triton's models. Each call raises ``TritonUnavailableError`` if none answers."""

    async def held(self, names: Iterable[str]) -> Mapping[str, ModelInstances]:
        """Those of the models in ``names`` that are ready, and how each is run."""

    async def load(self, name: str, overrides: Overrides) -> None:
        """Loads a model from the repository, or from ``overrides`` (config and files).

        One that is loaded is loaded again, and answers meanwhile as it was; so it goes on if
        that is refused.

        Raises:
            TritonRefusedError: with Triton's words.
        """

    async def unload(self, name: str) -> None:
        """Unloads a model; one that is not there is no error."""

    async def infer(
        self, name: str, inputs: Mapping[str, NDArray[np.number]], request_id: str = ""
    ) -> tuple[int, int]:
        """Runs one batch; returns how many rows came back, and how many bytes.

        Of a model that generates (with ``max_tokens``) it is one prompt, and a row is a response.

        Raises:
            TritonRefusedError: the model failed, or answers a probe of tokens with NaN.
        """

    async def outputs(
        self, name: str, inputs: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[np.float32]:
        """Runs one batch; returns the one output, which is float32.

        Raises:
            TritonRefusedError: the model failed, or has another output.
        """


class GrpcTriton:
    """A Triton at an address.

    Args:
        target: ``host:port`` of its gRPC.
        call_seconds: deadline of a short call.
        load_seconds: deadline of a load, of an unload, and of one warm-up batch.
        key_file: file with the key that Triton asks for before it loads a model; it is read at each
            load, because a Triton that restarts may have another.
        tls: None: the connection is plain.
        own: what another client of the same program sends to this Triton counts with what this one
            does.
    """

    def __init__(
        self,
        target: str,
        *,
        call_seconds: float,
        load_seconds: float,
        key_file: Path | None = None,
        tls: MutualTls | None = None,
        own: "OwnRequests | None" = None,
    ) -> None:
        self._channel = mutual_tls.channel(target, _OPTIONS, tls)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._target = target
        self._call_seconds = call_seconds
        self._load_seconds = load_seconds
        self._key_file = key_file
        self._known: dict[
            str, ModelInstances
        ] = {}  # asked once while a model stays as it was loaded
        self.own: OwnRequests = {} if own is None else own

    async def held(self, names: Iterable[str]) -> Mapping[str, ModelInstances]:
        """Those of the models in ``names`` that are ready, and how each is run.

        Asked one by one: Triton's index of its repository leaves uploaded models out.
        """
        asked = tuple(names)
        live = service_pb2.ServerLiveRequest()
        try:
            await self._stub.ServerLive(live, timeout=self._call_seconds)
            ready = await asyncio.gather(*(self._read_instances(name) for name in asked))
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        return {name: how for name, how in zip(asked, ready, strict=True) if how is not None}

    async def _read_instances(self, name: str) -> ModelInstances | None:
        """How a model is run; None if it is not ready."""
        request = service_pb2.ModelReadyRequest(name=name)
        try:
            response = await self._stub.ModelReady(request, timeout=self._call_seconds)
            if not response.ready:
                self._known.pop(name, None)
            elif name not in self._known:
                config = service_pb2.ModelConfigRequest(name=name)
                answer = await self._stub.ModelConfig(config, timeout=self._call_seconds)
                self._known[name] = _parse_instances(answer.config)
        except grpc.aio.AioRpcError as error:
            self._known.pop(name, None)
            if error.code() in _AWAY:
                raise
            return None  # a model that Triton does not know
        return self._known.get(name)

    async def load(self, name: str, overrides: Overrides) -> None:
        """Loads a model; see the Protocol."""
        request = service_pb2.RepositoryModelLoadRequest(model_name=name)
        for key, value in overrides.items():
            if isinstance(value, bytes):
                request.parameters[key].bytes_param = value
            else:
                request.parameters[key].string_param = value
        self._known.pop(name, None)
        try:
            await self._answer(self._stub.RepositoryModelLoad, request, self._control())
        finally:
            self._known.pop(name, None)  # what was asked meanwhile

    async def unload(self, name: str) -> None:
        """Unloads a model; see the Protocol."""
        request = service_pb2.RepositoryModelUnloadRequest(model_name=name)
        await self._answer(self._stub.RepositoryModelUnload, request, self._control())
        self.own.pop(name, None)  # with the model, Triton forgets what it counted

    async def infer(
        self, name: str, inputs: Mapping[str, NDArray[np.number]], request_id: str = ""
    ) -> tuple[int, int]:
        """Runs one batch; see the Protocol."""
        own = self.own.setdefault(name, SentRequests())
        own.begun += 1
        try:
            return await self._infer(name, inputs, request_id)
        finally:
            own.ended += 1

    async def ask(self, name: str) -> bytes:
        """What a model answers that takes nothing, as ``devices.ProbedTriton`` has it."""
        request = service_pb2.ModelInferRequest(model_name=name)
        request.inputs.add(name=ASK, datatype="INT32", shape=(1,))
        request.raw_input_contents.append(bytes(4))
        try:
            response = await self._stub.ModelInfer(request, timeout=self._call_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        return bytes(response.raw_output_contents[0])

    async def requests(self) -> Mapping[str, int | None]:
        """What others ask; see ``Demand`` in ``registry/loading/idling.py``."""
        before = {name: own.settled for name, own in self.own.items()}
        request = service_pb2.ModelStatisticsRequest()
        try:
            answer = await self._stub.ModelStatistics(request, timeout=self._call_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        counted: dict[str, int | None] = {}
        for model in answer.model_stats:
            own = self.own.get(model.name, SentRequests())
            seen = model.inference_stats.success.count + model.inference_stats.fail.count
            if own.settled is None or before.get(model.name, 0) != own.settled:
                counted[model.name] = None  # whether it was counted already, nobody knows
            else:
                counted[model.name] = seen - own.settled
        return counted

    async def _infer(
        self, name: str, inputs: Mapping[str, NDArray[np.number]], request_id: str
    ) -> tuple[int, int]:
        request = _request(name, inputs, request_id)
        if MAX_TOKENS in inputs:
            return await self._generate(request)
        response = await self._answer(self._stub.ModelInfer, request)
        if request_id == PROBE and INPUT_IDS in inputs and _lacks_numbers(response):
            raise TritonRefusedError(f"{name} answers with NaN or infinity")
        rows = min((output.shape[0] for output in response.outputs), default=0)
        return rows, sum(len(content) for content in response.raw_output_contents)

    async def outputs(
        self, name: str, inputs: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[np.float32]:
        """The one output of a batch; see the Protocol."""
        own = self.own.setdefault(name, SentRequests())
        own.begun += 1
        try:
            response = await self._answer(self._stub.ModelInfer, _request(name, inputs))
        finally:
            own.ended += 1
        found = list(zip(response.outputs, response.raw_output_contents, strict=False))
        if [output.datatype for output, _ in found] != ["FP32"]:
            raise TritonRefusedError(f"{name} answered with other tensors than one of FP32")
        ((output, content),) = found
        return np.frombuffer(content, np.float32).reshape(tuple(output.shape))

    async def count_executed(self, name: str) -> int:
        """How many batches of a model were run since it was loaded; raises as ``Triton`` says."""
        request = service_pb2.ModelStatisticsRequest(name=name)
        try:
            answer = await self._stub.ModelStatistics(request, timeout=self._call_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        return sum(each.execution_count for each in answer.model_stats)

    async def count_refused(self) -> Mapping[str, int]:
        """How many requests each model has failed; raises as ``Triton`` says."""
        request = service_pb2.ModelStatisticsRequest()
        try:
            answer = await self._stub.ModelStatistics(request, timeout=self._call_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        return {each.name: each.inference_stats.fail.count for each in answer.model_stats}

    async def _generate(self, request: service_pb2.ModelInferRequest) -> tuple[int, int]:
        """How many responses a request has, and of how many bytes."""
        count = size = 0
        try:
            call = self._stub.ModelStreamInfer(iter((request,)), timeout=self._load_seconds)
            async for part in call:
                if part.error_message:
                    raise self._make_refusal(part.error_message)
                contents = part.infer_response.raw_output_contents
                count += bool(contents)
                size += sum(map(len, contents))
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error
        return count, size

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()

    def _control(self) -> Metadata:
        """The metadata that Triton asks for before it loads or unloads a model."""
        if self._key_file is None:
            return ()
        try:
            key = self._key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TritonUnavailableError(f"the key of Triton can't be read: {error}") from error
        return ((f"triton-grpc-protocol-{CONTROL_KEY}", key),)

    async def _answer(
        self,
        call: Callable[..., Awaitable[Any]],
        request: object,
        metadata: Metadata = (),
    ) -> Any:  # noqa: ANN401
        try:
            return await call(request, timeout=self._load_seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self._translate_error(error) from error

    def _translate_error(
        self, error: "grpc.aio.AioRpcError"
    ) -> TritonUnavailableError | TritonRefusedError:
        details = (error.details() or error.code().name).strip().rstrip(";").strip()
        if error.code() in _AWAY:
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            kind = TritonLateError if is_late else TritonUnavailableError
            return kind(f"Triton at {self._target} does not answer: {details}")
        return self._make_refusal(details)

    def _make_refusal(self, details: str) -> TritonRefusedError:
        if details.startswith(OF_MODEL):  # words of a version's own code, whatever they say
            return TritonRefusedError(details)
        if any(sign in details for sign in _NO_BACKEND):
            return BackendMissingError(details)
        if _PROCESS_GONE in details:
            return ModelProcessGoneError(details)
        return TritonRefusedError(details)


def _lacks_numbers(response: Any) -> bool:  # noqa: ANN401
    """Whether an answer has NaN or infinity, which gateways refuse, in the place of a number."""
    found = zip(response.outputs, response.raw_output_contents, strict=False)
    return any(
        not np.isfinite(np.frombuffer(content, np.float32)).all()
        for output, content in found
        if output.datatype == "FP32"
    )


def _request(
    name: str, inputs: Mapping[str, NDArray[np.generic]], request_id: str = ""
) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name=name, id=request_id)
    for key, array in inputs.items():
        datatype = _DATATYPES[array.dtype.name]
        request.inputs.add(name=key, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


@dataclass(slots=True)
class SentRequests:
    """Requests that this program has sent to a model."""

    begun: int = 0
    ended: int = 0

    @property
    def settled(self) -> int | None:
        """How many there were; None while one is on its way."""
        return self.ended if self.begun == self.ended else None


OwnRequests = dict[str, SentRequests]  # by Triton's name of the model


def _parse_instances(config: model_config_pb2.ModelConfig) -> ModelInstances:
    groups = config.instance_group
    gpu = model_config_pb2.ModelInstanceGroup.KIND_GPU
    threads = config.parameters[THREADS].string_value  # empty if there is none
    return ModelInstances(
        backend=config.backend,
        copies=sum(group.count for group in groups),
        instances=sum(group.count * max(1, len(group.gpus)) for group in groups),
        threads=int(threads) if threads.isdecimal() else 0,
        on_gpu=any(group.kind == gpu for group in groups),
    )

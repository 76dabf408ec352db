"""The Open Inference Protocol over gRPC: ``inference.GRPCInferenceService``.

``gateway.main`` adds the service to its ``grpc.aio`` server, beside the HTTP front and on the same
event loop. Unmodified ``tritonclient.grpc`` works. What HTTP says in headers is metadata here:
``x-request-id`` and the rest of ``answer_headers`` before the answer; an error's code, and when to
try again, after it.
"""

# ruff: noqa: N802  the methods have the protocol's names

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import NoReturn, TypeVar

import grpc
from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2, service_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from gateway.calls import Answer, EndpointView, Query
from gateway.dialects import oip
from gateway.dialects.front import Front, answer_headers, truncated_texts
from gateway.errors import (
    CLIENT_GONE_STATUS,
    BadRequestError,
    GatewayError,
    InvalidInputError,
    ShuttingDownError,
    UnknownEndpointError,
    UnknownVersionError,
    UnsupportedError,
    forget_frames,
    internal_error,
)
from gateway.http.body import HttpLimits
from gateway.request_context import RequestContext, new_request_id

log = logging.getLogger(__name__)

T = TypeVar("T")

# Calls that may wait in gRPC's core before they are passed to the event loop, where the request
# scheduler counts them. Above this number the core cancels some new calls, above twice the number
# all, and calls that have waited for ``_PENDING_SECONDS``. The core's defaults are 1,000, 3,000 and
# 30 s. With these, under heavy overload nearly every call would arrive after its caller gave up.
_PENDING = 512
_PENDING_SECONDS = 1

# A call that reaches gRPC's core after it was told to stop ends as CANCELLED, which clients do not
# retry. Therefore, before the server stops, calls are refused with a status that clients retry,
# until none has arrived in ``_QUIET_TURNS`` waits one after the other, or after ``_MOST_TURNS``
# waits. A process that stands still for seconds, as on a busy machine, has waited once: calls that
# came meanwhile are seen before it counts as quiet.
_QUIET_TURNS = 10
_MOST_TURNS = 120
_TURN_SECONDS = 0.025

_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_UNSUPPORTED = {
    "ModelStatistics": "statistics: /metrics has them",
    "RepositoryIndex": "the model repository: GET /endpoints lists what is served",
    "RepositoryModelLoad": "loading by hand: register a version",
    "RepositoryModelUnload": "unloading by hand: register a version",
    "SystemSharedMemoryStatus": "shared memory: send the tensors themselves",
    "SystemSharedMemoryRegister": "shared memory: send the tensors themselves",
    "SystemSharedMemoryUnregister": "shared memory: send the tensors themselves",
    "CudaSharedMemoryStatus": "shared memory: send the tensors themselves",
    "CudaSharedMemoryRegister": "shared memory: send the tensors themselves",
    "CudaSharedMemoryUnregister": "shared memory: send the tensors themselves",
    "TraceSetting": "trace settings",
    "LogSettings": "log settings",
}


def create_server(
    service: "OpenInferenceGrpc",
    limits: HttpLimits,
    connection_seconds: float = math.inf,
    pending_seconds: int = _PENDING_SECONDS,
) -> grpc.aio.Server:
    """A server with the service, on the running event loop, not started and without a port.

    A message may be as large as an HTTP body, and as many calls may run at once as HTTP may have
    connections. The port is not shared: a second gateway on it must fail.

    Args:
        service: answers the calls.
        limits: of messages, metadata and calls.
        connection_seconds: the age at which a connection's client is told to open another one, 10
            percent sooner or later. No call fails because of it.
        pending_seconds: how long a call may wait in gRPC's core before the core cancels it.
    """
    options = [
        ("grpc.max_receive_message_length", limits.max_body_bytes),
        ("grpc.max_metadata_size", limits.max_header_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.server.max_pending_requests", _PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING),
        ("grpc.server_max_unrequested_time_in_server", pending_seconds),
    ]
    if math.isfinite(connection_seconds):
        options.append(("grpc.max_connection_age_ms", math.ceil(connection_seconds * 1000)))
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.max_connections)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    return server


class OpenInferenceGrpc(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The service."""

    def __init__(self, front: Front, version: str) -> None:
        self._front = front
        self._version = version
        self._draining = False
        self._called = False
        for name, what in _UNSUPPORTED.items():
            setattr(self, name, self._refusal(what))

    async def drain(self) -> None:
        """Refuses every call from now on, with a status that clients try again elsewhere.

        Returns when calls have ceased to arrive, so that the server can be stopped.
        """
        self._draining = True
        quiet = 0
        for _ in range(_MOST_TURNS):
            self._called = False
            await asyncio.sleep(_TURN_SECONDS)
            quiet = 0 if self._called else quiet + 1
            if quiet == _QUIET_TURNS:
                break

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerLiveResponse:
        """The process answers."""
        del request, context
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerReadyResponse:
        """Whether this gateway should get traffic."""
        del request, context
        return pb.ServerReadyResponse(ready=self._front.endpoints.ready)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerMetadataResponse:
        """Name, version and extensions."""
        del request, context
        return pb.ServerMetadataResponse(
            name=oip.SERVER_NAME, version=self._version, extensions=oip.EXTENSIONS
        )

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelReadyResponse | None:
        """Whether the endpoint answers; one that does not exist is not ready, as in Triton."""

        async def answer(call: RequestContext) -> pb.ModelReadyResponse:
            try:
                ready = self._view(call, request).ready
            except (UnknownEndpointError, UnknownVersionError):
                ready = False
            return pb.ModelReadyResponse(ready=ready)

        return await self._answer(context, answer)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelMetadataResponse | None:
        """Inputs, outputs and versions."""

        async def answer(call: RequestContext) -> pb.ModelMetadataResponse:
            view = self._view(call, request)
            metadata = oip.metadata(view, request.version or None)
            return json_format.ParseDict(
                metadata, pb.ModelMetadataResponse(), ignore_unknown_fields=True
            )

        return await self._answer(context, answer)

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelConfigResponse | None:
        """The model configuration in Triton's format."""

        async def answer(call: RequestContext) -> pb.ModelConfigResponse:
            fields = oip.config(self._view(call, request))
            config = json_format.ParseDict(fields, model_config_pb2.ModelConfig())
            return pb.ModelConfigResponse(config=config)

        return await self._answer(context, answer)

    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelInferResponse | None:
        """Answers texts."""

        async def answer(call: RequestContext) -> pb.ModelInferResponse:
            version = request.model_version or None
            view, caller = await self._front.admission.enter(
                call, request.model_name, version, serial_arrivals=True
            )
            wanted = [(one.name, _parameters(one.parameters)) for one in request.outputs]
            parameters = oip.read_options(_parameters(request.parameters), wanted, view, call)
            query = replace(_query(request), parameters=parameters)
            result = await self._front.predict(call, view, caller, query)
            metadata = [(b"x-request-id", call.request_id.encode()), *answer_headers(result)]
            await context.send_initial_metadata(
                [(key.decode(), value.decode()) for key, value in metadata]
            )
            return _render(result, view, request)

        return await self._answer(context, answer)

    async def ModelStreamInfer(
        self,
        request_iterator: AsyncIterator[pb.ModelInferRequest],
        context: grpc.aio.ServicerContext,
    ) -> None:
        """Refuses: there is nothing to stream from an encoder."""
        del request_iterator
        refusal = self._refusal("streams: each ModelInfer has one answer")
        await refusal(None, context)

    def _view(self, call: RequestContext, request: pb.ModelMetadataRequest) -> EndpointView:
        view, _ = self._front.admission.identify(call, request.name)
        oip.check_version(view, request.version or None)
        return view

    def _refusal(self, what: str) -> Callable[[object, grpc.aio.ServicerContext], Awaitable[None]]:
        async def refuse(_: object, context: grpc.aio.ServicerContext) -> None:
            async def answer(_: RequestContext) -> NoReturn:
                raise UnsupportedError(f"Headrace does not offer {what}.")

            await self._answer(context, answer)

        return refuse

    async def _answer(
        self,
        context: grpc.aio.ServicerContext,
        answer: Callable[[RequestContext], Awaitable[T]],
    ) -> T | None:
        """Runs one call; whatever goes wrong becomes a status with a sentence, and no message."""
        call = RequestContext(new_request_id(), time.time(), time.monotonic())
        self._called = True
        failure: GatewayError
        try:
            if self._draining:
                raise ShuttingDownError("This gateway is shutting down; try again.")
            call.read({_bytes(key): _bytes(value) for key, value in context.invocation_metadata()})
            remaining = context.time_remaining()
            if remaining is not None:
                call.shorten(max(remaining, 0.0))
            result = await answer(call)
        except GatewayError as error:
            failure = error
        except asyncio.CancelledError:
            self._finished(call, CLIENT_GONE_STATUS)
            raise
        except Exception:
            log.exception("a bug: unexpected error", extra={"request_id": call.request_id})
            failure = internal_error()
        else:
            self._finished(call, HTTPStatus.OK)
            return result
        self._front.admission.refused(call, failure)
        self._finished(call, failure.status)
        forget_frames(failure)
        _refuse(context, call, failure)
        return None

    def _finished(self, call: RequestContext, status: int) -> None:
        seconds = time.monotonic() - call.started
        self._front.metrics.request_finished("oip_grpc", int(status), seconds)


def _refuse(context: grpc.aio.ServicerContext, call: RequestContext, error: GatewayError) -> None:
    """Sets the error's status, and what HTTP says in headers as metadata.

    gRPC sends no message with such a status. Its ``abort`` raises an error that it keeps beside the
    call, with frames that refer to the call: a circle for the garbage collector.
    """
    metadata = [("x-request-id", call.request_id), ("x-headrace-error", error.code)]
    if error.retry_after_seconds is not None:
        milliseconds = max(1, math.ceil(error.retry_after_seconds * 1000))
        # The second is what gRPC clients with a retry policy look at.
        metadata += [
            ("retry-after", str(math.ceil(milliseconds / 1000))),
            ("grpc-retry-pushback-ms", str(milliseconds)),
        ]
    context.set_code(_CODES.get(error.status, grpc.StatusCode.INTERNAL))
    context.set_details(error.message)
    context.set_trailing_metadata(tuple(metadata))


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _parameters(parameters: Mapping[str, pb.InferParameter]) -> dict[str, object]:
    """A protobuf map of parameters as plain values."""
    plain: dict[str, object] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        plain[name] = None if kind is None else getattr(parameter, kind)
    return plain


def _query(request: pb.ModelInferRequest) -> Query:
    """The texts of all inputs, each from its ``contents`` or from ``raw_input_contents``."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadRequestError(
            f"raw_input_contents: expected one for each of the {len(request.inputs)} inputs, "
            f"got {len(raw)}."
        )
    tensors: list[oip.TextTensor] = []
    for index, tensor in enumerate(request.inputs):
        name = tensor.name
        count = oip.element_count(name, tensor.datatype, list(tensor.shape))
        oip.refuse_extensions(_parameters(tensor.parameters), name)
        if raw and tensor.HasField("contents"):
            raise BadRequestError(f"{name}: send contents or raw_input_contents, not both.")
        texts = oip.unpack_texts(name, raw[index]) if raw else _contents(tensor)
        oip.check_count(name, count, len(texts))
        tensors.append(oip.TextTensor(name, texts))
    return oip.query(tensors, _parameters(request.parameters))


def _contents(tensor: pb.ModelInferRequest.InferInputTensor) -> list[str]:
    for field, _ in tensor.contents.ListFields():
        if field.name != "bytes_contents":
            raise InvalidInputError(
                f"{tensor.name}.contents: expected bytes_contents, got {field.name}."
            )
    elements = tensor.contents.bytes_contents
    return [oip.utf8(tensor.name, index, element) for index, element in enumerate(elements)]


def _render(
    answer: Answer, view: EndpointView, request: pb.ModelInferRequest
) -> pb.ModelInferResponse:
    response = pb.ModelInferResponse(
        model_name=view.name, model_version=answer.ref.version, id=request.id
    )
    if any(answer.truncated):
        response.parameters["truncated"].string_param = truncated_texts(answer)
    names = list(dict.fromkeys(output.name for output in request.outputs))
    for tensor in oip.outputs(answer, names):
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(oip.pack(tensor))
    return response

"""The Open Inference Protocol over gRPC: ``inference.GRPCInferenceService``.

Beside it are gRPC's own health and reflection (``grpc_standard``).

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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import NoReturn, TypeVar

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import model_config_pb2
from tritonclient.grpc import service_pb2 as pb

from gateway.admission.byte_budget import ByteBudget
from gateway.admission.work_time import UNMEASURED_BYTES, measured
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects import oip, oip_tables
from gateway.dialects.front import Front, answer_headers, hold_filling, truncated_texts
from gateway.dialects.grpc_answers import Answers, HangUp, Sending, serialised
from gateway.dialects.grpc_fields import INTEGER_BYTES, count_parts
from gateway.dialects.grpc_messages import MessageReader
from gateway.dialects.grpc_standard import HEALTH, REFLECTIONS, health, reflect
from gateway.dialects.parameters import ignored_headers
from gateway.errors import (
    CLIENT_GONE_STATUS,
    BadRequestError,
    ClientGoneError,
    GatewayError,
    InvalidInputError,
    ShuttingDownError,
    TooLargeError,
    UnknownEndpointError,
    UnknownVersionError,
    UnsupportedError,
    forget_frames,
    internal_error,
)
from gateway.http.body import HttpLimits
from gateway.http.large_work import INLINE_BYTES
from gateway.http.port_watch import ROOM
from gateway.http.untaken import untaken_of
from gateway.request_context import RequestContext, new_request_id
from service.grpc_batches import free_batches

log = logging.getLogger(__name__)

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=Message)
_Unread = Callable[[grpc.aio.ServicerContext], Awaitable[Message | bytes | None]]
_Reading = Callable[
    [RequestContext, RequestT, grpc.aio.ServicerContext], Awaitable[Message | bytes]
]

_STREAM = "ModelStreamInfer"
_MOST_REFLECTED = (
    256  # messages of a stream; a client asks for a file, then for those that it names
)
# Of a message: inputs and outputs with their fields and elements, and parameters. Each takes up to
# 170 bytes, and reading as many takes a millisecond; of packed integers six.
_MOST_PARTS = 65_536
# Inputs and outputs that are read on the event loop: each takes some microseconds.
_INLINE_PARTS = 64
_MOST_DIMENSIONS = 8  # of a shape that is shown in a refusal
# A character of a message takes this many bytes of a text, if there is any beyond the BMP in it.
_PARSED = 4
_SERVICE = "inference.GRPCInferenceService"
# The age of a connection at which its client is told to open another one, where nobody says
# otherwise: so gateways that are added get callers.
CONNECTION_SECONDS = 300.0
# Of a call's metadata, which the library keeps as objects as long as the call. Its own default.
_METADATA_BYTES = 16 * 1024
# Calls of one connection at once. Clients hold further ones back by themselves.
_STREAMS = 1024
# What a call may last on a connection that has reached its age: the longest limit of an endpoint.
_LONGEST_CALL_SECONDS = 600.0

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
    HTTPStatus.REQUEST_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
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
    connection_seconds: float = CONNECTION_SECONDS,
    pending_seconds: int = _PENDING_SECONDS,
    *,
    hang_up: HangUp = lambda _host, _port: None,
) -> grpc.aio.Server:
    """A server with the service, on the running event loop, not started and without a port.

    A message may be as large as an HTTP body, all messages that are being read as large as all
    bodies, and as many calls may run at once as HTTP may have connections; see ``MessageReader``
    for what happens at these bounds. The port is not shared: a second gateway on it must fail.

    Args:
        service: answers the calls.
        limits: of messages, metadata and calls.
        connection_seconds: the age at which a connection's client is told to open another one, 10
            percent sooner or later. No call fails because of it.
        pending_seconds: how long a call may wait in gRPC's core before the core cancels it.
        hang_up: ends the connection of a peer, by host and port, that takes no answers.
    """
    milliseconds = {
        "grpc.max_connection_age_ms": connection_seconds,
        "grpc.max_connection_age_grace_ms": _LONGEST_CALL_SECONDS,
        "grpc.max_connection_idle_ms": limits.keep_alive_seconds,
        "grpc.server_handshake_timeout_ms": limits.header_seconds,
    }
    options = [
        ("grpc.max_receive_message_length", limits.max_body_bytes),
        ("grpc.max_metadata_size", min(_METADATA_BYTES, limits.max_header_bytes)),
        ("grpc.max_concurrent_streams", _STREAMS),
        # ``PortWatch`` keeps them at the bound itself.
        ("grpc.max_allowed_incoming_connections", math.ceil((1 + ROOM) * limits.max_connections)),
        # Otherwise the core takes the more of messages that nobody has asked for, the faster they
        # come. A message that is being read gets the room that it needs without it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.server.max_pending_requests", _PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING),
        ("grpc.server_max_unrequested_time_in_server", pending_seconds),
        *((name, math.ceil(seconds * 1000)) for name, seconds in milliseconds.items()),
    ]
    free_batches()
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=limits.max_connections)
    held = service.held
    answers = Answers(untaken_of(limits, held), hang_up)
    server.add_generic_rpc_handlers((service.handlers(MessageReader(limits, held), answers),))
    return server


class _Handlers(grpc.GenericRpcHandler):
    """The handler of each method, by its full name."""

    def __init__(self, handlers: dict[str, grpc.RpcMethodHandler]) -> None:
        self._handlers = handlers

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The call's handler; without one the call ends as unimplemented, and nothing is read."""
        return self._handlers.get(details.method)


class OpenInferenceGrpc:
    """The service.

    To gRPC all methods take a stream, since it reads the message of any other before it asks what
    to do with the call. So a method decides by the metadata alone whether it reads a message at
    all, and when.
    """

    def __init__(self, front: Front, version: str) -> None:
        self._front = front
        self._version = version
        self._draining = False
        self._called = False

    @property
    def held(self) -> ByteBudget:
        """What callers hold of memory."""
        return self._front.admission.held

    def handlers(self, messages: MessageReader, answers: Answers) -> grpc.GenericRpcHandler:
        """What a server is given, which reads calls' messages by ``messages``."""
        unread: dict[str, _Unread] = {
            "ServerLive": self.ServerLive,
            "ServerReady": self.ServerReady,
            "ServerMetadata": self.ServerMetadata,
        }
        unread |= {name: self._refusal(what) for name, what in _UNSUPPORTED.items()}
        found = {name: _handler(each, answers) for name, each in unread.items()}
        found[_STREAM] = grpc.stream_stream_rpc_method_handler(
            _method(self._refusal("streams: each ModelInfer has one answer"))
        )
        reading = {
            "ModelReady": self._reading(messages, pb.ModelReadyRequest, self.ModelReady),
            "ModelMetadata": self._reading(messages, pb.ModelMetadataRequest, self.ModelMetadata),
            "ModelConfig": self._reading(messages, pb.ModelConfigRequest, self.ModelConfig),
            "ModelInfer": self._reading(messages, pb.ModelInferRequest, self.ModelInfer),
        }
        found |= {name: _handler(each, answers) for name, each in reading.items()}
        named = {f"/{_SERVICE}/{name}": each for name, each in found.items()}
        named[f"/{HEALTH}/Check"] = _handler(self.Check, answers)
        for service in REFLECTIONS:
            named[f"/{service}/ServerReflectionInfo"] = grpc.stream_stream_rpc_method_handler(
                _method(self._reflecting(messages, answers))
            )
        return _Handlers(named)

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

    async def ServerLive(self, context: grpc.aio.ServicerContext) -> Message | None:
        """The process answers."""
        del context
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, context: grpc.aio.ServicerContext) -> Message | None:
        """Whether this gateway should get traffic."""
        del context
        return pb.ServerReadyResponse(ready=self._front.endpoints.ready)

    async def Check(self, context: grpc.aio.ServicerContext) -> Message | None:
        """The state of the gateway in the form of ``grpc.health.v1``."""
        del context
        return health(ready=self._front.endpoints.ready)

    async def ServerMetadata(self, context: grpc.aio.ServicerContext) -> Message | None:
        """Name, version and extensions."""
        del context
        return pb.ServerMetadataResponse(
            name=oip.SERVER_NAME, version=self._version, extensions=oip.EXTENSIONS
        )

    async def ModelReady(
        self, call: RequestContext, request: pb.ModelReadyRequest, _: grpc.aio.ServicerContext
    ) -> Message:
        """Whether the endpoint answers; one that does not exist is not ready, as in Triton."""
        try:
            ready = self._view(call, request).ready
        except (UnknownEndpointError, UnknownVersionError):
            ready = False
        return pb.ModelReadyResponse(ready=ready)

    async def ModelMetadata(
        self, call: RequestContext, request: pb.ModelMetadataRequest, _: grpc.aio.ServicerContext
    ) -> Message:
        """Inputs, outputs and versions."""
        metadata = oip.metadata(self._view(call, request), request.version or None)
        return json_format.ParseDict(
            metadata, pb.ModelMetadataResponse(), ignore_unknown_fields=True
        )

    async def ModelConfig(
        self, call: RequestContext, request: pb.ModelConfigRequest, _: grpc.aio.ServicerContext
    ) -> Message:
        """The model configuration in Triton's format."""
        fields = oip.config(self._view(call, request))
        config = json_format.ParseDict(fields, model_config_pb2.ModelConfig())
        return pb.ModelConfigResponse(config=config)

    async def ModelInfer(
        self, call: RequestContext, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> bytes:
        """Answers texts, with a message as it is sent: of megabytes that is work too."""
        version = request.model_version or None
        if oip.CLASS in request.parameters:  # bulk requests wait for their turn apart
            call.classify(request.parameters[oip.CLASS].string_param)
        view, caller = await self._front.admission.enter(
            call, request.model_name, version, serial_arrivals=True
        )
        asked, size = request.id, call.held_bytes
        if len(request.inputs) + len(request.outputs) > _INLINE_PARTS:
            size = max(size, INLINE_BYTES + 1)
        reading = self._front.work(call, size, partial(_asked, request, view, call))
        del request  # texts may wait for long
        query, names = await reading
        del reading
        result = await self._front.predict(call, view, caller, query)
        filling = hold_filling(call, result)
        metadata = [(b"x-request-id", call.request_id.encode()), *answer_headers(result)]
        metadata += ignored_headers(call)
        await context.send_initial_metadata(
            [(key.decode(), value.decode()) for key, value in metadata]
        )
        return await self._front.rendered(
            call,
            [result],
            lambda: _render(result, view, asked, names).SerializeToString(),
            further=filling,
        )

    def _view(self, call: RequestContext, request: pb.ModelMetadataRequest) -> EndpointView:
        view, _ = self._front.admission.identify(call, request.name)
        oip.check_version(view, request.version or None)
        return view

    def _refusal(self, what: str) -> "_Unread":
        async def refuse(context: grpc.aio.ServicerContext) -> None:
            async def answer(_: RequestContext) -> NoReturn:
                raise UnsupportedError(f"Headrace does not offer {what}.")

            await self._answer(context, answer)

        return refuse

    def _reflecting(self, messages: MessageReader, answers: Answers) -> "_Unread":
        """Answers each message of a stream, to callers that have a key."""

        async def handle(context: grpc.aio.ServicerContext) -> Message | None:
            async def answer(call: RequestContext) -> None:
                self._front.admission.recognise(call)
                for _ in range(_MOST_REFLECTED):
                    try:
                        content = await messages.read(context)
                    except ClientGoneError:
                        return  # the stream has ended
                    try:
                        reply = reflect(content)
                    finally:
                        messages.release(len(content))
                    sending = answers.sending(reply, context)
                    await context.write(sending.content)
                    del sending

            return await self._answer(context, answer)

        return handle

    def _reading(
        self, messages: MessageReader, kind: type[RequestT], method: "_Reading[RequestT]"
    ) -> "_Unread":
        """A method that asks for a key, and then for a message."""

        async def handle(context: grpc.aio.ServicerContext) -> Message | bytes | None:
            async def answer(call: RequestContext) -> Message | bytes:
                self._front.admission.recognise(call)
                call.body_read = True
                content = await messages.read(context)
                size = call.held_bytes = len(content)
                try:
                    call.hold(_PARSED * size)
                finally:
                    messages.release(size)
                work = self._read(method, call, kind, content, context)
                del content  # texts may wait for long
                if size <= UNMEASURED_BYTES:
                    return await work
                return await measured(work, call, self._front.admission.spend)

            return await self._answer(context, answer)

        return handle

    async def _read(
        self,
        method: "_Reading[RequestT]",
        call: RequestContext,
        kind: type[RequestT],
        content: bytes,
        context: grpc.aio.ServicerContext,
    ) -> Message | bytes:
        reading = self._front.read(call, content, partial(_parsed, kind))
        del content  # texts may wait for long
        return await method(call, await reading, context)

    async def _answer(
        self,
        context: grpc.aio.ServicerContext,
        answer: Callable[[RequestContext], Awaitable[T]],
    ) -> T | None:
        """Runs one call; whatever goes wrong becomes a status with a sentence, and no message."""
        held = self._front.admission.held
        call = RequestContext(new_request_id(), time.time(), time.monotonic(), held=held)
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
            if isinstance(result, bytes):
                call.hold(len(result))
        except GatewayError as error:
            failure = error
        except ClientGoneError:
            self._front.admission.left(call)
            self._finished(call, CLIENT_GONE_STATUS)
            # Heard by a caller that ended the call without a message.
            context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
            context.set_details("The call has no message.")
            return None
        except asyncio.CancelledError:
            self._front.admission.left(call)
            self._finished(call, CLIENT_GONE_STATUS)
            raise
        except Exception:
            log.exception("a bug: unexpected error", extra={"request_id": call.request_id})
            failure = internal_error()
        else:
            self._finished(call, HTTPStatus.OK)
            return result
        finally:
            call.release()
        self._front.admission.refused(call, failure)
        self._finished(call, failure.status)
        forget_frames(failure)
        _refuse(context, call, failure)
        return None

    def _finished(self, call: RequestContext, status: int) -> None:
        seconds = time.monotonic() - call.started
        self._front.metrics.request_finished(call.counted_as("oip_grpc"), int(status), seconds)


def _method(
    method: _Unread,
) -> Callable[[object, grpc.aio.ServicerContext], Awaitable[Message | bytes | None]]:
    """A method as gRPC takes it: it reads nothing by itself."""

    async def handle(_: object, context: grpc.aio.ServicerContext) -> Message | bytes | None:
        return await method(context)

    return handle


def _handler(method: _Unread, answers: Answers) -> grpc.RpcMethodHandler:
    async def handle(_: object, context: grpc.aio.ServicerContext) -> Sending | None:
        message = await method(context)
        if message is None:
            return None  # gRPC sends none with a status that is not OK
        content = message if isinstance(message, bytes) else message.SerializeToString()
        del message
        return answers.sending(content, context)

    return grpc.stream_unary_rpc_method_handler(
        handle, request_deserializer=None, response_serializer=serialised
    )


def _parsed(kind: type[RequestT], content: bytes) -> RequestT:
    """A message; raises ``GatewayError``: it can't be read, or has too many parts."""
    if len(content) > INLINE_BYTES and count_parts(content, _MOST_PARTS) > _MOST_PARTS:
        raise TooLargeError(
            f"The message has more than {_MOST_PARTS} inputs, outputs, parameters, fields and "
            f"elements of these ({INTEGER_BYTES} bytes of integers count as one); larger tensors "
            "are taken in raw_input_contents."
        )
    try:
        request: RequestT = kind.FromString(content)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise BadRequestError(f"The message can't be read: it is no {name}.") from None
    return request


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


def _asked(
    request: pb.ModelInferRequest, view: EndpointView, call: RequestContext
) -> tuple[Query, list[str]]:
    """What a message asks, and the outputs that it names; raises ``GatewayError``."""
    wanted = [(one.name, _parameters(one.parameters)) for one in request.outputs]
    parameters = oip.read_options(_parameters(request.parameters), wanted, view, call)
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadRequestError(
            f"raw_input_contents: expected one for each of the {len(request.inputs)} inputs, "
            f"got {len(raw)}."
        )
    read = (_rows if view.features else _query)(request, view)
    return replace(read, parameters=parameters), list(dict.fromkeys(name for name, _ in wanted))


def _query(request: pb.ModelInferRequest, view: EndpointView) -> Query:
    """The texts of all inputs, each from its ``contents`` or from ``raw_input_contents``."""
    raw = request.raw_input_contents
    tensors: list[oip.TextTensor] = []
    names = oip.canonical([tensor.name for tensor in request.inputs])
    for index, tensor in enumerate(request.inputs):
        name = names[index]
        count = oip.element_count(name, tensor.datatype, tensor.shape, view)
        oip.refuse_extensions(_parameters(tensor.parameters), name)
        if raw and tensor.HasField("contents"):
            raise BadRequestError(f"{name}: send contents or raw_input_contents, not both.")
        texts = oip.unpack_texts(name, raw[index], count) if raw else _contents(tensor, count)
        tensors.append(oip.TextTensor(name, texts))
    return oip.query(tensors, _parameters(request.parameters))


def _rows(request: pb.ModelInferRequest, view: EndpointView) -> Query:
    """The rows of a table that all inputs together hold."""
    raw = request.raw_input_contents
    tensors: list[oip_tables.Column] = []
    for index, tensor in enumerate(request.inputs):
        name = tensor.name
        oip.refuse_extensions(_parameters(tensor.parameters), name)
        if raw and tensor.HasField("contents"):
            raise BadRequestError(f"{name}: send contents or raw_input_contents, not both.")
        shape = list(tensor.shape[:_MOST_DIMENSIONS])
        count = oip_tables.check_shape(name, shape, view)
        if raw:
            values = oip_tables.unpack(name, tensor.datatype, raw[index], count)
        else:
            fields = tensor.contents.ListFields()
            oip.check_count(name, count, sum(len(field) for _, field in fields))
            values = [
                oip.utf8(name, at, each) if isinstance(each, bytes) else each
                for _, field in fields
                for at, each in enumerate(field)
            ]
        tensors.append(oip_tables.Column(name, tensor.datatype, shape, values))
    return oip_tables.query(tensors, view.features)


def _contents(tensor: pb.ModelInferRequest.InferInputTensor, count: int) -> list[str]:
    for field, _ in tensor.contents.ListFields():
        if field.name != "bytes_contents":
            raise InvalidInputError(
                f"{tensor.name}.contents: expected bytes_contents, got {field.name}."
            )
    elements = tensor.contents.bytes_contents
    oip.check_count(tensor.name, count, len(elements))
    return [oip.utf8(tensor.name, index, element) for index, element in enumerate(elements)]


def _render(
    answer: Answer, view: EndpointView, asked: str, names: list[str]
) -> pb.ModelInferResponse:
    response = pb.ModelInferResponse(
        model_name=view.name, model_version=answer.ref.version, id=asked
    )
    if answer.ref.space:
        response.parameters["space"].string_param = answer.ref.space
    if any(answer.truncated):
        response.parameters["truncated"].string_param = truncated_texts(answer)
    for tensor in oip.outputs(answer, names):
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(oip.pack(tensor))
    return response

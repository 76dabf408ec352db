"""gRPC's own services beside the Open Inference Protocol's: health and reflection.

``grpc.health.v1.Health/Check`` says whether this gateway should get traffic, whatever service is
named; Kubernetes' gRPC probes and load balancers ask it. ``grpc.reflection.v1`` and ``v1alpha``
give the definitions of all services, so that ``grpcurl`` needs no ``.proto``. Their messages are
made here in a pool of descriptors of their own, as the packages that have them bring nothing else.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.errors import BadRequestError

HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_SERVING, _NOT_SERVING = 1, 2
_STRING, _BYTES, _INT32, _ENUM, _MESSAGE = 9, 12, 5, 14, 11
_REPEATED = 3


class _Field(NamedTuple):
    """A field of a message; ``of`` names its message or enum, ``choice`` is in the oneof."""

    name: str
    number: int
    kind: int = _STRING
    of: str = ""
    repeated: bool = False
    choice: bool = False


def _message(
    file: descriptor_pb2.FileDescriptorProto, name: str, fields: Iterable[_Field], oneof: str = ""
) -> None:
    made = file.message_type.add(name=name)
    if oneof:
        made.oneof_decl.add(name=oneof)
    for field in fields:
        added = made.field.add(name=field.name, number=field.number, type=field.kind)
        added.label = _REPEATED if field.repeated else 1
        if field.of:
            added.type_name = f".{file.package}.{field.of}"
        if field.choice:
            added.oneof_index = 0


def _health() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3"
    )
    _message(file, "HealthCheckRequest", [_Field("service", 1)])
    _message(
        file,
        "HealthCheckResponse",
        [_Field("status", 1, _ENUM, "HealthCheckResponse.ServingStatus")],
    )
    statuses = file.message_type[1].enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        statuses.value.add(name=name, number=number)
    package = f".{file.package}"
    file.service.add(name="Health").method.add(
        name="Check",
        input_type=f"{package}.HealthCheckRequest",
        output_type=f"{package}.HealthCheckResponse",
    )
    return file


def _reflection(version: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"grpc/reflection/{version}/reflection.proto",
        package=f"grpc.reflection.{version}",
        syntax="proto3",
    )
    extension = [_Field("containing_type", 1), _Field("extension_number", 2, _INT32)]
    _message(file, "ExtensionRequest", extension)
    asked = [
        _Field("host", 1),
        _Field("file_by_filename", 3, choice=True),
        _Field("file_containing_symbol", 4, choice=True),
        _Field("file_containing_extension", 5, _MESSAGE, "ExtensionRequest", choice=True),
        _Field("all_extension_numbers_of_type", 6, choice=True),
        _Field("list_services", 7, choice=True),
    ]
    _message(file, "ServerReflectionRequest", asked, "message_request")
    files = [_Field("file_descriptor_proto", 1, _BYTES, repeated=True)]
    _message(file, "FileDescriptorResponse", files)
    numbers = [_Field("base_type_name", 1), _Field("extension_number", 2, _INT32, repeated=True)]
    _message(file, "ExtensionNumberResponse", numbers)
    _message(file, "ServiceResponse", [_Field("name", 1)])
    services = [_Field("service", 1, _MESSAGE, "ServiceResponse", repeated=True)]
    _message(file, "ListServiceResponse", services)
    error = [_Field("error_code", 1, _INT32), _Field("error_message", 2)]
    _message(file, "ErrorResponse", error)
    given = [
        _Field("valid_host", 1),
        _Field("original_request", 2, _MESSAGE, "ServerReflectionRequest"),
        _Field("file_descriptor_response", 4, _MESSAGE, "FileDescriptorResponse", choice=True),
        _Field(
            "all_extension_numbers_response", 5, _MESSAGE, "ExtensionNumberResponse", choice=True
        ),
        _Field("list_services_response", 6, _MESSAGE, "ListServiceResponse", choice=True),
        _Field("error_response", 7, _MESSAGE, "ErrorResponse", choice=True),
    ]
    _message(file, "ServerReflectionResponse", given, "message_response")
    package = f".{file.package}"
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f"{package}.ServerReflectionRequest",
        output_type=f"{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    return file


def _copied(module: Any) -> descriptor_pb2.FileDescriptorProto:  # noqa: ANN401 - generated
    copy = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(copy)
    return copy


_FILES = [
    _copied(model_config_pb2),
    _copied(service_pb2),
    _health(),
    *(_reflection(version) for version in ("v1", "v1alpha")),
]
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES:
    _POOL.Add(_file)


def _class(name: str) -> Any:  # noqa: ANN401 - made at run time
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


_HealthCheckResponse = _class("grpc.health.v1.HealthCheckResponse")


def health(*, ready: bool) -> Message:
    """The answer of ``Check``."""
    answer: Message = _HealthCheckResponse(status=_SERVING if ready else _NOT_SERVING)
    return answer


class Reflection:
    """Answers the messages of one version of the reflection service, by its full name."""

    def __init__(self, service: str) -> None:
        package = service.rpartition(".")[0]
        self._request = _class(f"{package}.ServerReflectionRequest")
        self._response = _class(f"{package}.ServerReflectionResponse")

    def answer(self, content: bytes) -> bytes:
        """The answer to one message of a stream.

        Raises:
            BadRequestError: it is no message of this service.
        """
        try:
            asked = self._request.FromString(content)
        except DecodeError:
            raise BadRequestError(
                "The message can't be read: it is no ServerReflectionRequest."
            ) from None
        answer = self._response(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            names = (f"{file.package}.{one.name}" for file in _FILES for one in file.service)
            for name in sorted(names):
                answer.list_services_response.service.add(name=name)
        elif kind in ("file_by_filename", "file_containing_symbol"):
            found = _found(kind, getattr(asked, kind))
            if found is None:
                answer.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
                answer.error_response.error_message = f"There is no {getattr(asked, kind)[:80]!r}."
            else:
                answer.file_descriptor_response.file_descriptor_proto.extend(found)
        else:
            answer.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
            answer.error_response.error_message = "There are no extensions."
        made: bytes = answer.SerializeToString()
        return made


def _found(kind: str, name: str) -> list[bytes] | None:
    """A file and those that it imports."""
    try:
        by_name = kind == "file_by_filename"
        file = _POOL.FindFileByName(name) if by_name else _POOL.FindFileContainingSymbol(name)
    except KeyError:
        return None
    return [file.serialized_pb, *(one.serialized_pb for one in file.dependencies)]

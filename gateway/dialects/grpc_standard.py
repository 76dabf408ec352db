"""gRPC's own services beside the Open Inference Protocol's: health and reflection.

``grpc.health.v1.Health/Check`` says whether this gateway should get traffic, whatever service is
named; Kubernetes' gRPC probes and load balancers ask it. ``grpc.reflection.v1`` and ``v1alpha``
give the definitions of all services, so that ``grpcurl`` needs no ``.proto``. Messages are those of
gRPC's packages; their servicers know neither keys nor the bounds of what a stream may hold.
"""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.errors import BadRequestError

HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_SERVING, _NOT_SERVING = 1, 2


def _copied(module: Any) -> descriptor_pb2.FileDescriptorProto:  # noqa: ANN401 - generated
    copy = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(copy)
    return copy


def _health() -> descriptor_pb2.FileDescriptorProto:
    """Of its methods the one that is here."""
    file = _copied(health_pb2)
    (service,) = file.service
    kept = [each for each in service.method if each.name == "Check"]
    del service.method[:]
    service.method.extend(kept)
    return file


def _reflection(version: str) -> descriptor_pb2.FileDescriptorProto:
    """The same messages in each version; the package has those of v1alpha."""
    text = text_format.MessageToString(_copied(reflection_pb2)).replace("v1alpha", version)
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


_FILES = [
    _copied(model_config_pb2),
    _copied(service_pb2),
    _health(),
    *(_reflection(version) for version in ("v1", "v1alpha")),
]
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES:
    _POOL.Add(_file)


def health(*, ready: bool) -> Message:
    """The answer of ``Check``."""
    answer: Message = health_pb2.HealthCheckResponse(status=_SERVING if ready else _NOT_SERVING)
    return answer


def reflect(content: bytes) -> bytes:
    """The answer to one message of a stream, in either version of the service.

    Raises:
        BadRequestError: it is no message of this service.
    """
    try:
        asked = reflection_pb2.ServerReflectionRequest.FromString(content)
    except DecodeError:
        raise BadRequestError(
            "The message can't be read: it is no ServerReflectionRequest."
        ) from None
    answer = reflection_pb2.ServerReflectionResponse(valid_host=asked.host, original_request=asked)
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

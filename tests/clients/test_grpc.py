"""gRPC's own clients of health and reflection, and what no client sends."""

import base64

import grpc
import pytest
from client_programs import Client
from front_server import Served
from google.protobuf import descriptor_pb2
from proto_text import FILE, text
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.dialects.grpc_standard import HEALTH, REFLECTIONS, health, reflect
from gateway.errors import BadRequestError

pytestmark = pytest.mark.slow  # starts the client's own Python


def test_health_and_definitions_are_found(client: Client, fronts: Served) -> None:
    found = client("use_grpc", fronts.grpc_address)
    assert found["status"] == "SERVING"
    assert found["services"] == sorted([HEALTH, *REFLECTIONS, "inference.GRPCInferenceService"])
    assert found["infer"] == [one.name for one in service_pb2.ModelInferRequest.DESCRIPTOR.fields]


def test_the_definition_that_is_shipped_is_what_is_spoken(client: Client) -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: python -P tests/support/proto_text.py"
    made = client("use_protoc", str(FILE))
    assert made["failed"] == 0
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(made["set"])).file
    ours, theirs = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    service_pb2.DESCRIPTOR.CopyToProto(ours)
    model_config_pb2.DESCRIPTOR.CopyToProto(theirs)
    spoken = [*ours.message_type, *theirs.message_type]
    assert [plain(one) for one in file.message_type] == [plain(one) for one in spoken]
    assert list(file.enum_type) == [*ours.enum_type, *theirs.enum_type]
    assert methods(file) == methods(ours)


def methods(file: descriptor_pb2.FileDescriptorProto) -> list[object]:
    return [
        (one.name, one.input_type, one.output_type, one.client_streaming, one.server_streaming)
        for service in file.service
        for one in service.method
    ]


def plain(message: descriptor_pb2.DescriptorProto) -> object:
    """A message without the order of its parts and the names that JSON has for fields."""
    return (
        message.name,
        sorted(
            (one.number, one.name, one.type, one.label, one.type_name, one.oneof_index)
            for one in message.field
        ),
        [one.name for one in message.oneof_decl],
        sorted(map(str, message.enum_type)),
        sorted((plain(one) for one in message.nested_type), key=str),
    )


def test_a_gateway_that_is_not_ready_serves_nothing(fronts: Served) -> None:
    fronts.predictor.ready = False
    try:
        with grpc.insecure_channel(fronts.grpc_address) as channel:
            check = channel.unary_unary(f"/{HEALTH}/Check")
            assert check(b"", timeout=60) == b"\x08\x02"
    finally:
        fronts.predictor.ready = True
    assert health(ready=True).SerializeToString() == b"\x08\x01"


@pytest.mark.parametrize("service", REFLECTIONS)
def test_what_is_listed_has_a_definition(service: str) -> None:
    answer = reflect(b"\x22" + bytes([len(service)]) + service.encode())
    assert service.rpartition(".")[0].encode() in answer
    assert b"There is no" not in answer


def test_what_is_not_there_is_said_in_the_stream() -> None:
    symbol = b"nobody.Nothing"
    for asked in (b"\x22\x0e" + symbol, b"\x1a\x0e" + symbol, b"\x32\x0e" + symbol, b""):
        assert b"There " in reflect(asked)
    with pytest.raises(BadRequestError, match="ServerReflectionRequest"):
        reflect(b"\xff\xff")

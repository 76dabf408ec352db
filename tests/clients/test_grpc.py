"""gRPC's own clients of health and reflection, and what no client sends."""

import grpc
import pytest
from client_programs import Client
from front_server import Served
from tritonclient.grpc import service_pb2

from gateway.dialects.grpc_standard import HEALTH, REFLECTIONS, Reflection, health
from gateway.errors import BadRequestError

pytestmark = pytest.mark.slow  # starts the client's own Python


def test_health_and_definitions_are_found(client: Client, fronts: Served) -> None:
    found = client("use_grpc", fronts.grpc_address)
    assert found["status"] == "SERVING"
    assert found["services"] == sorted([HEALTH, *REFLECTIONS, "inference.GRPCInferenceService"])
    assert found["infer"] == [one.name for one in service_pb2.ModelInferRequest.DESCRIPTOR.fields]


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
def test_what_is_not_there_is_said_in_the_stream(service: str) -> None:
    reflection = Reflection(service)
    symbol = b"nobody.Nothing"
    for asked in (b"\x22\x0e" + symbol, b"\x1a\x0e" + symbol, b"\x32\x0e" + symbol, b""):
        assert b"There " in reflection.answer(asked)
    with pytest.raises(BadRequestError, match="ServerReflectionRequest"):
        reflection.answer(b"\xff\xff")

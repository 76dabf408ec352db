"""Callers ask in every dialect, and write down what a gateway says of it."""

import pytest
from front_fakes import FakePredictor, scores, vector
from front_server import Served, serving
from traffic import OIP_GRPC, Reply, Traffic, Way

from gateway.errors import OverloadedError
from headrace.stack.state import GatewayRecord

DIALECTS = ("huggingface", "kserve_v1", "oip_http", OIP_GRPC)
TEXT = "a good film"


def asked(served: Served, dialect: str, endpoint: str = "sentiment", **more: object) -> Reply:
    gateway = GatewayRecord(
        name="gateway-2", url=served.url, grpc=served.grpc_address, operations_url=""
    )
    with Traffic([Way(gateway, endpoint, dialect)], [TEXT], callers=1, **more) as load:  # type: ignore[arg-type]
        return load.more(1, 60)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_label_and_its_score_are_read_in_every_dialect(dialect: str) -> None:
    with serving(Served()) as served:
        reply = asked(served, dialect)
    assert (reply.status, reply.gateway, reply.dialect) == (200, "gateway-2", dialect)
    assert (reply.version, reply.text, reply.label) == ("3", TEXT, "positive")
    assert reply.score == pytest.approx(max(scores(TEXT)))


def test_a_vector_is_read() -> None:
    with serving(Served()) as served:
        assert asked(served, "openai", "minilm").values == pytest.approx(vector(TEXT))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refusal_is_told_apart_from_a_gateway_that_is_away(dialect: str) -> None:
    predictor = FakePredictor.with_endpoints()
    predictor.failure = OverloadedError("full", retry_after_seconds=3)
    with serving(Served(predictor=predictor)) as served:
        refused = asked(served, dialect)
    assert (refused.status, refused.retry_after) == (503, "3")
    assert "full" in refused.body
    assert asked(served, dialect).status == 0


def test_the_truth_is_told_with_the_receipt_of_an_answer() -> None:
    with serving(Served()) as served:
        gateway = GatewayRecord(name="gateway", url=served.url, grpc="", operations_url="")
        with Traffic([Way(gateway, "sentiment")], [TEXT], 1, truths={TEXT: "positive"}) as load:
            load.more(2, 60)
    assert set(load.feedback) == {400}  # the fake's receipts are none

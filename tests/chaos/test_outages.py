"""Which failed answers a fault excuses."""

from dataclasses import replace

import pytest
from outages import Outage, first_answer, overdue, unexcused
from traffic import Reply

DURING = Reply(at=101.0, seconds=1.0, status=200, gateway="gateway-2")


def outage(*services: str, began: float = 99.0, ended: float = 110.0) -> Outage:
    return Outage(began, ended, frozenset(services))


def is_excused(status: int, *outages: Outage) -> bool:
    return not unexcused([replace(DURING, status=status)], outages)


def test_an_answer_needs_no_excuse() -> None:
    assert is_excused(200)


@pytest.mark.parametrize("status", [0, 400, 404, 429, 500, 502, 503, 504])
def test_a_failure_without_any_fault_is_told(status: int) -> None:
    assert not is_excused(status)


@pytest.mark.parametrize("service", ["kafka", "mlflow", "controller", "fold", "loader", "store"])
@pytest.mark.parametrize("status", [0, 503, 504])
def test_what_is_beside_the_way_of_a_request_excuses_nothing(service: str, status: int) -> None:
    assert not is_excused(status, outage(service))


@pytest.mark.parametrize("service", ["triton", "triton-2"])
def test_a_triton_excuses_a_refusal_and_no_lost_connection(service: str) -> None:
    assert is_excused(503, outage(service))
    assert is_excused(504, outage(service))
    assert not is_excused(0, outage(service))


def test_a_gateway_excuses_its_own_callers_alone() -> None:
    assert is_excused(0, outage("gateway-2"))
    assert not is_excused(0, outage("gateway"))


def test_the_whole_stack_excuses_every_caller() -> None:
    assert is_excused(0, outage("stack"))


@pytest.mark.parametrize("status", [400, 404, 413, 422, 500])
def test_no_fault_makes_a_good_request_a_mistake_or_shows_a_bug(status: int) -> None:
    everything = outage("stack", "gateway-2", "triton", "triton-2")
    assert not is_excused(status, everything)


def test_a_fault_excuses_only_what_was_under_way_during_it() -> None:
    assert not is_excused(503, outage("triton", began=10.0, ended=99.9))
    assert not is_excused(503, outage("triton", began=101.1, ended=120.0))
    assert is_excused(503, outage("triton", began=100.5, ended=100.6))


def test_a_request_beyond_its_deadline_is_told_unless_its_gateway_was_away() -> None:
    late = replace(DURING, at=116.0, seconds=16.0)
    assert overdue([late], [], 15.0) == [late]
    assert overdue([late], [outage("triton")], 15.0) == [late]
    assert overdue([late], [outage("gateway-2")], 15.0) == []
    assert overdue([replace(late, at=114.0, seconds=14.0)], [], 15.0) == []


def test_an_outage_of_one_dialect_excuses_its_callers_alone() -> None:
    of_grpc = replace(outage("gateway-2"), dialect="oip_grpc")
    assert unexcused([replace(DURING, status=0, dialect="huggingface")], [of_grpc])
    assert not unexcused([replace(DURING, status=0, dialect="oip_grpc")], [of_grpc])


def test_a_way_is_back_with_its_own_first_good_answer_to_what_was_sent_after_the_restart() -> None:
    waited = replace(DURING, at=102.5, seconds=2.0)  # sent before
    refused, good = replace(DURING, at=103.0, status=503), replace(DURING, at=104.0)
    others = replace(DURING, at=103.5, gateway="gateway")
    over_grpc = replace(DURING, at=104.5, dialect="oip_grpc")
    replies = [waited, refused, good, others, over_grpc, replace(DURING, at=105.0)]
    assert first_answer(replies, "gateway-2", "", 101.0) == 104.0
    assert first_answer(replies, "gateway-2", "oip_grpc", 101.0) == 104.5
    assert first_answer([], "gateway-2", "", 101.0) == float("inf")


def test_sick_tritons_excuse_failures_of_the_endpoint_that_has_no_others() -> None:
    alone = replace(DURING, status=502, endpoint="alone")
    assert not unexcused([alone], [outage("alone")])
    assert unexcused([replace(alone, endpoint="another")], [outage("alone")])
    assert unexcused([replace(alone, status=0)], [outage("alone")])

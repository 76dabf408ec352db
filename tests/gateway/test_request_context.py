"""What headers say about a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.byte_budget import ByteBudget
from gateway.errors import BadRequestError, InvalidInputError
from gateway.request_context import RequestContext, new_request_id


def read(**headers: str | bytes) -> RequestContext:
    context = RequestContext("own", received=1.0, started=10.0)
    context.read(
        {
            name.replace("_", "-").encode(): value if isinstance(value, bytes) else value.encode()
            for name, value in headers.items()
        }
    )
    return context


def test_every_header_is_taken() -> None:
    context = read(
        x_request_id="abc-1",
        x_request_timeout="0.5",
        x_headrace_key="user 7",
        x_headrace_version="3",
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        authorization="Bearer secret",
    )
    assert context.request_id == "abc-1"
    assert context.deadline(2.0) == 10.5
    assert context.sticky_key == "user 7"
    assert context.forced_version == "3"
    assert context.trace_parent == "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    assert context.api_key == "secret"


def test_without_headers_the_endpoints_limit_and_an_own_id_hold() -> None:
    context = read()
    assert (context.request_id, context.deadline(2.0), context.api_key) == ("own", 12.0, None)


def test_a_caller_cannot_ask_for_more_time_than_the_endpoint_gives() -> None:
    assert read(x_request_timeout="600").deadline(2.0) == 12.0


def test_the_shortest_timeout_counts() -> None:
    context = read(x_request_timeout="1")
    context.shorten(0.25)
    context.shorten(3.0)
    assert context.deadline(2.0) == 10.25


def test_a_bulk_request_waits_no_longer_than_any_may_however_long_its_call_of_grpc_may_last() -> (
    None
):
    context = read(x_headrace_class="bulk")
    context.shorten(86_400.0)
    assert context.deadline(2.0) == 610.0


@pytest.mark.parametrize("value", ["", "x" * 129, "a b", "ä", "a\nb", 'a"'])
def test_a_request_id_that_could_do_harm_is_replaced(value: str) -> None:
    assert read(x_request_id=value).request_id == "own"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "601", "soon", "", "1s"])
def test_a_timeout_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(BadRequestError, match="x-request-timeout"):
        read(x_request_timeout=value)


def test_a_malformed_trace_parent_is_ignored() -> None:
    assert read(traceparent="00-zz-01").trace_parent is None


@pytest.mark.parametrize(
    ("header", "key"),
    [("bearer  k ", "k"), ("BEARER k", "k"), ("Basic abc", None), ("k", None), ("Bearer ", "")],
)
def test_a_key_is_read_from_a_bearer_token(header: str, key: str | None) -> None:
    assert read(authorization=header).api_key == key


def test_an_api_key_header_goes_before_a_bearer_token() -> None:
    assert read(authorization="Bearer a", x_api_key="b").api_key == "b"


@pytest.mark.parametrize(("header", "space"), [(" next ", "next"), ("0a1b", "0a1b"), (" ", None)])
def test_the_space_that_a_caller_names_is_read(header: str, space: str | None) -> None:
    assert read(x_headrace_space=header).space == space


def test_two_different_versions_are_refused() -> None:
    context = read(x_headrace_version="2")
    context.force("2")
    with pytest.raises(InvalidInputError, match="x-headrace-version"):
        context.force("3")


def test_ids_do_not_repeat() -> None:
    ids = {new_request_id() for _ in range(1000)}
    assert len(ids) == 1000


NAMES = (b"x-request-id", b"x-headrace-key", b"traceparent", b"authorization", b"x-api-key")


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200)))
def test_no_bytes_in_a_header_break_it(headers: dict[bytes, bytes]) -> None:
    context = RequestContext("own", 1.0, 10.0)
    context.read(headers)
    assert context.request_id.isascii()
    assert context.deadline(2.0) == 12.0


def test_what_still_runs_for_a_request_that_is_over_counts_no_more() -> None:
    held = ByteBudget(10**9)
    context = RequestContext("own", received=1.0, started=10.0, held=held)
    context.hold(10**6)
    assert held.held == 10**6
    context.release()
    assert held.held == 0
    context.hold(10**6)
    assert held.held == 0


def test_the_class_is_bulk_or_interactive() -> None:
    assert not read().bulk
    assert not read(x_headrace_class="interactive").bulk
    assert read(x_headrace_class="bulk").bulk
    with pytest.raises(BadRequestError, match="expected bulk or interactive; got 'batch'"):
        read(x_headrace_class="batch")


def test_only_a_bulk_request_may_wait_longer_than_the_endpoint_allows() -> None:
    assert read(x_request_timeout="60").deadline(2.0) == 12.0
    assert read(x_request_timeout="60", x_headrace_class="bulk").deadline(2.0) == 70.0
    assert read(x_headrace_class="bulk").deadline(2.0) == 12.0

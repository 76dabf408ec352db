"""The OpenAPI document says what the routes do, and what is asked by it is never a bug."""

import re
import time
from http import HTTPStatus
from typing import Any

import pytest
import schemathesis
from fastapi.routing import APIRoute
from front_fakes import Behind, asked, client_of
from gateway_world import answered_text, event_of
from hypothesis import settings
from schemathesis.config import SchemathesisConfig

from gateway.http.openapi import Described

BEHIND = Behind()
CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            # 422: a value that conforms to the schema and can't be served: a shape that its data
            # does not have, another model's dimension, some texts with a pair and some without.
            "positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "422"]},
        },
        "parameters": {"endpoint": "sentiment", "path.version": "2"},
        # No schema can say which receipts were signed here.
        "operations": [
            {
                "include-path": "/feedback",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["202", "400"]}},
            }
        ],
    }
)
schema = schemathesis.openapi.from_asgi("/openapi.json", BEHIND.app, config=CONFIG)


@schema.hook
def filter_case(_: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Leaves out what HTTP and JSON see in another way than JSON Schema does.

    A caller may send headers and query parameters that mean nothing to a server; and JSON Schema
    takes ``2.0`` for an integer, while the gateway asks for ``2``.
    """
    unknown = "x-schemathesis-unknown-property"
    if unknown in (case.headers or {}) or unknown in (case.query or {}):
        return False
    return not holds_whole_float(case.body)


def holds_whole_float(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, dict):
        return any(holds_whole_float(item) for item in value.values())
    return isinstance(value, list) and any(holds_whole_float(item) for item in value)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=6, deadline=None, derandomize=True)
def test_whatever_is_asked_by_the_document_gets_a_documented_answer(
    case: schemathesis.Case[Any],
) -> None:
    case.call_and_validate()


@pytest.mark.soak
@schema.parametrize()
@settings(max_examples=200, deadline=None)
def test_whatever_is_asked_at_length_gets_a_documented_answer(
    case: schemathesis.Case[Any],
) -> None:
    case.call_and_validate()


async def test_every_route_is_described_but_those_that_are_always_refused() -> None:
    described = {
        (method.upper(), path)
        for path, methods in BEHIND.app.openapi()["paths"].items()
        for method in methods
    }
    served = set()
    for route in BEHIND.app.routes:
        assert isinstance(route, APIRoute)
        method = min(route.methods or {""})
        path = re.sub(r"{\w+}", "1", route.path)
        async with client_of(BEHIND) as client:
            answer = await client.request(method, path)
        if answer.status_code != HTTPStatus.NOT_IMPLEMENTED:
            served.add((method, route.path))
    assert described == served


def receipt() -> str:
    """A receipt of an answer with one label."""
    assert BEHIND.receipts is not None
    return BEHIND.receipts.issue(event_of(answered_text(), time=time.time()))


@pytest.mark.parametrize(
    "described", [one for one in BEHIND.app.described if one.operation.request]
)
async def test_every_example_is_answered(described: Described) -> None:
    operation = described.operation
    path = described.path.replace("{endpoint}", "sentiment").replace("{version}", "2")
    assert operation.examples
    async with client_of(BEHIND) as client:
        for example in operation.examples.values():
            assert isinstance(example, dict)
            body = {**example, "receipt": receipt()} if "receipt" in example else example
            assert (await client.post(path, json=body)).status_code == operation.success


async def test_the_page_shows_every_route_and_needs_no_other_host() -> None:
    page = (await asked(BEHIND, "GET", "/docs")).text
    for described in BEHIND.app.described:
        assert f"<code>{described.path}</code>" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)

"""Whatever is asked by the OpenAPI document is answered as documented: Schemathesis asks."""

from typing import Any

import pytest
import schemathesis
from front_fakes import Behind
from hypothesis import settings
from schemathesis.config import SchemathesisConfig

pytestmark = pytest.mark.slow

CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            # 422: a value that conforms to the schema and can't be served: a shape that its data
            # does not have, another model's dimension, some texts with a pair and some without.
            # 413: more texts, or elements of a body, than the endpoint takes.
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "401", "403", "404", "413", "422"]
            },
        },
        "parameters": {"endpoint": "sentiment", "path.version": "2"},
        # No schema can say which receipts were signed here.
        "operations": [
            {
                "include-path": "/feedback",
                "checks": {"positive_data_acceptance": {"expected-statuses": ["202", "400"]}},
            },
            # Nor which lines a file has to hold.
            {
                "include-path": "/v1/files",
                "checks": {
                    "positive_data_acceptance": {"expected-statuses": ["200", "400", "422"]}
                },
            },
        ],
    }
)
BEHIND = Behind()
schema = schemathesis.openapi.from_dict(BEHIND.app.openapi(), config=CONFIG)
schema.app = BEHIND.app


@schema.hook
def filter_case(_: schemathesis.HookContext, case: schemathesis.Case[Any]) -> bool:
    """Leaves out what HTTP and JSON see in another way than JSON Schema does.

    A caller may send headers and query parameters that mean nothing to a server; and JSON Schema
    takes ``2.0`` for an integer, while the gateway asks for ``2``. Nor can it say that a header
    refuses what a body may else hold.
    """
    if "x-headrace-strict" in (case.headers or {}):
        return False
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

"""LiteLLM: its generic guardrail API with nothing but an address, a key and its own settings."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from client_programs import Client
from front_fakes import FakeKeys, guard
from front_server import Served, serving

from contracts.tasks import Task
from gateway.errors import OverloadedError

pytestmark = pytest.mark.slow  # starts the client's own Python

OPEN = {"unreachable_fallback": "fail_open"}
KEY = {"api_key": "k"}


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    """With keys, a guard that blocks and one that masks."""
    made = Served(keys=FakeKeys({"k": {"sentiment", "tags", "reranker"}}))
    made.predictor.views["tags"] = guard(Task.TOKEN_CLASSIFICATION, "tags")
    with serving(made) as served:
        yield served


def told(client: Client, *asked: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What becomes of the texts of each: an endpoint, texts, LiteLLM's settings, images if any."""
    names = ("endpoint", "texts", "params", "images")
    found: list[dict[str, Any]] = client(
        "use_litellm", json.dumps([dict(zip(names, one, strict=False)) for one in asked])
    )
    return found


def test_texts_go_on_are_masked_or_blocked_and_without_a_key_fail(client: Client) -> None:
    fine, bad = ["a rainy day", "rain"], ["a rainy day", "good good"]
    strict, image = (
        {**KEY, "headers": {"x-headrace-strict": "true"}},
        ["data:image/png;base64,AA=="],
    )
    passed, blocked, masked, stranger, unfit, seen, unseen = told(
        client,
        ("sentiment", fine, KEY),
        ("sentiment", bad, KEY),
        ("tags", ["the soup", "rain"], KEY),
        ("sentiment", fine, OPEN),
        ("reranker", fine, {**KEY, **OPEN}),
        ("sentiment", [], KEY, image),
        ("sentiment", fine, strict, image),
    )
    assert passed == {"texts": fine}
    assert blocked == {"blocked": "Blocked by sentiment: text 1 has the label positive."}
    assert masked == {"texts": ["the [FOOD]", "rain"]}
    assert "401" in stranger["failed"]
    assert "422" in unfit["failed"]
    assert seen == {"texts": []}
    assert "400" in unseen["failed"]


def test_without_room_texts_go_on_only_where_it_is_told_to_fail_open(
    client: Client, fronts: Served
) -> None:
    bad = ["good good"]
    with fronts.predictor.failing(OverloadedError("full", retry_after_seconds=1.0)):
        closed, opened, on_any = told(
            client,
            ("sentiment", bad, KEY),
            ("sentiment", bad, {**KEY, **OPEN}),
            ("sentiment", bad, {**KEY, "fail_on_error": False}),
        )
    assert "503" in closed["failed"]
    assert opened == on_any == {"texts": bad}

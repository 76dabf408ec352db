"""The OpenAPI document says what the routes do, and its examples are answered."""

import json
import re
import time
from http import HTTPStatus
from typing import Any

import pytest
from fastapi.routing import APIRoute
from front_fakes import Behind, client_of, view
from gateway_world import answered_text, event_of

from contracts.tasks import Task
from gateway.http.openapi import RouteDescription

BEHIND = Behind()
BEHIND.predictor.views["splade"] = view("splade", Task.SPARSE_EMBEDDING)
# Of routes that are for one task.
BEHIND.predictor.views["m3"] = view("m3", Task.HYBRID_EMBEDDING)
ENDPOINTS = {
    "rerank": "reranker",
    "embed": "minilm",
    "embeddings": "minilm",
    "similarity": "minilm",
    "embed_sparse": "splade",
    "embed_all": "m3",
}


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


async def input_file() -> str:
    """The id of a file that a batch can be made of."""
    line = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {"model": "minilm", "input": "a"},
    }
    async with client_of(BEHIND) as client:
        form = {"file": ("a.jsonl", json.dumps(line)), "purpose": (None, "batch")}
        return str((await client.post("/v1/files", files=form)).json()["id"])


async def batch() -> str:
    """The id of a batch."""
    body = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    async with client_of(BEHIND) as client:
        made = await client.post("/v1/batches", json={**body, "input_file_id": await input_file()})
        return str(made.json()["id"])


# Texts are written by a pipeline, which stands behind the app of ``test_completions`` alone.
ANSWERED_HERE = [
    one for one in BEHIND.app.described if one.operation.request and one.path != "/v1/completions"
]


async def bodies_of(described: RouteDescription) -> tuple[str, list[dict[str, Any]]]:
    """A path of a route, and its examples."""
    endpoint = ENDPOINTS.get(described.path.rsplit("/", 1)[-1], "sentiment")
    path = described.path.replace("{endpoint}", endpoint).replace("{version}", "2")
    if "{batch}" in path:
        path = path.replace("{batch}", await batch())
    bodies: list[dict[str, Any]] = []
    for example in described.operation.examples.values():
        assert isinstance(example, dict)
        body = {**example, "receipt": receipt()} if "receipt" in example else example
        if "input_file_id" in example:
            body = {**example, "input_file_id": await input_file()}
        bodies.append(body)
    assert bodies
    return path, bodies


@pytest.mark.parametrize("described", ANSWERED_HERE)
async def test_every_example_is_answered(described: RouteDescription) -> None:
    path, bodies = await bodies_of(described)
    async with client_of(BEHIND) as client:
        for body in bodies:
            answer = await client.post(path, json=body)
            assert answer.status_code == described.operation.success
            assert "x-headrace-ignored" not in answer.headers


# Nothing is read of a cancellation. LiteLLM tells of itself in fields of its own.
READING = [one for one in ANSWERED_HERE if not one.path.endswith("/cancel")]
LITELLM = "/endpoints/{endpoint}/beta/litellm_basic_guardrail_api"


@pytest.mark.parametrize("described", [one for one in READING if one.path != LITELLM])
async def test_no_field_is_dropped_in_silence(described: RouteDescription) -> None:
    path, (body, *_) = await bodies_of(described)
    assert described.operation.request is not None
    fields = described.operation.request.__struct_fields__
    foreign: dict[str, dict[str, Any]] = {"nobodys": {"nobodys": 1}}
    if "parameters" in fields:
        foreign["parameters.nobodys"] = {"parameters": {"nobodys": 1}}
    async with client_of(BEHIND) as client:
        for misspelt in {f"{name}s" for name in fields} - {*fields}:
            answer = await client.post(path, json={**body, misspelt: None})
            assert answer.status_code in (400, 422), misspelt
            assert misspelt in answer.text
        for name, field in foreign.items():
            usual = await client.post(path, json={**body, **field})
            if usual.status_code == HTTPStatus.OK:
                assert usual.headers.get("x-headrace-ignored") == name
            strict = {"x-headrace-strict": "true"}
            refused = await client.post(path, json={**body, **field}, headers=strict)
            for answer in (refused, *[usual] * (usual.status_code != HTTPStatus.OK)):
                assert answer.status_code in (400, 422)
                assert "nobodys" in answer.text


async def test_the_page_shows_every_route_and_needs_no_other_host() -> None:
    async with client_of(BEHIND, operations=True) as client:
        page = (await client.get("/docs")).text
    for described in BEHIND.app.described:
        assert f"<code>{described.path}</code>" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)

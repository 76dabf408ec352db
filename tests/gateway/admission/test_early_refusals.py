"""A request is refused before its body only where no version that may answer it has room."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import httpx
import pytest
from front_fakes import FakeMetrics, FakePredictor, front_of
from gateway_world import endpoint_of
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import Arm, ModelEndpoint
from contracts.model import DEFAULT_POOL, ModelRef
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.errors import OverloadedError

URL = "/endpoints/sentiment"


@asynccontextmanager
async def asked(endpoint: ModelEndpoint) -> AsyncIterator[tuple[World, httpx.AsyncClient]]:
    """A client of the whole application over one engine."""
    async with world_of(endpoint) as world:
        app = create_app(Front(world.endpoints, world.admission, world.pipeline, FakeMetrics()))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            yield world, client


def fill(world: World, ref: ModelRef) -> None:
    """Gives every replica of a version batches that will not end before any deadline."""
    for replica in world.endpoints.serving.batchers[DEFAULT_POOL][ref.package].replicas:
        while replica.idle:
            replica.batch_sent(monotonic(), 1000.0, 16)


def callers(world: World, arm: Arm, count: int = 3) -> list[str]:
    """Keys of callers that belong to an arm."""
    routes = world.endpoints.serving.table["sentiment"]
    keys = (f"user-{number}" for number in range(10_000))
    found = (key for key in keys if routes.choose(key).arm is arm)
    return [next(found) for _ in range(count)]


async def statuses(client: httpx.AsyncClient, keys: list[str], url: str = URL) -> list[int]:
    answers = [
        await client.post(url, json={"inputs": "w1"}, headers={"x-headrace-key": key})
        for key in keys
    ]
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize("weight", [5, 50])
async def test_callers_of_an_idle_canary_are_answered_while_stable_is_full(weight: float) -> None:
    async with asked(endpoint_of(ONE.ref, canary=TWO.ref, weight=weight)) as (world, client):
        fill(world, ONE.ref)
        assert await statuses(client, callers(world, Arm.CANARY)) == [200] * 3
        assert await statuses(client, callers(world, Arm.STABLE)) == [503] * 3
    assert {event.version for event in world.recorder.events} == {"2"}


async def test_callers_of_a_full_canary_are_answered_by_stable() -> None:
    async with asked(endpoint_of(ONE.ref, canary=TWO.ref, weight=50)) as (world, client):
        fill(world, TWO.ref)
        assert await statuses(client, callers(world, Arm.CANARY)) == [200] * 3
    assert {event.version for event in world.recorder.events} == {"1"}


async def test_a_caller_that_forces_a_version_needs_room_there_alone() -> None:
    async with asked(endpoint_of(ONE.ref, packages=[ONE.ref, TWO.ref])) as (world, client):
        fill(world, ONE.ref)
        body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["w1"]}]}
        named = "/v2/models/sentiment/versions"
        by_header = await client.post(
            URL, json={"inputs": "w1"}, headers={"x-headrace-version": "2"}
        )
        by_path = await client.post(f"{named}/2/infer", json=body)
        full = await client.post(f"{named}/1/infer", json=body)
        nobodys = await client.post(f"{named}/9/infer", json=body)
    assert [a.status_code for a in (by_header, by_path, full, nobodys)] == [200, 200, 503, 404]


async def test_with_every_version_full_nobody_is_let_in() -> None:
    async with asked(endpoint_of(ONE.ref, canary=TWO.ref, weight=50)) as (world, client):
        fill(world, ONE.ref)
        fill(world, TWO.ref)
        keys = [*callers(world, Arm.CANARY), *callers(world, Arm.STABLE)]
        assert await statuses(client, keys) == [503] * 6
    assert world.recorder.events == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_endpoint_is_read_from_a_body_that_lies_there_whole(method: str) -> None:
    predictor = FakePredictor.with_endpoints()
    predictor.full = OverloadedError("Full.", retry_after_seconds=1)
    refusal = create_app(front_of(predictor)).early_refusals.refusal
    path, body = "/v1/embeddings", b'{"input": ["a", "b"], "model": "minilm"}'
    answer = refusal(method, path, {}, body)
    assert (answer is not None) == (method == "POST")
    # What can't be told from the headers is the handler's to say.
    assert refusal(method, path, {}) is None
    for unreadable in (b"{}", b"\xff", b'{"model": 3}', b'{"model": "minilm"', b"[" * 5000):
        assert refusal(method, path, {}, unreadable) is None

"""Classifiers whose labels stand each on its own, from their package to a caller's answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
from front_fakes import FakeKeys, FakeMetrics
from gateway_world import FakeEngine, MemoryRecorder, endpoint_of, manifest_of, tokenizer_json
from numpy.typing import NDArray
from reconciler_world import FakePackages, world_of

from contracts.model import DEFAULT_POOL
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.http.body import HttpLimits
from gateway.inference.pipeline import Pipeline
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.packages import ServedModel, open_package
from gateway.telemetry.metrics import Metrics

LOGITS = (2.0, -1.0)
SOFTMAX = [1 / (1 + np.exp(-3.0)), 1 / (1 + np.exp(3.0))]
SIGMOID = [1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(1.0))]


def package(name: str, *labels: str, multi_label: bool = False) -> ServedModel:
    """A package as it comes out of a store."""
    manifest = manifest_of(model=name, labels=labels, multi_label=multi_label)
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


SENTIMENT = package("sentiment", "negative", "positive")
TOPICS = package("topics", "sport", "money", multi_label=True)
TOXIC = package("toxic", "toxic")
MODELS = (SENTIMENT, TOPICS, TOXIC)


def same_logits(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Two labels' logits, whatever the text."""
    return np.tile(np.array(LOGITS, np.float32), (len(ids), 1))


@asynccontextmanager
async def gateway() -> AsyncIterator[httpx.AsyncClient]:
    """HTTP, pipeline and reconciler as in a gateway, over an engine that obeys."""
    one_label = FakeEngine(answer=lambda ids: same_logits(ids)[:, :1])
    endpoints, recorder, metrics = ServedEndpoints(), MemoryRecorder(), Metrics()
    admission = AdmissionController(
        endpoints=endpoints,
        keys=FakeKeys(),
        rates=RateLimits(),
        budget=TokenBudget(10_000),
        held=ByteBudget(10**9),
        recorder=recorder,
        metrics=metrics,
    )
    pipeline = Pipeline(endpoints, admission, recorder, metrics)
    app = create_app(Front(endpoints, admission, pipeline, FakeMetrics()), HttpLimits())
    wanted = (endpoint_of(model.ref, name=model.ref.model) for model in MODELS)
    async with (
        world_of(FakePackages(*MODELS), *wanted) as world,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client,
    ):
        world.engines["static:1"] = FakeEngine(answer=same_logits, others={TOXIC.name: one_label})
        endpoints.serve(await world.until(all_serve))
        yield client


def all_serve(state: Serving) -> bool:
    batchers = state.batchers.get(DEFAULT_POOL, {}).values()
    return len(batchers) == len(MODELS) and all(batcher.serves for batcher in batchers)


async def ask(client: httpx.AsyncClient, name: str, function: str | None) -> httpx.Response:
    parameters = {"top_k": None, "function_to_apply": function}
    return await client.post(
        f"/endpoints/{name}", json={"inputs": "w1 w2", "parameters": parameters}
    )


MADE_BY = {
    "sentiment": ("softmax", "sigmoid", SOFTMAX),
    "topics": ("sigmoid", "softmax", SIGMOID),
    "toxic": ("sigmoid", "softmax", SIGMOID[:1]),
}


async def test_only_the_function_that_makes_an_endpoints_scores_may_be_asked_for() -> None:
    async with gateway() as client:
        for name, (function, other, scores) in MADE_BY.items():
            for allowed in (function, None):
                answer = await ask(client, name, allowed)
                assert answer.status_code == 200, answer.text
                assert [row["score"] for row in answer.json()] == pytest.approx(scores)
            answer = await ask(client, name, other)
            assert answer.status_code == 422
            assert f"of {name} are made by {function}" in answer.json()["error"]["message"]

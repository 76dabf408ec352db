"""What a package says of its vectors, from the reconciler's view of it to a caller's answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
from front_fakes import FakeKeys, FakeMetrics
from gateway_world import (
    WORDS,
    FakeEngine,
    MemoryRecorder,
    endpoint_of,
    manifest_of,
    tokenizer_json,
)
from numpy.typing import NDArray
from reconciler_world import FakePackages, world_of

from contracts.manifest import VectorRanges
from contracts.model import DEFAULT_POOL
from contracts.tasks import Task
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.inference.pipeline import Pipeline
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.packages import ServedModel, open_package
from gateway.telemetry.metrics import Metrics


def package(name: str, ranges: VectorRanges | None) -> ServedModel:
    plain = manifest_of(model=name, task=Task.TEXT_EMBEDDING, labels=())
    tokenizer = plain.tokenizer.model_copy(update={"prompts": {"query": f"{WORDS[0]} {WORDS[1]} "}})
    more = {"dimension": 2, "ranges": ranges, "tokenizer": tokenizer}
    manifest = plain.model_copy(update=more)
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


NEW = package("new", VectorRanges(low=(0.0, 0.0), high=(25.5, 51.0)))
OLD = package("old", None)


def lengths(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """How many tokens a text has, and ten."""
    counts = (ids > 0).sum(axis=1)
    return np.stack([counts, np.full(len(ids), 10)], axis=1).astype(np.float32)


@asynccontextmanager
async def gateway() -> AsyncIterator[httpx.AsyncClient]:
    """HTTP, pipeline and reconciler as in a gateway, over an engine that obeys."""
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
    app = create_app(Front(endpoints, admission, pipeline, FakeMetrics()))
    wanted = (endpoint_of(model.ref, name=model.ref.model) for model in (NEW, OLD))
    async with (
        world_of(FakePackages(NEW, OLD), *wanted) as world,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client,
    ):
        world.engines["static:1"] = FakeEngine(answer=lengths)
        endpoints.serve(await world.until(both_serve))
        yield client


def both_serve(serving: Serving) -> bool:
    batchers = serving.batchers.get(DEFAULT_POOL, {}).values()
    return len(batchers) == 2 and all(each.serves for each in batchers)


async def test_bytes_are_made_by_the_ranges_of_the_package() -> None:
    body = {"inputs": f"{WORDS[2]} {WORDS[3]}", "parameters": {"precision": "uint8"}}
    async with gateway() as client:
        plain = await client.post("/endpoints/new", json={"inputs": body["inputs"]})
        answer = await client.post("/endpoints/new", json=body)
        refused = await client.post("/endpoints/old", json=body)
    tokens = int(plain.json()[0])
    assert answer.json() == [10 * tokens, 50]  # steps of 0.1 and 0.2
    assert refused.status_code == 422
    assert "parameters.precision: the version was converted before" in refused.text


async def test_prompts_of_the_package_are_known_before_it_is_asked() -> None:
    async with gateway() as client:
        plain = await client.post("/endpoints/new", json={"inputs": WORDS[2]})
        asked = {"inputs": WORDS[2], "prompt_name": "query"}
        prompted = await client.post("/endpoints/new", json=asked)
        refused = await client.post("/endpoints/new", json={**asked, "prompt_name": "passage"})
    assert prompted.json()[0] == plain.json()[0] + 2
    assert refused.status_code == 422
    assert "prompt_name: new has no prompt 'passage'; it has query" in refused.text

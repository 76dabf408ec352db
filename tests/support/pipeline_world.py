"""A pipeline with admission, batchers, a fleet and shadows over one engine that obeys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from front_fakes import FakeKeys
from gateway_world import LABELS, FakeEngine, MemoryRecorder, model_of

from contracts.endpoint import ModelEndpoint
from contracts.events import PredictionEvent
from gateway.admission.controller import AdmissionController
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.batching.batcher import Batcher
from gateway.calls import Call, EndpointView
from gateway.engine.fleet import Fleet
from gateway.inference.observations import Hooks
from gateway.inference.pipeline import Pipeline
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.mirroring.shadow import MirrorLimits, Shadows
from gateway.packages import ServedModel
from gateway.routing.routes import RoutingTable, build_table
from gateway.telemetry.metrics import Metrics
from preprocess.hooks import Hook

ONE, TWO = model_of("1"), model_of("2")


@dataclass
class Spans:
    """Keeps what was traced."""

    seen: list[tuple[Call, PredictionEvent]] = field(default_factory=list)

    def attempt(self, call: Call, event: PredictionEvent) -> None:
        self.seen.append((call, event))


@dataclass
class World:
    """A pipeline over one engine."""

    engine: FakeEngine
    endpoints: ServedEndpoints
    admission: AdmissionController
    pipeline: Pipeline
    recorder: MemoryRecorder
    metrics: Metrics
    budget: TokenBudget
    spans: Spans
    shadows: Shadows
    serve: Callable[[ModelEndpoint], None]

    @property
    def statuses(self) -> list[int]:
        """Of all events and refusals."""
        return [e.status for e in self.recorder.events] + [r[1] for r in self.recorder.refusals]


@asynccontextmanager
async def world_of(
    endpoint: ModelEndpoint,
    engine: FakeEngine | None = None,
    limits: MirrorLimits | None = None,
    *,
    more: tuple[ServedModel, ...] = (),
    receipts: Receipts | None = None,
    hook: Hook | None = None,
    pairs: KeptPairs | None = None,
    unk_words: bool = True,
) -> AsyncIterator[World]:
    """Serves the endpoint from versions 1, 2 and ``more``; lets go at the end of what is held."""
    engine = engine or FakeEngine()
    fleet = Fleet(lambda _: engine, ahead=2)
    fleet.set_addresses(["t:1"])
    recorder, metrics, budget, spans = MemoryRecorder(), Metrics(), TokenBudget(100_000), Spans()
    hooks = None if hook is None else Hooks({endpoint.name: hook}, metrics)
    shadows = Shadows(recorder, metrics, budget, limits, pairs=pairs, hooks=hooks)
    endpoints = ServedEndpoints()
    admission = AdmissionController(
        endpoints=endpoints,
        keys=FakeKeys(),
        rates=RateLimits(),
        budget=budget,
        recorder=recorder,
        metrics=metrics,
    )
    pipeline = Pipeline(
        endpoints,
        admission,
        recorder,
        metrics,
        spans,
        mirror=shadows,
        receipts=receipts,
        hooks=hooks,
        unk_words=unk_words,
    )
    opened = {model.ref.package: model for model in (ONE, TWO, *more)}
    batchers = {}
    for package, model in opened.items():
        batcher = batchers[package] = Batcher(model, fleet, metrics)
        batcher.replicas = fleet.replicas(model.name, 1, batcher.wake)
        for replica in batcher.replicas:
            if engine.here and (engine.holds is None or model.name in engine.holds):
                replica.breaker.succeed()

    def serve(endpoint: ModelEndpoint) -> None:
        table = build_table([endpoint], opened, RoutingTable(), lambda _: True)
        stable, limits = endpoint.status.stable, endpoint.spec.limits
        view = EndpointView(
            name=endpoint.name,
            task=ONE.task,
            refs=() if stable is None else (stable,),
            labels=LABELS,
            dimension=None,
            max_tokens=16,
            max_texts=limits.max_texts_per_request,
            max_tokens_in_flight=limits.max_tokens_in_flight,
            timeout_seconds=limits.timeout_seconds,
            ready=True,
        )
        endpoints.serve(Serving(table, batchers, {endpoint.name: view}, complete=True))

    serve(endpoint)
    async with asyncio.timeout(60):
        yield World(
            engine, endpoints, admission, pipeline, recorder, metrics, budget, spans, shadows, serve
        )
    await shadows.close()
    if engine.held is not None:
        engine.held.set()
    for batcher in batchers.values():
        await batcher.settle()
    await fleet.close()
    assert budget.by_endpoint() == {}

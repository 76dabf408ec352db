"""A pipeline with admission, batchers, a fleet and shadows over one engine that obeys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from front_fakes import FakeKeys
from gateway_world import FakeEngine, MemoryRecorder, model_of

from contracts.backoff import Backoff
from contracts.endpoint import ModelEndpoint
from contracts.events import PredictionEvent
from contracts.model import DEFAULT_POOL
from contracts.tasks import Task
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.batching.batcher import Batcher
from gateway.batching.bulk import BulkShare
from gateway.calls import Call, EndpointView
from gateway.engine.fleet import Fleet
from gateway.inference.observations import Hooks
from gateway.inference.own_code import ModelCodes, OwnCode
from gateway.inference.pipeline import Pipeline
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.mirroring.shadow import MirrorLimits, Shadows
from gateway.packages import ServedModel
from gateway.routing.routes import RoutingTable, build_table
from gateway.telemetry.metrics import Metrics
from preprocess.hooks import Hook
from preprocess.model_code.process import CodeLimits

ONE, TWO = model_of("1"), model_of("2")
# Generous where nothing is meant to fail: tests share their machine.
CODE_LIMITS = CodeLimits(call_seconds=60.0, start_seconds=240.0, pauses=Backoff(60.0, 60.0))


@dataclass
class Spans:
    """Keeps what was traced."""

    seen: list[tuple[Call, PredictionEvent]] = field(default_factory=list)

    def attempt(self, call: Call, event: PredictionEvent, task: Task) -> str:
        self.seen.append((call, event))
        return event.trace_id


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
    serve: Callable[..., None]
    codes: ModelCodes | None = None

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
    code_folder: Path | None = None,
    code_limits: CodeLimits = CODE_LIMITS,
) -> AsyncIterator[World]:
    """Serves the endpoint from versions 1, 2 and ``more``; lets go at the end of what is held."""
    engine = engine or FakeEngine()
    fleet = Fleet(lambda _: engine, ahead=2)
    fleet.set_addresses(["t:1"])
    recorder, metrics, budget, spans = MemoryRecorder(), Metrics(), TokenBudget(100_000), Spans()
    hooks = None if hook is None else Hooks({endpoint.name: hook}, metrics)
    codes = None if code_folder is None else ModelCodes(code_folder, code_limits, metrics)
    own = OwnCode(hooks, codes) if hooks or codes else None
    share = BulkShare(short_seconds=60.0)  # so that time decides nothing
    shadows = Shadows(recorder, metrics, budget, limits, pairs=pairs, bulk=share, own=own)
    endpoints = ServedEndpoints()
    admission = AdmissionController(
        endpoints=endpoints,
        keys=FakeKeys(),
        rates=RateLimits(),
        budget=budget,
        held=ByteBudget(10**9),
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
        own=own,
    )
    opened = {model.ref.package: model for model in (ONE, TWO, *more)}
    batchers = {}
    for package, model in opened.items():
        batcher = batchers[package] = Batcher(model, fleet, metrics, share=share)
        batcher.replicas = fleet.replicas(model.name, model.at_once, batcher.wake)
        for replica in batcher.replicas:
            if engine.here and (engine.holds is None or model.name in engine.holds):
                replica.breaker.succeed()

    def serve(*served: ModelEndpoint) -> None:
        table = build_table(list(served), opened, RoutingTable(), lambda _, __: True)
        if codes is not None:
            codes.keep(table)
        views = {endpoint.name: _view(endpoint, opened) for endpoint in served}
        endpoints.serve(Serving(table, {DEFAULT_POOL: batchers}, views, complete=True))

    serve(endpoint)
    try:
        async with asyncio.timeout(1800):
            yield World(
                engine, endpoints, admission, pipeline, recorder, metrics, budget, spans, shadows,
                serve, codes,
            )  # fmt: skip
    finally:
        if codes is not None:
            await codes.close()
    await shadows.close()
    if engine.held is not None:
        engine.held.set()
    for batcher in batchers.values():
        await batcher.settle()
    await fleet.close()
    assert budget.by_endpoint() == {}


def _view(endpoint: ModelEndpoint, opened: dict[str, ServedModel]) -> EndpointView:
    stable, limits = endpoint.status.stable, endpoint.spec.limits
    served = ONE if stable is None else opened.get(stable.package, ONE)
    manifest = served.manifest
    return EndpointView(
        name=endpoint.name,
        task=served.task,
        refs=() if stable is None else (stable,),
        labels=manifest.labels,
        dimension=manifest.dimension,
        max_tokens=16,
        max_texts=limits.max_texts_per_request,
        max_tokens_in_flight=limits.max_tokens_in_flight,
        timeout_seconds=limits.timeout_seconds,
        ready=True,
        rows=manifest.max_batch_size,
        prompts=tuple(manifest.tokenizer.prompts),
        guardrail=endpoint.spec.guardrail,
        has_ranges=manifest.ranges is not None,
        features=manifest.features,
        requests_per_second_per_key=limits.requests_per_second_per_key,
    )

"""Whatever happens in a rollout, who names no space gets the old one until a person cuts over."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway_world import manifest_of, tokenizer_json
from hypothesis import given
from hypothesis import strategies as st
from rollout_walk import SECONDS, Walk, loaded_candidate, window

from contracts.endpoint import (
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Route,
    rollout_spec,
)
from contracts.model import ModelRef
from contracts.rollout import EmbeddingSpec, RolloutSpec, Strategy, VectorSpace, Verb
from contracts.tasks import Task
from gateway.errors import GatewayError
from gateway.packages import ServedModel, open_package
from gateway.routing.routes import EndpointRoutes, RoutingTable, build_table
from rollout.context import Observation
from rollout.machine import advance


def served(version: str, space: str) -> ServedModel:
    made = manifest_of(version, task=Task.TEXT_EMBEDDING, labels=())
    manifest = made.model_copy(update={"space": space * 12, "dimension": 3})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


OLD, NEW = served("1", "a"), served("2", "b")
KEYS = [f"caller-{number}" for number in range(8)]


@dataclass
class EmbedderWalk(Walk):
    """An embedding endpoint on its walk by the spec that follows from both spaces."""

    asked: RolloutSpec = field(default_factory=RolloutSpec)
    seen: list[ModelEndpoint] = field(default_factory=list)

    def step(self, seconds: float = 0.0) -> "EmbedderWalk":
        """One pass of the controller, which may have been killed before: it keeps nothing."""
        self.now = max(0.0, self.now + seconds)
        spec = EndpointSpec(model="m", task=Task.TEXT_EMBEDDING, rollout=self.asked)
        status = EndpointStatus.model_validate_json(self.status.model_dump_json(by_alias=True))
        spec_of = partial(rollout_spec, spec)
        context = (self.observed, self.now, self.judge)
        self.status = advance(spec_of(status), status, *context, spec_of=spec_of)
        self.seen.append(ModelEndpoint(metadata=Metadata(name="e"), spec=spec, status=self.status))
        return self


def begun() -> EmbedderWalk:
    held = frozenset({OLD.ref, NEW.ref})
    status = loaded_candidate(NEW.ref, OLD.ref).model_copy(update={"task": Task.TEXT_EMBEDDING})
    known = tuple(
        window((Route.all_callers(OLD.ref),), start) for start in range(9_000, 9_000 + 250, SECONDS)
    )
    observed = Observation(loaded=held, target="2", windows=known)
    return EmbedderWalk(status=status, observed=observed).step()


HAPPENINGS = st.one_of(
    st.tuples(st.just("traffic"), st.sampled_from(["pass", "pass", "unknown", "fail"])),
    st.tuples(st.just("time"), st.sampled_from([1.0, 400.0, 90_000.0, -500.0])),
    st.tuples(st.just("loaded"), st.sampled_from([{OLD}, {OLD, NEW}, {NEW}, set[ServedModel]()])),
    st.tuples(st.just("told"), st.sampled_from([Verb.PAUSE, Verb.RESUME, Verb.RETRY])),
    st.tuples(st.just("strategy"), st.sampled_from(["canary", "shadow", "cutover"])),
    st.tuples(st.just("embedding"), st.sampled_from([None, VectorSpace.CUTOVER])),
)


def happen(walk: EmbedderWalk, what: tuple[str, Any]) -> None:
    kind, value = what
    match kind:
        case "traffic":
            walk.traffic(value, 2)
        case "time":
            walk.step(value)
        case "loaded":
            walk.sees(*(model.ref for model in value)).step()
        case "told":
            walk.told(value)
        case "strategy":
            walk.asked = walk.asked.model_copy(update={"strategy": Strategy(value)})
            walk.step()
        case _:
            embedding = EmbeddingSpec(space=value)
            walk.asked = walk.asked.model_copy(update={"embedding": embedding})
            walk.step()


def is_served(away: ModelRef | None, _: str, ref: ModelRef) -> bool:
    return ref != away


def gateway(draw: st.DrawFn, walk: EmbedderWalk) -> list[EndpointRoutes]:
    """The tables of one gateway: it misses some states, packages, Tritons and heartbeats."""
    table, found = RoutingTable(), []
    for endpoint in walk.seen:
        if draw(st.integers(0, 3)) == 0:
            continue
        lost = draw(st.sampled_from([None, None, OLD, NEW]))
        opened = {model.ref.package: model for model in (OLD, NEW) if model is not lost}
        away = draw(st.sampled_from([None, None, OLD.ref, NEW.ref]))
        withheld = ["e"] if draw(st.integers(0, 4)) == 0 else []
        table = build_table([endpoint], opened, table, partial(is_served, away), withheld)
        found.append(table["e"])
    return found


def spaces(routes: EndpointRoutes) -> set[str]:
    """Of all answers to callers who name none."""
    found = set()
    for key in KEYS:
        try:
            targets = routes.target_and_fallback(key)
        except GatewayError:  # nothing is there yet
            continue
        found |= {target.model.ref.space for target in targets}
    return found


@st.composite
def walks(draw: st.DrawFn) -> tuple[EmbedderWalk, list[list[EndpointRoutes]]]:
    walk = begun()
    for what in draw(st.lists(HAPPENINGS, max_size=12)):
        happen(walk, what)
    return walk, [gateway(draw, walk) for _ in range(2)]


@given(walks())
def test_no_caller_who_names_none_gets_the_new_space_before_a_person_says_so(
    found: tuple[EmbedderWalk, list[list[EndpointRoutes]]],
) -> None:
    walk, gateways = found
    assert walk.status.stable == OLD.ref
    for tables in gateways:
        for routes in tables:
            assert spaces(routes) <= {OLD.ref.space}
            # Who asks for the next one by that name gets it once its checks have passed.
            state = routes.endpoint.status.rollout
            is_there = state is not None and state.passed_at is not None
            assert not routes.next_space or is_there


def test_the_walk_comes_to_the_cutover_and_all_callers_change_at_once() -> None:
    walk = begun()
    walk.traffic("pass", 3)
    assert walk.state.passed_at is not None
    held = {model.ref.package: model for model in (OLD, NEW)}
    for verb, space in ((None, OLD), (Verb.PROMOTE, NEW), (Verb.UNDO, OLD)):
        if verb is not None:
            walk.told(verb)
        table = build_table([walk.seen[-1]], held, RoutingTable(), lambda *_: True)
        assert spaces(table["e"]) == {space.ref.space}

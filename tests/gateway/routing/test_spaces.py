"""A caller who names a vector space gets vectors of that space, or none."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from gateway_world import endpoint_of, manifest_of, tokenizer_json
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm, ModelEndpoint
from contracts.rollout import RolloutSpec, Strategy, VectorSpace
from contracts.tasks import Task
from gateway.errors import ModelUnavailableError, UnknownVersionError
from gateway.packages import ServedModel, open_package
from gateway.routing.routes import (
    NEXT_SPACE,
    EndpointRoutes,
    RouteTarget,
    RoutingTable,
    build_table,
)

A, B, C = (letter * 12 for letter in "abc")


def served(version: str, space: str) -> ServedModel:
    made = manifest_of(version, task=Task.TEXT_EMBEDDING, labels=())
    manifest = made.model_copy(update={"space": space, "dimension": 3})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


# Two packages of one version may be of two spaces: its model was registered again.
MODELS = [served(version, space) for version in "123" for space in (A, B, "")]
BY_PACKAGE = {model.ref.package: model for model in MODELS}
WORDS = [
    open_package(manifest.ref(), manifest.canonical(), tokenizer_json())
    for manifest in map(manifest_of, "12")
]
OLD, SAME, NEW = served("1", A), served("2", A), served("2", B)


def judged(
    endpoint: ModelEndpoint,
    passed_at: float | None = 1.0,
    promoted_at: float | None = None,
    **rollout: Any,
) -> ModelEndpoint:
    """The endpoint of an embedder whose rollout, begun at 0, has come so far."""
    asked = {"task": Task.TEXT_EMBEDDING, "rollout": RolloutSpec.model_validate(rollout)}
    state = endpoint.status.rollout
    if state is not None:
        state = state.model_copy(update={"passed_at": passed_at, "promoted_at": promoted_at})
    return endpoint.model_copy(
        update={
            "spec": endpoint.spec.model_copy(update=asked),
            "status": endpoint.status.model_copy(update={"rollout": state}),
        }
    )


def routes_of(
    endpoint: ModelEndpoint,
    opened: Sequence[ServedModel],
    previous: RoutingTable | None = None,
    *,
    withheld: bool = False,
) -> EndpointRoutes:
    held = {model.ref.package: model for model in opened}
    names = [endpoint.name] if withheld else []
    table = build_table([endpoint], held, previous or RoutingTable(), lambda *_: True, names)
    return table[endpoint.name]


REFS = st.sampled_from([model.ref for model in MODELS])


class Ask(NamedTuple):
    """What a caller says: perhaps a space, perhaps a version, and a sticky key."""

    space: str | None
    forced: str | None
    key: str


@st.composite
def endpoints(draw: st.DrawFn) -> ModelEndpoint:
    """Any routes: also such as no rollout would make."""
    arms = {arm: draw(st.none() | REFS) for arm in ("canary", "control", "shadow")}
    if arms["canary"] is not None:
        arms["control"] = None
    made = endpoint_of(
        draw(st.none() | REFS) if arms["canary"] is arms["control"] is None else draw(REFS),
        canary=arms["canary"],
        control=arms["control"],
        shadow=arms["shadow"],
        weight=draw(st.sampled_from([0.0, 5.0, 50.0])),
        rollout="r",
        packages=draw(st.lists(REFS, max_size=3)),
    )
    return judged(
        made,
        draw(st.none() | st.just(1.0)),
        promoted_at=draw(st.none() | st.just(1.0)),
        strategy=draw(st.sampled_from(Strategy)),
        embedding={"space": draw(st.none() | st.sampled_from(VectorSpace))},
    )


@st.composite
def routed(draw: st.DrawFn) -> EndpointRoutes:
    """Routes of a gateway that lacks some packages, and had another table before."""
    endpoint, before = draw(endpoints()), draw(st.none() | endpoints())
    lacking = draw(st.sets(st.sampled_from(MODELS), max_size=2))
    held = [model for model in MODELS if model not in lacking]
    previous = None if before is None else RoutingTable({before.name: routes_of(before, MODELS)})
    return routes_of(endpoint, held, previous, withheld=draw(st.booleans()))


@given(
    routed(),
    st.builds(
        Ask,
        st.sampled_from([A, B, C, NEXT_SPACE]),
        st.none() | st.sampled_from("129"),
        st.text(max_size=3),
    ),
)
def test_no_target_and_no_fallback_is_of_another_space_than_the_one_asked_for(
    routes: EndpointRoutes, ask: Ask
) -> None:
    space, forced, key = ask
    try:
        targets = routes.target_and_fallback(key, forced, space)
    except (ModelUnavailableError, UnknownVersionError):
        stable = routes.stable
        assert forced is not None or stable is None or stable.model.ref.space != space
        return
    spaces = {target.model.ref.space for target in targets}
    assert len(spaces) == 1
    assert {target.model.ref.version for target in targets} == {forced} or forced is None
    stable = routes.stable
    if space == NEXT_SPACE:
        state = routes.endpoint.status.rollout
        assert state is not None
        assert state.passed_at is not None
        assert spaces == {state.candidate.space} == {routes.next_space}
        assert stable is None or stable.model.ref.space not in spaces
    else:
        assert spaces == {space}
    for target in targets:
        again = routes.fallback_of(target)
        assert again is None or again.model.ref.space in spaces


@given(
    routed(),
    st.builds(
        Ask,
        st.none() | st.sampled_from([A, B, NEXT_SPACE]),
        st.none() | st.sampled_from("12"),
        st.text(max_size=3),
    ),
)
def test_no_fallback_is_of_another_space_whatever_a_caller_or_a_person_says(
    routes: EndpointRoutes, ask: Ask
) -> None:
    space, forced, key = ask
    asked = [RouteTarget(target.arm, target.model) for target in routes.targets]
    with suppress(ModelUnavailableError, UnknownVersionError):
        first, *others = routes.target_and_fallback(key, forced, space)
        assert others == [target for target in [routes.fallback_of(first)] if target is not None]
        asked.append(first)
    for first in asked:
        other = routes.fallback_of(first)
        if other is not None:
            one, two = first.model.ref, other.model.ref
            assert first.arm is not Arm.FORCED
            assert one.space == two.space
            assert one.space or one.version == two.version  # unknown ones are of one registration


def test_where_no_vectors_are_made_every_version_is_a_fallback() -> None:
    endpoint = endpoint_of(WORDS[0].ref, canary=WORDS[1].ref, weight=99, rollout="r")
    routes = routes_of(endpoint, WORDS)
    assert [target.model for target in routes.target_and_fallback("ann")] == [*reversed(WORDS)]


def test_until_the_cutover_only_a_caller_who_names_it_gets_the_next_space() -> None:
    both = [OLD.ref, NEW.ref]
    waits = judged(endpoint_of(OLD.ref, shadow=NEW.ref, rollout="r", packages=both))
    routes = routes_of(waits, [OLD, NEW])
    for space, model in ((None, OLD), (A, OLD), (B, NEW), (NEXT_SPACE, NEW)):
        (target,) = routes.target_and_fallback("ann", None, space)
        assert target.model is model, space
    cut_over = routes_of(
        judged(endpoint_of(NEW.ref, rollout="r", packages=both), None, promoted_at=1.0),
        [OLD, NEW],
    )
    for space, model in ((None, NEW), (A, OLD), (B, NEW)):
        (target,) = cut_over.target_and_fallback("ann", None, space)
        assert target.model is model, space
    with pytest.raises(ModelUnavailableError, match="no version of the vector space 'next'"):
        cut_over.target_and_fallback("ann", None, NEXT_SPACE)


def test_the_next_space_is_refused_until_all_that_it_lacks_is_the_cutover() -> None:
    endpoint = judged(endpoint_of(OLD.ref, shadow=NEW.ref, rollout="r"), None)
    routes = routes_of(endpoint, [OLD, NEW])
    with pytest.raises(ModelUnavailableError, match="once its checks in shadow have passed"):
        routes.target_and_fallback("ann", None, NEXT_SPACE)
    (by_name,) = routes.target_and_fallback("ann", None, B)
    assert by_name.model is NEW


def test_a_rollout_within_the_space_goes_on_for_a_caller_who_names_it() -> None:
    routes = routes_of(endpoint_of(OLD.ref, canary=SAME.ref, weight=50, rollout="r"), [OLD, SAME])
    for number in range(50):
        named = routes.target_and_fallback(str(number), None, A)
        assert named == routes.target_and_fallback(str(number))
        assert {target.arm for target in named} == {Arm.CANARY, Arm.STABLE} or len(named) == 1


def test_within_one_space_the_other_version_is_the_fallback_and_of_another_none() -> None:
    for new, fallbacks in ((SAME, [OLD]), (NEW, [])):
        endpoint = endpoint_of(OLD.ref, canary=new.ref, weight=99, rollout="r")
        routes = routes_of(endpoint, [OLD, new])
        for space in (None, new.ref.space):
            found = [target.model for target in routes.target_and_fallback("ann", None, space)]
            assert found == [new, *fallbacks]


def test_a_version_of_another_space_is_refused_with_the_spaces_that_are_there() -> None:
    routes = routes_of(endpoint_of(OLD.ref, packages=[NEW.ref]), [OLD, NEW])
    (forced,) = routes.target_and_fallback("ann", "2", B)
    assert (forced.arm, forced.model) == (Arm.FORCED, NEW)
    with pytest.raises(ModelUnavailableError, match=f"no version 2 of .* now: {A}, {B}"):
        routes.target_and_fallback("ann", "2", A)
    with pytest.raises(ModelUnavailableError, match=f"no version of .*'{C}'"):
        routes.target_and_fallback("ann", None, C)

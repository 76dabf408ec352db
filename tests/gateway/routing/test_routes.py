"""Which version answers: forced, sticky by weight, and never one that can't be served."""

import math
from collections.abc import Iterable

import pytest
from gateway_world import endpoint_of, model_of
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm, ModelEndpoint
from contracts.model import DEFAULT_POOL, ModelRef
from gateway.errors import ModelUnavailableError
from gateway.packages import ServedModel
from gateway.routing.routes import RoutingTable, Split, build_table, position

ONE, TWO = model_of("1"), model_of("2")


def table_of(
    *endpoints: ModelEndpoint,
    opened: Iterable[ServedModel] = (ONE, TWO),
    previous: RoutingTable | None = None,
    serving: Iterable[ModelRef] = (ONE.ref, TWO.ref),
    withheld: Iterable[str] = (),
    pools: Iterable[str] = (DEFAULT_POOL,),
) -> RoutingTable:
    by_package = {model.ref.package: model for model in opened}
    served, held = set(serving), set(withheld)

    def serves(pool: str, ref: ModelRef) -> bool:
        return pool in pools and ref in served

    return build_table(endpoints, by_package, previous or RoutingTable(), serves, held)


def test_a_canary_whose_package_is_not_at_hand_gets_nobody() -> None:
    routes = table_of(endpoint_of(ONE.ref, canary=TWO.ref, weight=90), opened=[ONE])["sentiment"]
    assert {routes.choose(str(number)).model.ref for number in range(50)} == {ONE.ref}


def test_the_old_version_answers_until_the_new_one_can() -> None:
    before = table_of(endpoint_of(ONE.ref))
    new = endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref])
    unopened = table_of(new, opened=[ONE], previous=before)
    assert unopened["sentiment"].choose("caller").model is ONE
    unloaded = table_of(new, previous=unopened, serving=[ONE.ref])
    assert unloaded["sentiment"].choose("caller").model is ONE
    ready = table_of(new, previous=unloaded)
    assert ready["sentiment"].choose("caller").model is TWO


def test_an_old_version_that_nobody_holds_any_more_does_not_block_the_new_one() -> None:
    before = table_of(endpoint_of(ONE.ref))
    after = table_of(endpoint_of(TWO.ref), previous=before, serving=[])
    assert after["sentiment"].choose("caller").model is TWO


def test_an_endpoint_that_was_deleted_is_gone() -> None:
    assert "sentiment" not in table_of(previous=table_of(endpoint_of(ONE.ref))).endpoints


def test_a_table_names_every_package_that_it_needs() -> None:
    endpoint = endpoint_of(ONE.ref, packages=[ONE.ref, TWO.ref])
    assert table_of(endpoint).models() == {ONE.ref.package: ONE, TWO.ref.package: TWO}


def arms_of(endpoint: ModelEndpoint, callers: int = 4000) -> list[tuple[Arm, str]]:
    routes = table_of(endpoint)["sentiment"]
    targets = [routes.choose(f"caller-{number}") for number in range(callers)]
    return [(target.arm, target.model.ref.version) for target in targets]


def test_whoever_met_the_new_version_keeps_it_through_growth_promotion_and_the_end() -> None:
    stages = [
        endpoint_of(ONE.ref, canary=TWO.ref, weight=5, rollout="r"),
        endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r"),
        endpoint_of(TWO.ref, control=ONE.ref, weight=5, rollout="r"),
        endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref]),
    ]
    met = [
        {number for number, (_, version) in enumerate(arms_of(stage)) if version == "2"}
        for stage in stages
    ]
    assert met[0] < met[1] < met[2] < met[3] == set(range(4000))


def test_a_control_keeps_its_share_of_callers_after_promotion() -> None:
    arms = arms_of(endpoint_of(TWO.ref, control=ONE.ref, weight=5, rollout="r"))
    assert set(arms) == {(Arm.STABLE, "2"), (Arm.CONTROL, "1")}
    assert 150 < arms.count((Arm.CONTROL, "1")) < 250


def test_a_control_that_is_not_at_hand_leaves_its_callers_to_stable() -> None:
    endpoint = endpoint_of(TWO.ref, control=ONE.ref, weight=40, rollout="r")
    routes = table_of(endpoint, opened=[TWO])["sentiment"]
    assert {routes.choose(str(number)).model.ref for number in range(50)} == {TWO.ref}


def test_another_rollout_meets_other_callers_first() -> None:
    def met(rollout: str) -> set[int]:
        endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=10, rollout=rollout)
        return {n for n, (arm, _) in enumerate(arms_of(endpoint)) if arm is Arm.CANARY}

    assert met("a") == met("a")
    assert len(met("a") & met("b")) < 0.3 * len(met("a"))


def test_a_shadow_gets_no_callers_but_its_share_of_copies() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, shadowed=25, rollout="r")
    routes = table_of(endpoint)["sentiment"]
    assert {routes.choose(str(number)).model.ref for number in range(50)} == {ONE.ref}
    assert routes.shadow is not None
    assert (routes.shadow.target.arm, routes.shadow.target.model) == (Arm.SHADOW, TWO)
    copied = sum(routes.shadow.takes(f"request-{number}") for number in range(4000))
    assert 850 < copied < 1150


def test_a_shadow_that_is_not_at_hand_gets_no_copies() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    assert table_of(endpoint, opened=[ONE])["sentiment"].shadow is None


@pytest.mark.parametrize(
    ("endpoint", "arm", "other"),
    [
        (endpoint_of(ONE.ref, canary=TWO.ref, weight=50), Arm.CANARY, Arm.STABLE),
        (endpoint_of(ONE.ref, canary=TWO.ref, weight=50), Arm.STABLE, None),
        (endpoint_of(TWO.ref, control=ONE.ref, weight=50), Arm.STABLE, Arm.CONTROL),
        (endpoint_of(TWO.ref, control=ONE.ref, weight=50), Arm.CONTROL, Arm.STABLE),
    ],
)
def test_where_a_version_fails_the_other_one_of_the_rollout_answers(
    endpoint: ModelEndpoint, arm: Arm, other: Arm | None
) -> None:
    routes = table_of(endpoint)["sentiment"]
    (target,) = [target for target in routes.targets if target.arm is arm]
    found = routes.fallback_of(target)
    assert (None if found is None else found.arm) is other
    assert routes.fallback_of(routes.choose("caller", "1")) is None


def test_a_candidate_that_is_withheld_gets_nobody_and_everybody_when_it_is_given_back() -> None:
    mine = endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r", packages=[ONE.ref, TWO.ref])
    other = endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r", name="other")
    callers = [f"caller-{number}" for number in range(200)]

    def versions(table: RoutingTable, name: str) -> list[str]:
        return [table[name].choose(caller).model.ref.version for caller in callers]

    before = table_of(mine, other)
    during = table_of(mine, other, previous=before, withheld=["sentiment"])
    assert set(versions(during, "sentiment")) == {"1"}
    assert versions(during, "other") == versions(before, "other")
    assert during["sentiment"].choose("whoever asks for it", "2").arm is Arm.FORCED
    after = table_of(mine, other, previous=during)
    assert versions(after, "sentiment") == versions(before, "sentiment")
    assert set(versions(after, "sentiment")) == {"1", "2"}


@pytest.mark.parametrize("withheld", [[], ["sentiment"]])
def test_a_candidate_gets_nobody_while_the_old_version_answers_for_the_new_one(
    withheld: list[str],
) -> None:
    three = model_of("3")
    before = table_of(endpoint_of(ONE.ref, canary=TWO.ref, weight=50, rollout="r"))
    new = endpoint_of(three.ref, canary=TWO.ref, weight=50, rollout="r")
    during = table_of(
        new,
        opened=[ONE, TWO, three],
        previous=before,
        serving=[ONE.ref, TWO.ref],
        withheld=withheld,
    )
    chosen = {during["sentiment"].choose(f"caller-{number}").model for number in range(50)}
    assert chosen == {ONE}
    assert during["sentiment"].withheld is bool(withheld)


def test_a_shadow_that_is_withheld_gets_no_copies() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    assert table_of(endpoint)["sentiment"].shadow is not None
    assert table_of(endpoint, withheld=["sentiment"])["sentiment"].shadow is None


def test_withholding_leaves_the_control_of_a_bake_alone() -> None:
    endpoint = endpoint_of(TWO.ref, control=ONE.ref, weight=5, rollout="r")
    plain, held = table_of(endpoint)["sentiment"], table_of(endpoint, withheld=["sentiment"])
    callers = [f"caller-{number}" for number in range(500)]
    arms = [held["sentiment"].choose(caller).arm for caller in callers]
    assert arms == [plain.choose(caller).arm for caller in callers]
    assert set(arms) == {Arm.STABLE, Arm.CONTROL}


SPACE = 2**64
keys = st.text(max_size=40)
percent = st.floats(min_value=0, max_value=100, allow_nan=False)


def test_a_position_never_changes() -> None:
    assert position("salt", "caller") == 8969124377456056644


def test_a_lone_surrogate_is_a_key_like_any_other() -> None:
    assert 0 <= position("salt", "\ud800") < SPACE


@given(percent, percent, keys)
def test_a_growing_weight_only_adds_callers(one: float, other: float, key: str) -> None:
    small, large = sorted((one, other))
    before = Split.of_weights("salt", [small, 100 - small]).choose(key)
    after = Split.of_weights("salt", [large, 100 - large]).choose(key)
    assert not (before == 0 and after != 0)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0, 50.0, 99.0, 100.0])
def test_a_hundred_thousand_callers_split_by_weight(weight: float) -> None:
    split = Split.of_weights("rollout-1", [weight, 100 - weight])
    count = 100_000
    hits = sum(split.choose(f"caller-{number}") == 0 for number in range(count))
    share = weight / 100
    # Five standard deviations: a fair split leaves these bounds once in two million runs; this
    # one is the same in every run.
    assert abs(hits - share * count) <= 5 * math.sqrt(count * share * (1 - share))


@pytest.mark.parametrize("weights", [[], [50], [-1, 101], [50, 60]])
def test_weights_that_are_no_percentages_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Split.of_weights("salt", weights)


def moving_from(pool: str, to: str = "", *, name: str = "sentiment") -> ModelEndpoint:
    endpoint = endpoint_of(ONE.ref, name=name)
    status = endpoint.status.model_copy(update={"pool": pool, "next_pool": to})
    return endpoint.model_copy(update={"status": status})


def test_an_endpoint_is_answered_by_its_pool_and_by_no_other() -> None:
    table = table_of(moving_from("a"), moving_from("b", name="other"), pools=["a", "b"])
    assert (table["sentiment"].pool, table["other"].pool) == ("a", "b")
    lost = table_of(moving_from("a"), moving_from("b", name="other"), previous=table, pools=["a"])
    assert (lost["sentiment"].pool, lost["other"].pool) == ("a", "b")


def test_callers_change_their_pool_once_a_triton_of_the_new_one_serves_them() -> None:
    both = ["a", "b"]
    loading = table_of(moving_from("a", "b"), pools=["a"])
    assert loading["sentiment"].pool == "a"
    loaded = table_of(moving_from("a", "b"), previous=loading, pools=both)
    assert loaded["sentiment"].pool == "a"
    # This gateway has not found the new pool's Tritons ready yet.
    told = table_of(moving_from("b"), previous=loaded, pools=["a"])
    assert told["sentiment"].pool == "a"
    moved = table_of(moving_from("b"), previous=told, pools=both)
    assert moved["sentiment"].pool == "b"
    # It has left the old pool for good.
    assert table_of(moving_from("b"), previous=moved, pools=["a"])["sentiment"].pool == "b"


def test_a_pool_that_died_is_left_for_the_one_that_the_endpoint_moves_to() -> None:
    before = table_of(moving_from("a", "b"), pools=["a"])
    assert table_of(moving_from("a", "b"), previous=before, pools=["b"])["sentiment"].pool == "b"


def test_why_a_pool_answers_nobody_is_told() -> None:
    endpoint = endpoint_of(None)
    said = "no Triton of the pool gpu has given a sign of life"
    status = endpoint.status.model_copy(update={"pool": "gpu", "unserved": said})
    routes = table_of(endpoint.model_copy(update={"status": status}))["sentiment"]
    with pytest.raises(ModelUnavailableError, match=f"no version to serve yet: {said}."):
        routes.choose("caller")

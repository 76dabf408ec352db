"""Which pool answers, and when an endpoint moves to another."""

from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import ref, refusal, report

from contracts.endpoint import NAMED_LIMIT, Arm, EndpointSpec, EndpointStatus, Route
from contracts.loading import FailureCause, LoaderReport, LoadFailure, Trouble
from contracts.rollout import RolloutState
from registry.reconcile import pools
from registry.reconcile.rollouts import HeldPackages

OLD, NEW = ref("1", "a"), ref("2", "b")
GPU = EndpointSpec(model="m", pool="gpu")
SERVING = EndpointStatus(routes=(Route.all_callers(OLD),), packages=(OLD,))
ROLLING_OUT = SERVING.model_copy(
    update={
        "routes": (
            Route(arm=Arm.STABLE, ref=OLD, weight=90),
            Route(arm=Arm.CANARY, ref=NEW, weight=10),
        ),
        "packages": (OLD, NEW),
        "rollout": RolloutState(id="r", candidate=NEW, stable=OLD, began=0.0, step_began=0.0),
    }
)


def held_by(*reports: LoaderReport) -> HeldPackages:
    held = HeldPackages()
    held.take(reports)
    return held


def of(pool: str, loaded: LoaderReport, name: str = "x") -> LoaderReport:
    return loaded.model_copy(update={"pool": pool, "loader": f"{pool}-{name}"})


def placed(
    status: EndpointStatus, held: HeldPackages, spec: EndpointSpec = GPU, *, refused: bool = False
) -> EndpointStatus:
    return pools.place_endpoint(spec, status, held, refused=refused)


def test_an_endpoint_that_serves_nobody_yet_is_placed_at_once() -> None:
    status = placed(EndpointStatus(), held_by(of("gpu", report())))
    assert (status.pool, status.next_pool, status.unserved) == ("gpu", "", "")


def test_callers_stay_until_every_ready_triton_of_the_new_pool_holds_their_version() -> None:
    default = report(OLD)
    half = held_by(default, of("gpu", report(OLD), "one"), of("gpu", report(), "two"))
    moving = placed(SERVING, half)
    assert (moving.pool, moving.next_pool, moving.pools) == ("default", "gpu", ("default", "gpu"))
    whole = held_by(default, of("gpu", report(OLD), "one"), of("gpu", report(OLD), "two"))
    moved = placed(moving, whole)
    assert (moved.pool, moved.next_pool) == ("gpu", "")


def test_a_triton_that_is_not_ready_yet_does_not_hold_up_a_move() -> None:
    starting = of("gpu", report(ready=False), "two")
    assert placed(SERVING, held_by(of("gpu", report(OLD)), starting)).pool == "gpu"
    assert placed(SERVING, held_by(starting)).pool == "default"


def test_a_rollout_takes_both_versions_along() -> None:
    assert placed(ROLLING_OUT, held_by(of("gpu", report(OLD)))).pool == "default"
    assert placed(ROLLING_OUT, held_by(of("gpu", report(OLD, NEW)))).pool == "gpu"


def test_a_spec_that_is_refused_moves_nothing() -> None:
    held = held_by(report(OLD), of("gpu", report(OLD)))
    assert placed(SERVING, held, refused=True) == SERVING


def test_a_wish_that_is_taken_back_ends_the_move() -> None:
    held = held_by(report(OLD), of("gpu", report()))
    moving = placed(SERVING, held)
    back = placed(moving, held, EndpointSpec(model="m"))
    assert back == SERVING


def test_a_pool_without_tritons_is_named_with_those_that_have_some() -> None:
    held = held_by(of("cpu", report(OLD)), of("other", report()))
    moving = placed(SERVING.model_copy(update={"pool": "cpu"}), held)
    (note,) = pools.notes(moving, held)
    assert note == (
        "no Triton of the pool gpu has given a sign of life; the pools cpu, other have Tritons: "
        "cpu goes on answering"
    )
    lost = placed(SERVING.model_copy(update={"pool": "gpu"}), held)
    assert lost.unserved.startswith("no Triton of the pool gpu has given a sign of life")
    assert list(pools.notes(lost, held)) == []  # what it waits for is said apart
    back = placed(lost, held_by(of("gpu", report(OLD))))
    assert (back.unserved, list(pools.notes(back, held))) == ("", [])


def test_a_version_that_no_triton_holds_is_not_served_unless_it_sleeps() -> None:
    here = EndpointSpec(model="m")
    lacks = "no Triton of the pool default holds version 1"
    empty = held_by(report(NEW, loader="a", ready=False), report(loader="b", ready=False))
    assert placed(SERVING, empty, here).unserved == lacks
    comes = held_by(report(NEW, loader="a"), report(loader="b", ready=False))
    assert placed(SERVING, comes, here).unserved == ""  # as after a sleep
    failed = (LoadFailure(ref=OLD, reason="it needs 9 GB", by_version=False),)
    fails = held_by(report(NEW, loader="a", failed=failed), report(loader="b"))
    assert placed(SERVING, fails, here).unserved == lacks
    assert placed(EndpointStatus(), empty, here).unserved == ""
    assert placed(SERVING.model_copy(update={"asleep": 7.0}), empty, here).unserved == ""
    one = held_by(report(OLD, loader="a", ready=False), report(loader="b"))
    assert placed(SERVING, one, here).unserved == ""


def test_what_the_new_pool_can_not_load_is_told() -> None:
    failure = LoadFailure(ref=OLD, reason="it needs 9 GB", by_version=False)
    held = held_by(report(OLD), of("gpu", report(failed=(failure,))))
    moving = placed(SERVING, held)
    assert moving.pool == "default"
    assert list(pools.notes(moving, held)) == [
        f"the pool gpu can't load {OLD.triton_model}, and default goes on answering: it needs 9 GB"
    ]


def test_what_is_wrong_with_a_version_that_answers_is_told_once_with_all_who_see_it() -> None:
    why = "The version's code took more than 2 s and was stopped."
    troubles = (Trouble(ref=OLD, reason=why), Trouble(ref=NEW, reason="no caller gets it"))
    seen = {"troubles": troubles}
    held = held_by(*(report(OLD, loader=name).model_copy(update=seen) for name in ("one", "two")))
    assert list(pools.notes(SERVING, held)) == [
        "version 1 at one, two: The version's code took more than 2 s and was stopped"
    ]
    assert not list(pools.notes(SERVING.model_copy(update={"pool": "gpu"}), held_by()))


def test_in_a_move_those_are_cordoned_first_that_callers_would_meet() -> None:
    failing = report(OLD).model_copy(
        update={"troubles": (Trouble(ref=OLD, reason="CUDA failure 719", fails=True),)}
    )
    reports = [failing] * 4 + [report(OLD)] * 5
    pool = [of("z", each, f"{number}") for number, each in enumerate(reports)]
    coming = [of("gpu", each, f"{number}") for number, each in enumerate([*reports, report()])]
    cordoned = placed(SERVING.model_copy(update={"pool": "z"}), held_by(*pool, *coming)).cordoned
    assert len(cordoned) == NAMED_LIMIT
    assert {each.loader for each in pool[:4]} < set(cordoned)


def test_a_pool_hears_of_changes_in_its_own_tritons_alone() -> None:
    held = held_by(of("one", report(OLD)), of("two", report(OLD)))
    before = {pool: held.of(pool).revision for pool in ("one", "two")}
    held.take((of("one", report(OLD)), of("two", report(OLD, NEW))))
    assert held.of("one").revision == before["one"]
    assert held.of("two").revision > before["two"]
    held.take((of("two", report(OLD, NEW)),))
    assert (held.of("one").loaders, held.pools) == ((), ("two",))


HOLDINGS = st.lists(
    st.tuples(
        st.sampled_from(["default", "gpu"]),
        st.lists(st.sampled_from([OLD, NEW]), unique=True),
        st.booleans(),
    ),
    max_size=5,
)


@given(HOLDINGS, st.sampled_from([SERVING, ROLLING_OUT]))
def test_callers_never_go_where_a_ready_triton_lacks_their_version(
    found: list[tuple[str, list[object], bool]], before: EndpointStatus
) -> None:
    reports = tuple(
        report(*loaded, ready=ready).model_copy(update={"pool": pool, "loader": f"l{number}"})  # type: ignore[arg-type]
        for number, (pool, loaded, ready) in enumerate(found)
    )
    after = placed(before, held_by(*reports))
    there = [each for each in reports if each.pool == "gpu" and each.ready]
    whole = bool(there) and all(
        pools.list_answering(before) <= {model.ref for model in each.loaded} for each in there
    )
    assert (after.pool == "gpu") == whole
    assert after.routes == before.routes


def test_a_candidate_is_loaded_by_one_triton_then_by_as_many_as_hold_it() -> None:
    names = [f"l{number}" for number in range(8)]
    holding: set[str] = set()
    waves = []
    told: tuple[str, ...] = ()
    while len(holding) < len(names):
        reports = tuple(report(*([NEW] if name in holding else []), loader=name) for name in names)
        told = pools.next_loaders(reports, {NEW}, told)
        wave = set(told or names) - holding
        waves.append(len(wave))
        holding |= wave
    assert waves == [1, 1, 2, 4]


def test_of_a_large_pool_few_are_named_at_a_time_and_all_come_to_hold_it() -> None:
    names = [f"l{number:03}" for number in range(200)]
    broken, holding, tried = set(names[::4]), set[str](), set[str]()
    told: tuple[str, ...] = ()
    for _ in range(100):
        reports = tuple(
            report(
                *([NEW] if name in holding else []),
                loader=name,
                failed=(refusal(NEW, "ECC"),) if name in broken & tried else (),
            )
            for name in names
        )
        told = pools.next_loaders(reports, {NEW}, told)
        assert len(told) <= 16
        tried |= set(told or names)
        holding |= set(told or names) - broken
    assert (tried, holding) == (set(names), set(names) - broken)


def test_a_triton_that_was_told_goes_on_and_one_that_is_gone_is_replaced() -> None:
    reports = tuple(report(loader=name) for name in "abc")
    assert pools.next_loaders(reports, {NEW}, ("b",)) == ("b",)
    assert pools.next_loaders(reports, {NEW}, ("gone",)) == ("a",)
    starting = (report(loader="a", ready=False), report(loader="b"), report(loader="c"))
    assert pools.next_loaders(starting, {NEW}, ()) == ("b",)


def test_a_triton_that_is_silent_since_it_was_told_holds_up_nobody() -> None:
    silent = report(loader="a", ready=False).model_copy(update={"silent": True})
    reports = (silent, report(loader="b"), report(loader="c"))
    assert pools.next_loaders(reports, {NEW}, ("a",)) == ("a", "b")


def test_while_a_triton_is_down_under_a_first_load_no_other_is_asked() -> None:
    away = (refusal(NEW, "reset").model_copy(update={"cause": FailureCause.AWAY}),)
    down = report(loader="a", ready=False, failed=away)
    others = report(loader="b"), report(loader="c")
    assert pools.next_loaders((down, *others), {NEW}, ("a",)) == ("a",)
    lasting = (away[0].model_copy(update={"persists": True}),)  # a store, for all that is known
    for goes_on in (
        down.model_copy(update={"silent": True}),
        down.model_copy(update={"failed": lasting}),
        down.model_copy(update={"ready": True}),
    ):
        assert pools.next_loaders((goes_on, *others), {NEW}, ("a",)) == ("a", "b")


def test_the_tritons_of_a_new_pool_load_what_moves_to_it_one_after_the_other() -> None:
    names = ("gpu-a", "gpu-b", "gpu-c")
    reports = {name: of("gpu", report(), name[-1]) for name in names}
    status, turns = ROLLING_OUT, []
    for _ in names:
        status = placed(status, held_by(report(OLD, NEW), *reports.values()))
        turns.append(status.next_loading)
        (turn,) = status.next_loading or ("gpu-c",)
        half = of("gpu", report(OLD), turn[-1])  # one of two versions is not its turn's end
        waits = placed(status, held_by(report(OLD, NEW), *{**reports, turn: half}.values()))
        assert waits.next_loading == status.next_loading
        reports[turn] = of("gpu", report(OLD, NEW), turn[-1])
    assert turns == [("gpu-a",), ("gpu-b",), ()]
    arrived = placed(status, held_by(report(OLD, NEW), *reports.values()))
    assert (arrived.pool, arrived.next_loading) == ("gpu", ())


@given(st.sets(st.sampled_from("abcdefg")), st.sets(st.sampled_from("abcdefg")), st.booleans())
def test_never_do_more_load_a_candidate_than_hold_it_and_somebody_always_may(
    lacking: set[str], holding: set[str], ready: bool
) -> None:
    reports = (
        *(report(NEW, loader=name) for name in sorted(holding)),
        *(report(loader=name, ready=ready) for name in sorted(lacking - holding)),
    )
    told = pools.next_loaders(reports, {NEW}, ())
    loading = set(told) or {each.loader for each in reports} - holding
    assert loading <= lacking - holding
    assert len(loading) <= max(1, len(holding))
    assert bool(loading) == bool(lacking - holding)

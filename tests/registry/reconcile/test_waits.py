"""No state without a sentence: each in which something waits says for what, and since when."""

from dataclasses import replace

import pytest
from registry_fakes import endpoint, ref, refusal, report

from contracts.endpoint import (
    AliasVersion,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Phase,
    PinnedVersion,
    Route,
    Wait,
    WaitsFor,
)
from contracts.loading import DeviceKind, FailureCause, LoaderReport, LoadFailure, WitnessAnswer
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, RolloutState, Strategy
from contracts.waiting import describe_wait, describe_with_time, sentences
from registry.conversions.messages import ConversionFailure, ConversionProgress, Package, Signature
from registry.mlflow.model_registry import MlflowSnapshot, RegisteredModel, RegisteredVersion
from registry.reconcile.plan import NextPool, ObservedState, PlannedVersion, plan
from registry.reconcile.waits import list_waits, with_fault

NOW = 1000.0
OLD, NEW = ref("1", "a"), ref("2", "b")
SIGNATURE = Signature.model_validate({"task": "text-classification", "labels": ("no", "yes")})
SPEC = EndpointSpec(model="m")
SERVING = EndpointStatus(
    routes=(Route.all_callers(OLD),), packages=(OLD,), task=SIGNATURE.task, model_created=1
)
SEEN = ObservedState(
    (PlannedVersion("2", "o2"), PlannedVersion("1", "o1")), created=1, stable=SIGNATURE
)
MLFLOW = MlflowSnapshot(
    {"m": RegisteredModel("m", 1, created=1)},
    {"m": tuple(RegisteredVersion("m", number, number) for number in ("2", "1"))},
)


def state(**fields: object) -> RolloutState:
    plain = {"id": "r", "candidate": NEW, "stable": OLD, "began": 1.0, "step_began": 1.0}
    return RolloutState.model_validate(plain | fields)


def on_its_way(phase: Phase, reason: str = "", **fields: object) -> EndpointStatus:
    candidate = Candidate.model_validate(
        {"version": "2", "phase": phase, "reason": reason, "ref": NEW, **fields}
    )
    return SERVING.model_copy(update={"candidate": candidate})


def with_rollout(phase: Phase, **fields: object) -> EndpointStatus:
    return on_its_way(phase).model_copy(update={"rollout": state(**fields)})


def found(
    status: EndpointStatus,
    seen: ObservedState = SEEN,
    *,
    spec: EndpointSpec = SPEC,
    mlflow: MlflowSnapshot | None = MLFLOW,
    sick: tuple[str, ...] = (),
    before: tuple[Wait, ...] = (),
    now: float = NOW,
) -> tuple[Wait, ...]:
    return list_waits(spec, status, seen, mlflow, sick=sick, before=before, now=now)


def failing(why: FailureCause, package: ModelRef = NEW) -> LoaderReport:
    """Of a loader that could not load the new version, or that one."""
    failure = LoadFailure(ref=package, reason="told", by_version=False, cause=why)
    return report(*{OLD} - {package}, failed=(failure,))


SHADOW = SPEC.model_copy(update={"rollout": RolloutSpec(strategy=Strategy.SHADOW)})
PAUSED = {"paused_at": 5.0}
TAKEN_BACK = (Phase.REJECTED, Phase.ROLLED_BACK)
NEW_ENDPOINT = EndpointStatus(generation=1)
UNHELD = SERVING.model_copy(update={"unserved": "no Triton holds version 1"})
STATES: list[tuple[WaitsFor, tuple[Wait, ...]]] = [
    (WaitsFor.MLFLOW, found(NEW_ENDPOINT, ObservedState(None), mlflow=None)),
    (WaitsFor.MLFLOW, found(NEW_ENDPOINT, ObservedState(None))),
    (WaitsFor.MODEL, found(NEW_ENDPOINT, ObservedState(()), spec=EndpointSpec(model="typo"))),
    (WaitsFor.MODEL, found(SERVING, ObservedState(()), mlflow=MlflowSnapshot())),
    (WaitsFor.FIRST_VERSION, found(NEW_ENDPOINT, ObservedState(()))),
    (
        WaitsFor.PINNED_VERSION,
        found(SERVING, spec=EndpointSpec(model="m", version=PinnedVersion(pin="7"))),
    ),
    (WaitsFor.ALIAS, found(SERVING, spec=EndpointSpec(model="m", version=AliasVersion(alias="p")))),
    (
        WaitsFor.VERSION_OF_ALIAS,
        found(
            SERVING,
            replace(SEEN, aliases={"p": "7"}),
            spec=EndpointSpec(model="m", version=AliasVersion(alias="p")),
        ),
    ),
    (WaitsFor.LOST_VERSION, found(SERVING, replace(SEEN, versions=(PlannedVersion("2", "o2"),)))),
    (WaitsFor.LOST_PACKAGE, found(SERVING, replace(SEEN, stable=None, stable_gone=True))),
    (WaitsFor.NEWER_VERSION, found(SERVING.model_copy(update={"rejected_through": 2}))),
    (WaitsFor.TURN, found(on_its_way(Phase.WAITING), replace(SEEN, busy="another"))),
    (WaitsFor.DEVICE, found(on_its_way(Phase.WAITING), replace(SEEN, unsaid="nobody said"))),
    *(
        (WaitsFor.CONVERSION, found(on_its_way(phase)))
        for phase in (Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING)
    ),
    (WaitsFor.RETRY, found(on_its_way(Phase.BLOCKED, "no space", attempts=2, retry_at=NOW + 9))),
    *(
        (cause, found(on_its_way(Phase.BLOCKED, "told"), replace(SEEN, loaders=(failing(why),))))
        for cause, why in (
            (WaitsFor.RETRY, FailureCause.AWAY),
            (WaitsFor.RETRY, FailureCause.REFUSED),
            (WaitsFor.ROOM, FailureCause.ROOM),
        )
    ),
    *(
        (cause, found(on_its_way(Phase.WAITING, "it has to", attempts=2), seen))
        for cause, seen in (
            (WaitsFor.TURN, replace(SEEN, busy="another")),
            (WaitsFor.DEVICE, replace(SEEN, unsaid="nobody said")),
        )
    ),
    *(
        (WaitsFor.RETRY, found(on_its_way(phase, attempts=2)))
        for phase in (Phase.WAITING, Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING)
    ),
    (WaitsFor.STORE, found(on_its_way(Phase.LOADING), replace(SEEN, fault="the store is away"))),
    (WaitsFor.STORE, found(on_its_way(Phase.BLOCKED), replace(SEEN, stable=None))),
    (WaitsFor.TRITONS, found(SERVING.model_copy(update={"unserved": "no Triton of default"}))),
    (
        WaitsFor.TRITONS,
        found(on_its_way(Phase.LOADING, "none").model_copy(update={"unserved": "none"})),
    ),
    (WaitsFor.LOADING, found(on_its_way(Phase.LOADING), replace(SEEN, loaders=(report(OLD),)))),
    (WaitsFor.LOADING, found(UNHELD, replace(SEEN, loaders=(report(),)))),
    (WaitsFor.STORE, found(UNHELD, replace(SEEN, loaders=(report(),), fault="the store is away"))),
    *(
        (cause, found(UNHELD, replace(SEEN, loaders=(report(), failing(why, OLD)))))
        for cause, why in (
            (WaitsFor.RETRY, FailureCause.AWAY),
            (WaitsFor.RETRY, FailureCause.REFUSED),
            (WaitsFor.ROOM, FailureCause.ROOM),
        )
    ),
    (WaitsFor.ROOM, found(on_its_way(Phase.BLOCKED, "it needs 9 GB"))),
    (WaitsFor.SICK_TRITON, found(SERVING, sick=("Triton l is sick",))),
    (WaitsFor.CEILING, found(on_its_way(Phase.BLOCKED), replace(SEEN, refused=("above",)))),
    (WaitsFor.ROLLOUT, found(on_its_way(Phase.LOADED))),
    (WaitsFor.BAKE, found(with_rollout(Phase.LOADED, promoted_at=3.0))),
    (WaitsFor.BAKE, found(with_rollout(Phase.PROMOTED, promoted_at=3.0))),
    (WaitsFor.CHECKS, found(with_rollout(Phase.SHADOW))),
    (WaitsFor.CHECKS, found(with_rollout(Phase.CANARY))),
    (WaitsFor.PERSON, found(with_rollout(Phase.SHADOW), spec=SHADOW)),
    *(
        (WaitsFor.RESUME, found(with_rollout(phase, **PAUSED)))
        for phase in (Phase.SHADOW, Phase.CANARY, Phase.PROMOTED)
    ),
    *((WaitsFor.VERDICT, found(on_its_way(phase, "errors"))) for phase in TAKEN_BACK),
    (WaitsFor.ANOTHER_TRY, found(on_its_way(Phase.EXPIRED, "no verdict within 1h"))),
    (WaitsFor.FAULT, with_fault((), "Headrace can't go on with it: KeyError('x')", NOW)),
    (WaitsFor.POOL, found(SERVING, spec=EndpointSpec(model="m", pool="gpu"))),
    (WaitsFor.CALLER, found(SERVING.model_copy(update={"asleep": 7.0}))),
]
OVER = {Phase.SERVING, Phase.SETTLED, Phase.SUPERSEDED}


@pytest.mark.parametrize(("cause", "waits"), STATES, ids=[cause.value for cause, _ in STATES])
def test_a_state_has_the_sentence_of_its_cause(cause: WaitsFor, waits: tuple[Wait, ...]) -> None:
    (wait,) = waits
    assert wait.cause is cause
    assert wait.since == (7.0 if cause is WaitsFor.CALLER else NOW)
    one = endpoint(EndpointStatus(generation=1, waits=waits))
    said = describe_with_time("e", one.status, wait, 500)
    assert ", since 1970-01-01 00:" in said
    assert "; to do: " in said


def test_every_cause_is_that_of_some_state() -> None:
    told_to_people_only = {WaitsFor.CONTROLLER}  # of an endpoint that no pass has seen
    assert {cause for cause, _ in STATES} == set(WaitsFor) - told_to_people_only


@pytest.mark.parametrize("phase", Phase)
def test_a_version_in_any_phase_waits_for_something_or_is_at_the_end_of_its_way(
    phase: Phase,
) -> None:
    waits = found(on_its_way(phase))
    assert [wait.version for wait in waits] == ([] if phase in OVER else ["2"])


@pytest.mark.parametrize("witness", WitnessAnswer)
@pytest.mark.parametrize("cause", FailureCause)
@pytest.mark.parametrize("others", [0, 1])
def test_whatever_a_triton_says_of_a_package_the_version_waits_for_something_in_words(
    cause: FailureCause, witness: WitnessAnswer, others: int
) -> None:
    failure = LoadFailure(ref=NEW, reason="ECC", by_version=False, cause=cause, witness=witness)
    others_say = tuple(report(OLD, loader=f"o{number}") for number in range(others))
    seen = replace(
        SEEN,
        packages={"o2": Package(NEW, SIGNATURE)},
        loaders=(report(OLD, loader="l", failed=(failure,)), *others_say),
    )
    status = plan(SPEC, SERVING, seen, NOW).status
    (wait,) = found(status, seen)
    one = endpoint(status.model_copy(update={"waits": (wait,)}))
    assert wait.version == "2"
    assert [said for said in sentences(one, NOW) if "; to do: " in said]


@pytest.mark.parametrize(
    ("why", "cause"),
    [(FailureCause.AWAY, WaitsFor.RETRY), (FailureCause.ROOM, WaitsFor.ROOM)],
)
def test_a_version_that_one_triton_refuses_waits_for_what_keeps_the_other_from_saying_so(
    why: FailureCause, cause: WaitsFor
) -> None:
    mute = LoadFailure(ref=NEW, reason="no space", by_version=False, cause=why, persists=True)
    seen = replace(
        SEEN,
        packages={"o2": Package(NEW, SIGNATURE)},
        loaders=(
            report(OLD, loader="a", failed=(refusal(NEW, "it strays"),)),
            report(OLD, loader="b", failed=(mute,)),
            report(OLD, loader="c", failed=(mute,)),
        ),
    )
    status = plan(SPEC, SERVING, seen, NOW).status
    assert not status.rejected
    (wait,) = found(status, seen)
    assert (wait.cause, wait.version) == (cause, "2")
    assert describe_wait(status, wait) == "it strays; no space"


PROGRESS = (Phase.WAITING, Phase.CONVERTING, Phase.VERIFYING, Phase.PUBLISHING)


@pytest.mark.parametrize(
    "job",
    [
        *(ConversionProgress.model_validate({"phase": phase, "message": ""}) for phase in PROGRESS),
        ConversionFailure(reason="a pickle", by_version=True),
        ConversionFailure(reason="no space", by_version=False),
        ConversionFailure(reason="a signal", by_version=False, crashed=True),
    ],
)
@pytest.mark.parametrize("serves", [False, True])
def test_whatever_a_conversion_says_its_version_waits_for_something_in_words(
    job: ConversionProgress | ConversionFailure, serves: bool
) -> None:
    seen = replace(SEEN, jobs={"o2": job})
    status = plan(SPEC, SERVING if serves else EndpointStatus(), seen, NOW).status
    (wait,) = found(status, seen)
    assert wait.version == "2"
    assert describe_wait(status, wait)


def test_what_serves_and_lacks_nothing_waits_for_nothing() -> None:
    assert found(SERVING, replace(SEEN, loaders=(report(OLD), report()))) == ()


def test_why_no_triton_holds_what_serves_is_said_beside_what_the_next_version_waits_for() -> None:
    seen = replace(SEEN, loaders=(report(), failing(FailureCause.ROOM, OLD)))
    status = on_its_way(Phase.LOADING).model_copy(update={"unserved": UNHELD.unserved})
    own, next_one = found(status, seen)
    assert (own.version, own.what) == ("", "no Triton holds version 1: told")
    assert (next_one.version, next_one.cause) == ("2", WaitsFor.LOADING)
    (own,) = found(UNHELD, replace(SEEN, loaders=(report(),), fault="the store is away"))
    assert own.what == "no Triton holds version 1: the store is away"


def test_since_when_stays_while_the_cause_does_and_begins_with_another_one_or_version() -> None:
    first = found(on_its_way(Phase.CONVERTING, "downloads"), now=10.0)
    later = found(on_its_way(Phase.VERIFYING, "compares"), before=first, now=20.0)
    assert [wait.since for wait in later] == [10.0]
    loads = found(on_its_way(Phase.LOADING), before=later, now=30.0)
    assert [wait.since for wait in loads] == [30.0]
    next_one = found(on_its_way(Phase.LOADING, version="3"), before=loads, now=40.0)
    assert [wait.since for wait in next_one] == [40.0]


@pytest.mark.parametrize(
    ("why", "cause"),
    [(FailureCause.AWAY, WaitsFor.RETRY), (FailureCause.ROOM, WaitsFor.ROOM)],
)
def test_what_blocks_a_move_to_another_kind_of_device_is_what_the_new_pool_says(
    why: FailureCause, cause: WaitsFor
) -> None:
    there = NextPool("gpu", (failing(why),))
    move = PlannedVersion("1", "gpu options", device=DeviceKind.GPU)
    moved = replace(SEEN, loaders=(report(OLD),), next_pool=there, move=move)
    seen = replace(moved, packages={move.options: Package(NEW, SIGNATURE)})
    spec = EndpointSpec(model="m", pool="gpu")
    status = plan(spec, SERVING, seen, NOW).status
    (wait,) = [each for each in found(status, seen, spec=spec) if each.version]
    assert (wait.cause, wait.version) == (cause, "1")
    assert describe_wait(status, wait).endswith(
        "can't load it, and default goes on answering: told"
    )


def test_a_move_that_is_refused_names_what_has_it_tried_again() -> None:
    spec, seen = EndpointSpec(model="m", pool="gpu"), replace(SEEN, move_fault="opset 99")
    (wait,) = found(SERVING, seen, spec=spec)
    assert wait.cause is WaitsFor.VERDICT
    (said,) = sentences(endpoint(SERVING.model_copy(update={"waits": (wait,)})), NOW)
    assert "can't be served in the pool gpu, and default goes on answering: opset 99" in said
    assert said.endswith("headrace rollout retry e 1")
    lost = replace(seen, versions=(PlannedVersion("2", "o2"),))
    assert {each.cause for each in found(SERVING, lost, spec=spec)} == {WaitsFor.LOST_VERSION}
    (wait,) = found(with_rollout(Phase.SHADOW), seen, spec=spec)[:1]  # it moves after that
    assert wait.cause is WaitsFor.POOL


def test_a_fault_that_comes_with_each_try_has_lasted_since_the_first() -> None:
    first = found(on_its_way(Phase.BLOCKED, "no space", attempts=1, retry_at=15.0), now=10.0)
    again = found(on_its_way(Phase.CONVERTING, attempts=1), before=first, now=20.0)
    third = found(
        on_its_way(Phase.BLOCKED, "no space", attempts=2, retry_at=35.0), before=again, now=25.0
    )
    assert [wait.since for wait in third] == [10.0]


def test_the_tritons_that_have_yet_to_load_are_named_and_the_sick_that_decide_nothing_are_not() -> (
    None
):
    sick = refusal(NEW, "ECC", by_version=False, witness=WitnessAnswer.REFUSED)
    loaders = (
        report(OLD, NEW, loader="a"),
        report(OLD, loader="b"),
        report(OLD, loader="c", failed=(sick,)),
    )
    (wait,) = found(on_its_way(Phase.LOADING), replace(SEEN, loaders=loaders))
    assert wait.what == "not loaded yet by b"
    many = tuple(report(OLD, loader=f"l{number}") for number in range(5))
    (wait,) = found(on_its_way(Phase.LOADING), replace(SEEN, loaders=many))
    assert wait.what == "not loaded yet by l0, l1, l2 and 2 more"


def test_a_fault_of_headraces_own_has_lasted_since_its_first_pass() -> None:
    first = with_fault(found(on_its_way(Phase.LOADING)), "broken", 10.0)
    assert [wait.since for wait in with_fault(first, "broken otherwise", 20.0)] == [10.0, NOW]
    again = list_waits(SPEC, SERVING, SEEN, MLFLOW, fault="broken", before=first, now=30.0)
    assert [(wait.what, wait.since) for wait in again] == [("broken", 10.0)]


def test_a_store_that_is_away_is_what_is_waited_for_whatever_was_before() -> None:
    away = replace(SEEN, fault="the store is away")
    for before in (on_its_way(Phase.LOADING, "old"), on_its_way(Phase.BLOCKED, "it needs 9 GB")):
        (wait,) = found(before, away)
        assert (wait.cause, wait.what) == (WaitsFor.STORE, "the store is away")


def test_of_many_sick_tritons_a_few_are_named_and_the_others_counted() -> None:
    (wait,) = found(SERVING, sick=tuple(f"Triton l{number} is sick" for number in range(200)))
    assert wait.what.endswith("Triton l2 is sick; 197 more are sick")


def test_a_version_that_mlflow_lost_in_its_rollout_is_said_to_go_on() -> None:
    status = with_rollout(Phase.CANARY)
    assert status.rollout is not None
    number = status.rollout.candidate.version
    serving = replace(SEEN, versions=(PlannedVersion("1", "o1"),))
    (said,) = [each for each in found(status, serving) if each.cause is WaitsFor.LOST_VERSION]
    assert said.version == number
    assert said.what == f"version {number} is not in MLflow any more, and its rollout goes on"
    assert WaitsFor.LOST_VERSION not in {each.cause for each in found(status)}

"""What MLflow should say, by what statuses record."""

import pytest
from registry_fakes import endpoint, ref

from contracts.endpoint import (
    AliasVersion,
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
    Wait,
    WaitsFor,
)
from contracts.rollout import Outcome, RolloutSpec, RolloutState
from registry.mlflow.projection import TAG_CHARACTERS, RequiredAlias, alias_refusals, projection

OLD, NEW = ref("1", "a"), ref("2", "b")


def state(**fields: object) -> RolloutState:
    plain = {"id": "r", "candidate": NEW, "stable": OLD, "began": 1.0, "step_began": 1.0}
    return RolloutState.model_validate(plain | fields)


def line(version: str, phase: Phase, reason: str = "") -> Transition:
    return Transition(at=1.0, version=version, phase=phase, reason=reason)


ALL = ("*",)


def serving(*history: Transition, name: str = "e", alias: str | None = "champion") -> ModelEndpoint:
    status = EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=OLD, weight=100),), history=history)
    spec = EndpointSpec(model="m", rollout=RolloutSpec(alias=alias))
    return endpoint(status, name=name, spec=spec)


def told(one: ModelEndpoint, version: str) -> tuple[str, str, str]:
    """Verdict, reason and phase of a version."""
    (tags,) = [item.tags for item in projection([one]).tags if item.version == version]
    return (
        tags["headrace.e.verdict"],
        tags["headrace.e.reason"],
        tags["headrace.e.phase"],
    )


def test_a_versions_last_line_is_its_verdict() -> None:
    one = serving(
        line("1", Phase.LOADING, "no loader"),
        line("1", Phase.SERVING),
        line("2", Phase.CANARY),
        line("2", Phase.ROLLED_BACK, "errors 12 of 400"),
        line("3", Phase.REJECTED, "a pickle"),
    )
    assert told(one, "1") == ("Promoted", "", "Serving")
    assert told(one, "2") == ("RolledBack", "errors 12 of 400", "RolledBack")
    assert told(one, "3") == ("Rejected", "a pickle", "Rejected")


def test_a_version_on_its_way_has_a_phase_and_no_verdict_yet() -> None:
    one = serving(line("2", Phase.SHADOW, "began"))
    candidate = Candidate(version="2", phase=Phase.CANARY, reason="step 2")
    one = one.model_copy(update={"status": one.status.model_copy(update={"candidate": candidate})})
    assert told(one, "2") == ("", "", "Canary")


def test_a_version_that_waits_to_be_retried_is_still_blocked() -> None:
    one = serving(line("2", Phase.BLOCKED, "no space left"))
    waiting = Candidate(version="2", phase=Phase.WAITING, attempts=1)
    one = one.model_copy(update={"status": one.status.model_copy(update={"candidate": waiting})})
    assert told(one, "2") == ("Blocked", "no space left", "Blocked")


def test_a_version_says_for_what_it_waits_since_when_and_what_to_do() -> None:
    reason = "x" * 9000
    one = serving(line("1", Phase.SERVING), line("2", Phase.BLOCKED, reason))
    waits = (
        Wait(cause=WaitsFor.TRITONS, since=60.0, what="no Triton of the pool gpu"),
        Wait(cause=WaitsFor.RETRY, since=60.0, version="2"),
        Wait(cause=WaitsFor.TURN, since=60.0, version="3"),
    )
    candidate = Candidate(version="2", phase=Phase.BLOCKED, reason=reason)
    status = one.status.model_copy(update={"waits": waits, "candidate": candidate})
    one = one.model_copy(update={"status": status})
    told = {item.version: item.tags["headrace.e.waits"] for item in projection([one]).tags}
    assert set(told) == {"1", "2", "3"}
    since = ", since 1970-01-01 00:01:00 UTC; to do: "
    assert told["1"].startswith(f"no Triton of the pool gpu{since}start one with its loader")
    assert len(told["2"]) == TAG_CHARACTERS
    assert since + "put that right" in told["2"]
    assert told["3"].startswith(f"other conversions have to end first{since}")


def test_what_an_endpoint_waits_for_is_told_of_its_first_version_while_none_serves() -> None:
    candidate = Candidate(version="1", phase=Phase.LOADING)
    fault = Wait(cause=WaitsFor.FAULT, since=60.0, what="Headrace can't go on with it: KeyError()")
    sick = Wait(cause=WaitsFor.SICK_TRITON, since=60.0, what="Triton l is sick")
    loading = Wait(cause=WaitsFor.LOADING, since=60.0, version="1", what="not loaded yet by l")
    for waits, said in (
        ((fault, sick, loading), "Headrace can't go on"),
        ((sick, loading), "not every Triton of its pool has loaded it"),
        ((sick,), "Triton l is sick"),
    ):
        one = endpoint(EndpointStatus(candidate=candidate, waits=waits))
        (told,) = projection([one]).tags
        assert told.tags["headrace.e.waits"].startswith(said)


def test_what_waits_for_nothing_has_no_such_tag() -> None:
    (tags,) = projection([serving(line("1", Phase.SERVING))]).tags
    assert tags.tags["headrace.e.waits"] == ""


def test_a_version_says_the_space_of_its_vectors_if_it_has_any() -> None:
    old, new = (
        OLD.model_copy(update={"space": "a" * 12}),
        NEW.model_copy(update={"space": "b" * 12}),
    )
    one = serving(*(line(version, Phase.LOADING) for version in ("1", "2", "3")))
    changed = {
        "routes": (Route.all_callers(old),),
        "candidate": Candidate(version="2", phase=Phase.LOADING, ref=new),
    }
    one = one.model_copy(update={"status": one.status.model_copy(update=changed)})
    told = {item.version: item.tags.get("headrace.e.space") for item in projection([one]).tags}
    assert told == {"1": old.space, "2": new.space, "3": None}


def test_a_reason_is_cut_to_what_mlflow_keeps_so_that_it_is_told_once() -> None:
    one = serving(line("2", Phase.REJECTED, "x" * 9000))
    assert told(one, "2")[1] == "x" * TAG_CHARACTERS


def test_the_alias_names_what_is_stable() -> None:
    assert projection([serving()], ALL).aliases == (RequiredAlias("m", "champion", "1"),)
    assert projection([serving(alias=None)], ALL).aliases == ()
    assert projection([endpoint()], ALL).aliases == ()


@pytest.mark.parametrize(
    ("models", "moved"), [((), False), (("others-*", "mm"), False), (("x", "m*"), True)]
)
def test_aliases_are_moved_of_the_models_that_the_operator_names(
    models: tuple[str, ...], moved: bool
) -> None:
    for alias in ("champion", "served"):
        one = serving(alias=alias)
        assert projection([one], models).aliases == (
            (RequiredAlias("m", alias, "1"),) if moved else ()
        )
        note = alias_refusals([one], models).get("e", "")
        # The usual alias stands in every spec: nobody may have wanted it.
        assert ("mlflow.aliasModels" in note) is (not moved and alias == "served")


def test_an_alias_that_the_endpoint_follows_is_refused_with_a_sentence() -> None:
    spec = EndpointSpec(model="m", version=AliasVersion(alias="champion"))
    one = serving().model_copy(update={"spec": spec})
    assert projection([one], ALL).aliases == ()
    assert "the endpoint follows it" in alias_refusals([one], ALL)["e"]
    another = spec.model_copy(update={"rollout": RolloutSpec(alias="served")})
    assert alias_refusals([one.model_copy(update={"spec": another})], ALL) == {}


def test_one_of_two_endpoints_moves_an_alias_that_both_want() -> None:
    both = [serving(name="b"), serving(name="a")]
    refusals = alias_refusals(both, ALL)
    assert set(refusals) == {"b"}
    assert "the endpoint a moves it" in refusals["b"]
    assert len(projection(both, ALL).aliases) == 1


def test_an_endpoint_keeps_the_alias_that_it_moves_whatever_a_second_one_is_called() -> None:
    first, second = serving(name="b"), serving(name="a")
    kept = first.status.model_copy(update={"moves": "m@champion"})
    first = first.model_copy(update={"status": kept})
    refusals = alias_refusals([second, first], ALL)
    assert set(refusals) == {"a"}
    assert "the endpoint b moves it" in refusals["a"]


def test_an_alias_of_another_model_that_an_endpoint_moved_before_gives_it_no_right() -> None:
    first, second = serving(name="b"), serving(name="a")
    kept = first.status.model_copy(update={"moves": "other@champion"})
    refusals = alias_refusals([second, first.model_copy(update={"status": kept})], ALL)
    assert set(refusals) == {"b"}


def with_rollouts(current: RolloutState | None, last: RolloutState | None) -> ModelEndpoint:
    one = serving()
    update = {"rollout": current, "last_rollout": last}
    return one.model_copy(update={"status": one.status.model_copy(update=update)})


def test_evidence_is_told_at_a_promotion_and_at_an_end() -> None:
    assert projection([with_rollouts(state(), None)]).evidence == ()
    (promoted,) = projection([with_rollouts(state(promoted_at=5.0), None)]).evidence
    assert (promoted.version, promoted.folder) == ("2", "headrace/e/v2")
    ended = state(promoted_at=5.0, ended_at=9.0, outcome=Outcome.SETTLED)
    (settled,) = projection([with_rollouts(None, ended)]).evidence
    assert settled.digest != promoted.digest


def test_between_two_verdicts_the_digest_stays() -> None:
    (one,) = projection([with_rollouts(state(promoted_at=5.0), None)]).evidence
    (two,) = projection([with_rollouts(state(promoted_at=5.0, looked_through=8.0), None)]).evidence
    assert one.digest == two.digest


def test_a_retried_versions_last_verdict_counts() -> None:
    back = state(id="first", ended_at=4.0, outcome=Outcome.ROLLED_BACK)
    (only,) = projection([with_rollouts(state(id="again"), back)]).evidence
    assert only.state.id == "first"
    (only,) = projection([with_rollouts(state(id="again", promoted_at=7.0), back)]).evidence
    assert only.state.id == "again"


def test_a_model_is_told_nothing_of_the_versions_of_another_that_the_endpoint_had_before() -> None:
    """Their numbers are the same, and a workspace of another team may be told of them."""
    done = state(promoted_at=3.0, ended_at=4.0, outcome=Outcome.SETTLED)
    before = serving(line("1", Phase.SERVING))
    status = before.status.model_copy(update={"last_rollout": done})
    spec = before.spec.model_copy(update={"model": "team-b/m"})
    now = before.model_copy(update={"spec": spec, "status": status})
    found = projection([now], ALL)
    assert (found.tags, found.aliases, found.evidence) == ((), (), ())
    assert projection([before.model_copy(update={"status": status})], ALL).evidence

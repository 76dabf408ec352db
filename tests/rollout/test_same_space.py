"""A version that claims stable's vector space: the claim is tested before a caller gets it."""

from bisect import bisect_left
from math import cos, pi

import pytest
from evidence_windows import NEW, OLD
from hypothesis import given
from hypothesis import strategies as st
from rollout_walk import Walk, loaded_candidate

from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Phase,
    Route,
    rollout_spec,
)
from contracts.rollout import (
    CheckResult,
    Checks,
    EmbeddingSpec,
    RolloutSpec,
    SameSpaceCheck,
    ShadowStep,
    Strategy,
    VectorSpace,
    Verb,
    Verdict,
    WeightStep,
)
from contracts.tasks import Task
from contracts.windows import SPACE_EDGES, EvidenceCounts
from rollout.evidence import ComparisonStage, Evidence

CHECK = SameSpaceCheck()


def seen(
    pairs: list[tuple[float, int]], check: SameSpaceCheck = CHECK, windows: int = 4
) -> CheckResult:
    """What the check says after some windows of pairs, each a cosine and neighbours in common."""
    counts: dict[int, int] = {}
    for cosine, shared in pairs:
        at = 11 * bisect_left(SPACE_EDGES, (1 - cosine) / 2 - 1e-9) + shared
        counts[at] = counts.get(at, 0) + 1
    checks = Checks(latency=None, output_shift=None, class_share=None, drift=None, same_space=check)
    evidence = Evidence.begin(checks, 0.05).with_history(EvidenceCounts(requests=100))
    for _ in range(windows):
        of_shadow = EvidenceCounts(requests=len(pairs), pair_nearness=counts)
        evidence = evidence.after(of_shadow, EvidenceCounts(requests=len(pairs)), 10.0)
    found = next(each for each in evidence.results() if each.name == "sameSpace")
    assert evidence.verdicts["sameSpace"] is found.verdict
    canary = evidence.next_stage(ComparisonStage.CANARY)
    later = next(each for each in canary.results() if each.name == "sameSpace")
    assert (later.verdict, later.required) == (found.verdict, False)
    return found


def test_vectors_of_another_precision_pass() -> None:
    found = seen([(0.996, 9)] * 130 + [(0.97, 7)] * 10)
    assert (found.verdict, found.gate, found.required) == (Verdict.PASS, True, True)


def test_a_fine_tuned_version_that_lies_is_refused_with_the_figures() -> None:
    found = seen([(0.83, 4)] * 90 + [(0.96, 8)] * 10)
    assert found.verdict is Verdict.FAIL
    assert found.reason.startswith("vectors alike 40 of 400 (10.0 %): fewer than 90.0 % asked for")
    assert found.reason.endswith(
        "a cosine of 0.95 has 40 of 400 (10.0 %), and both find 44.0 % of the nearest texts"
    )
    assert found.figures["near"] == 40
    assert found.figures["neighbours"] == pytest.approx(0.44)


@pytest.mark.parametrize("pair", [(0.999, 6), (0.94, 10)])
def test_neither_cosine_nor_neighbours_do_alone(pair: tuple[float, int]) -> None:
    assert seen([pair] * 100).verdict is Verdict.FAIL


def test_without_neighbours_nothing_is_known() -> None:
    found = seen([], windows=1)
    assert (found.verdict, "50 different texts" in found.reason) == (Verdict.UNKNOWN, True)


@given(st.floats(0, pi), st.floats(0.5, 0.999))
def test_a_pair_below_the_limit_is_never_taken_for_alike(angle: float, limit: float) -> None:
    cosine = round(cos(angle), 6)
    found = seen([(cosine, 10)] * 50, CHECK.model_copy(update={"cosine": limit}), windows=1)
    assert found.figures["equal"] == 0 or cosine >= limit - 1e-5


# When it is asked


def asked(
    spec: RolloutSpec, *, spaces: tuple[str, str] = ("a", "b"), tag: bool = False
) -> RolloutSpec:
    old, new = (
        ref.model_copy(update={"space": s}) for ref, s in zip((OLD, NEW), spaces, strict=True)
    )
    candidate = Candidate(version=new.version, phase=Phase.LOADED, ref=new, claims_space=tag)
    status = EndpointStatus(
        task=Task.TEXT_EMBEDDING, routes=(Route.all_callers(old),), candidate=candidate
    )
    return rollout_spec(EndpointSpec(model="m", rollout=spec), status)


SAME = EmbeddingSpec(space=VectorSpace.SAME)


@pytest.mark.parametrize("tag", [True, False])
def test_a_claim_by_tag_or_by_spec_is_tested_in_shadow_before_any_step_with_callers(
    tag: bool,
) -> None:
    steps = (WeightStep(weight=5), WeightStep(weight=50))
    spec = RolloutSpec(steps=steps, embedding=EmbeddingSpec() if tag else SAME)
    found = asked(spec, tag=tag)
    assert found.strategy is Strategy.CANARY
    assert found.steps == (ShadowStep(shadow=100), *steps)
    assert found.checks.same_space == CHECK


def test_its_limits_are_the_specs_if_it_has_some() -> None:
    check = SameSpaceCheck(cosine=0.99)
    spec = RolloutSpec(embedding=SAME, checks=Checks(same_space=check))
    assert asked(spec).checks.same_space == check


@pytest.mark.parametrize(
    ("spec", "spaces", "strategy"),
    [
        (RolloutSpec(), ("a", "b"), Strategy.CUTOVER),
        (RolloutSpec(embedding=SAME), ("a", "a"), Strategy.CANARY),  # equal digests are proof
        (RolloutSpec(embedding=SAME, strategy=Strategy.DIRECT), ("a", "b"), Strategy.DIRECT),
        (
            RolloutSpec(embedding=EmbeddingSpec(space=VectorSpace.CUTOVER)),
            ("a", "b"),
            Strategy.CUTOVER,
        ),
    ],
)
def test_where_nothing_is_claimed_nothing_is_tested(
    spec: RolloutSpec, spaces: tuple[str, str], strategy: Strategy
) -> None:
    with_check = spec.model_copy(update={"checks": Checks(same_space=CHECK)})
    found = asked(with_check, spaces=spaces)
    assert (found.strategy, found.checks.same_space) == (strategy, None)


def test_the_endpoints_word_goes_before_the_versions_tag() -> None:
    cutover = RolloutSpec(embedding=EmbeddingSpec(space=VectorSpace.CUTOVER))
    assert asked(cutover, tag=True).strategy is Strategy.CUTOVER


def test_the_rollout_knows_of_the_claim_as_long_as_it_lasts() -> None:
    status = loaded_candidate()
    assert status.candidate is not None
    claims = status.candidate.model_copy(update={"claims_space": True})
    walk = Walk(status=status.model_copy(update={"candidate": claims})).step()
    assert walk.state.claims_space
    walk.told(Verb.ABORT)
    assert walk.last.claims_space

"""The judge picks each stage's arms by package and arm, and judges every window once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from evidence_windows import NEW, OLD, aggregate, answered, drawn, only, window
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.profile import ReferenceProfile
from contracts.rollout import (
    Checks,
    DriftCheck,
    ErrorRateCheck,
    RolloutSpec,
    RolloutState,
    ShadowStep,
    Verdict,
    WeightStep,
)
from contracts.windows import CALLER_GROUPS, EndpointWindow, EvidenceCounts
from rollout.evidence import Evidence
from rollout.judge import Judge
from rollout.packed_evidence import packed, unpacked

SPEC = RolloutSpec(
    steps=(ShadowStep(shadow=100), WeightStep(weight=50)), checks=Checks(latency=None)
)
BAD, GOOD = answered(100, 100, errors=40), answered(1000, 1000, errors=20)
JUDGE = Judge()


def state(*, step: int = 0, promoted_at: float | None = None) -> RolloutState:
    return RolloutState(
        id="r",
        candidate=NEW,
        stable=OLD,
        began=200.0,
        step_began=200.0,
        step=step,
        promoted_at=promoted_at,
        looked_through=200.0,
    )


def told(judged: RolloutState) -> Mapping[str, Any]:
    """The evidence as ``rollout/evidence.py`` told it."""
    return unpacked(judged.evidence)


def history(evidence: EvidenceCounts = GOOD, windows: int = 20) -> list[EndpointWindow]:
    return [window(10 * at, aggregate(OLD, Arm.STABLE, 10 * at, evidence)) for at in range(windows)]


def both(
    start: int,
    arms: tuple[Arm, Arm],
    candidate: EvidenceCounts = BAD,
    stable: EvidenceCounts = GOOD,
) -> EndpointWindow:
    return window(
        start, aggregate(NEW, arms[0], start, candidate), aggregate(OLD, arms[1], start, stable)
    )


def begun(
    spec: RolloutSpec = SPEC, *, step: int = 0, promoted_at: float | None = None
) -> RolloutState:
    return JUDGE.begin(spec, state(step=step, promoted_at=promoted_at), history())


def verdict(after: RolloutState, name: str = "errorRate") -> Verdict:
    return next(check.verdict for check in after.checks if check.name == name)


def test_history_is_stables_alone() -> None:
    others = (aggregate(NEW, Arm.STABLE, 200, GOOD), aggregate(OLD, Arm.CONTROL, 200, GOOD))
    silent = window(210, aggregate(OLD, Arm.STABLE, 210, EvidenceCounts()))
    begun_ = JUDGE.begin(SPEC, state(), [*history(), window(200, *others), silent])
    assert JUDGE.history_windows(begun_) == 20
    assert JUDGE.history_windows(state()) == 0
    assert {check.verdict for check in begun_.checks} == {Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("step", "promoted_at", "arms"),
    [
        (0, None, (Arm.SHADOW, Arm.STABLE)),
        (1, None, (Arm.CANARY, Arm.STABLE)),
        (1, 200.0, (Arm.STABLE, Arm.CONTROL)),
    ],
)
def test_each_stage_compares_its_own_arms(
    step: int, promoted_at: float | None, arms: tuple[Arm, Arm]
) -> None:
    before = begun(step=step, promoted_at=promoted_at)
    after = JUDGE.look(SPEC, before, [both(200 + 10 * at, arms) for at in range(5)])
    assert verdict(after) is Verdict.FAIL
    assert after.looked_through == 250
    others = {(Arm.SHADOW, Arm.STABLE), (Arm.CANARY, Arm.STABLE), (Arm.STABLE, Arm.CONTROL)}
    for wrong in others - {arms}:
        unseen = JUDGE.look(SPEC, before, [both(200 + 10 * at, wrong) for at in range(5)])
        assert {check.verdict for check in unseen.checks} == {Verdict.UNKNOWN}


def test_cells_of_other_packages_and_forced_attempts_are_no_evidence() -> None:
    stranger = NEW.model_copy(update={"package": "c" * 64})
    windows = [
        window(
            200 + 10 * at,
            aggregate(stranger, Arm.CANARY, 200, BAD),
            aggregate(NEW, Arm.FORCED, 200, BAD),
            aggregate(OLD, Arm.STABLE, 200, GOOD),
        )
        for at in range(5)
    ]
    after = JUDGE.look(SPEC, begun(step=1), windows)
    assert verdict(after) is Verdict.UNKNOWN
    assert after.looked_through == 250


def test_no_window_counts_twice() -> None:
    windows = [both(200 + 10 * at, (Arm.CANARY, Arm.STABLE), GOOD) for at in range(3)]
    once = JUDGE.look(SPEC, begun(step=1), windows)
    assert JUDGE.look(SPEC, once, windows) is once
    assert JUDGE.look(SPEC, once, [*history(), *windows]) is once
    more = JUDGE.look(SPEC, once, [*windows, both(230, (Arm.CANARY, Arm.STABLE), GOOD)])
    assert len(more.series) == 4


def walk(random: np.random.Generator, count: int) -> list[EndpointWindow]:
    return [
        both(
            200 + 10 * at,
            (Arm.CANARY, Arm.STABLE),
            drawn(random, int(random.integers(0, 300)), errors=0.02),
            drawn(random, int(random.integers(0, 2000))),
        )
        for at in range(count)
    ]


@given(st.integers(0, 1000), st.sets(st.integers(1, 7)))
@settings(max_examples=5)
def test_verdicts_do_not_depend_on_how_windows_are_grouped(seed: int, cuts: set[int]) -> None:
    windows = walk(np.random.default_rng(seed), 8)
    spec = SPEC.model_copy(update={"checks": Checks()})
    at_once = JUDGE.look(spec, begun(spec, step=1), windows)
    in_parts = begun(spec, step=1)
    for cut in [*sorted(cuts), 8]:
        in_parts = JUDGE.look(spec, in_parts, windows[:cut])
        in_parts = RolloutState.model_validate_json(in_parts.model_dump_json())
    assert in_parts == RolloutState.model_validate_json(at_once.model_dump_json())


def test_what_can_not_be_unpacked_is_no_evidence_for_or_against_anybody() -> None:
    begun = JUDGE.begin(SPEC, state(), history())
    cut = begun.evidence["zlib"][:-40]
    broken = begun.model_copy(update={"evidence": {**begun.evidence, "zlib": cut}})
    with pytest.raises(ValueError, match="can't be unpacked"):
        JUDGE.look(SPEC, broken, [both(200, (Arm.SHADOW, Arm.STABLE))])


def test_evidence_is_a_small_part_of_what_it_was() -> None:
    judged = JUDGE.begin(SPEC, state(), history())
    rng = np.random.default_rng(7)
    for at in range(50):
        windows = [both(200 + 10 * at, (Arm.SHADOW, Arm.STABLE), drawn(rng, 50), drawn(rng, 400))]
        judged = JUDGE.look(SPEC, judged, windows)
    plain = json.dumps(told(judged), separators=(",", ":"))
    assert len(json.dumps(judged.evidence)) < len(plain) / 2
    assert packed(told(judged)) == judged.evidence


def test_a_shadow_window_without_copies_is_history() -> None:
    alone = [window(200 + 10 * at, aggregate(OLD, Arm.STABLE, 200, GOOD)) for at in range(5)]
    after = JUDGE.look(SPEC, begun(), alone)
    assert JUDGE.history_windows(after) == 25
    assert JUDGE.history_windows(JUDGE.look(SPEC, begun(step=1), alone)) == 20


def test_evidence_knows_the_share_of_callers_of_each_step_and_of_an_edited_one() -> None:
    in_shadow, in_canary, in_bake = begun(), begun(step=1), begun(step=1, promoted_at=200.0)
    shares = [told(s)["share"] for s in (in_shadow, in_canary, in_bake)]
    assert shares == [0.0, 0.5, 0.95]
    entered = JUDGE.next_stage(SPEC, in_shadow.model_copy(update={"step": 1}))
    assert told(entered)["share"] == 0.5
    edited = SPEC.model_copy(update={"steps": (ShadowStep(shadow=100), WeightStep(weight=10))})
    assert told(JUDGE.look(edited, in_canary, ()))["share"] == 0.1


def test_the_next_stage_asks_anew_what_lets_it_pass() -> None:
    shadow = [both(200 + 10 * at, (Arm.SHADOW, Arm.STABLE), GOOD) for at in range(3)]
    passed = JUDGE.look(SPEC, begun(), shadow)
    assert verdict(passed) is Verdict.PASS
    entered = passed.model_copy(update={"step": 1, "checks": ()})
    anew = JUDGE.next_stage(SPEC, entered)
    assert verdict(anew) is Verdict.UNKNOWN
    assert JUDGE.history_windows(anew) == 23
    canary = [both(230 + 10 * at, (Arm.CANARY, Arm.STABLE), GOOD) for at in range(3)]
    assert verdict(JUDGE.look(SPEC, anew, canary)) is Verdict.PASS


def test_an_edited_check_shows_without_a_new_window() -> None:
    looked = JUDGE.look(SPEC, begun(step=1), [both(200, (Arm.CANARY, Arm.STABLE))])
    edited = SPEC.model_copy(update={"checks": only(error_rate=ErrorRateCheck())})
    assert [check.name for check in JUDGE.look(edited, looked, []).checks] == ["errorRate"]


def test_labels_come_from_stables_profile_and_past_never_from_the_candidate() -> None:
    profile = ReferenceProfile(texts=3, source="texts", labels={"rare": 1, "positive": 2})
    judge = Judge(lambda ref: profile if ref == OLD else None)
    after = judge.begin(SPEC, state(), history())
    odd = EvidenceCounts(requests=100, labels={"odd": 100})
    after = judge.look(SPEC, after, [both(200, (Arm.SHADOW, Arm.STABLE), odd)])
    assert Evidence.of_json(told(after)).rates.rows.labels == ("negative", "positive", "rare")


def test_drift_needs_the_profiles_of_both() -> None:
    asked: list[str] = []

    def profiles(ref: object) -> ReferenceProfile | None:
        asked.append(str(ref))
        return None

    spec = SPEC.model_copy(update={"checks": only(drift=DriftCheck(gate=True))})
    judge = Judge(profiles)
    windows: Sequence[EndpointWindow] = [both(200, (Arm.CANARY, Arm.STABLE))]
    after = judge.look(spec, judge.begin(spec, state(step=1), history()), windows)
    assert verdict(after, "drift") is Verdict.UNKNOWN
    assert asked


def test_the_plot_tells_both_arms_of_each_window() -> None:
    spec = SPEC.model_copy(update={"checks": only(error_rate=ErrorRateCheck())})
    slow = EvidenceCounts(
        requests=100,
        errors=3,
        latency={64: {10: 60, 20: 40}},
        aged_feedback={CALLER_GROUPS: 20},
        aged_wrong={CALLER_GROUPS: 7},
    )
    past = EvidenceCounts(requests=100, latency={64: {10: 95, 12: 5}})
    before = JUDGE.begin(spec, state(step=1), history(past))
    alone = window(410, aggregate(OLD, Arm.STABLE, 410, past))
    after = JUDGE.look(spec, before, [both(400, (Arm.CANARY, Arm.STABLE), slow, past), alone])
    first, second = after.series
    assert (first.candidate_requests, first.candidate_errors, first.candidate_slow) == (100, 3, 40)
    assert (first.stable_requests, first.stable_errors, first.stable_slow) == (100, 0, 5)
    assert (first.candidate_feedback, first.candidate_wrong, first.stable_feedback) == (20, 7, 0)
    assert (second.start, second.candidate_requests, second.stable_requests) == (410, 0, 100)

"""An arm that no caller is assigned to: seen, said and passed by, by counts of requests alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rollout_walk import ONE, SECONDS, SPEC, TWO, Walk

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import Outcome, RolloutSpec, RolloutState, StepTraffic, Verb
from contracts.windows import EndpointWindow, EvidenceCounts, WindowAggregate
from rollout import arm_traffic

HOUR = 3600.0
GROUPS = {1: 30, 2: 20, 7: 50}  # of callers: the requests of each
STATE = RolloutState(
    id="r",
    candidate=TWO,
    stable=ONE,
    began=1000.0,
    step_began=1000.0,
    traffic=arm_traffic.begin_step(1000.0),
)


def counted(of: ModelRef, arm: Arm, start: int, evidence: EvidenceCounts) -> WindowAggregate:
    return WindowAggregate("e", of.version, of.package, arm, start, evidence=evidence)


def named(start: int, groups: dict[int, int], anonymous: int = 0) -> EndpointWindow:
    """A window in which stable alone had traffic."""
    requests = sum(groups.values()) + anonymous
    evidence = EvidenceCounts(requests=requests, group_requests=groups)
    return EndpointWindow("e", start, SECONDS, [counted(ONE, Arm.STABLE, start, evidence)])


def of_callers(walk: Walk, windows: int = 1, anonymous: int = 0) -> Walk:
    """Traffic that stable alone gets, whatever the routes say, with a pass after each window."""
    for _ in range(windows):
        made = named(int(walk.now // SECONDS) * SECONDS, GROUPS, anonymous)
        walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), made))
        walk.step(SECONDS)
        if walk.status.rollout is None:
            break
    return walk


# On the walk of a version


def test_an_arm_that_no_caller_falls_into_is_said_and_passed_by_after_an_hour() -> None:
    walk = of_callers(Walk().through(1))
    assert walk.why == "none of about 3 callers is assigned to the 5 % of this step"
    of_callers(walk, 358)
    assert walk.shares == {"canary 2": 5, "stable 1": 95}
    of_callers(walk, 2)
    assert walk.shares == {"canary 2": 25, "stable 1": 75}
    assert walk.status.history[-1].reason == (
        "none of about 3 callers is assigned to the 5 % of this step: "
        "stable answered 36,000 requests of theirs in 1h, and version 2 none"
    )


@pytest.mark.slow
def test_the_last_step_is_never_passed_by_so_that_nothing_is_promoted_without_a_pass() -> None:
    walk = of_callers(Walk(replace_deadline(24 * 600)).through(3), 1500)
    assert (walk.last.outcome, walk.last.promoted_at) == (Outcome.EXPIRED, None)
    assert "none of about 3 callers is assigned to the 50 % of this step" in walk.last.reason


def replace_deadline(seconds: float) -> RolloutSpec:
    return SPEC.model_copy(update={"deadline": seconds})


def test_one_request_of_a_caller_in_the_arm_keeps_the_step() -> None:
    walk = Walk().through(1).traffic("unknown")
    of_callers(walk, 400)
    assert walk.state.step == 1


def test_a_caller_who_hung_up_on_the_candidate_keeps_the_step() -> None:
    walk = Walk().through(1)
    start = int(walk.now // SECONDS) * SECONDS
    hung_up = counted(TWO, Arm.CANARY, start, EvidenceCounts())
    hung_up.statuses = {499: 1}
    window = structs.replace(named(start, GROUPS), aggregates=[hung_up])
    walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), window))
    walk.step(SECONDS)
    assert of_callers(walk, 400).state.step == 1


def test_an_arm_that_requests_without_a_name_should_have_reached_is_not_empty_by_callers() -> None:
    walk = of_callers(Walk().through(1), 400, anonymous=1)
    assert walk.state.step == 1


@pytest.mark.slow
def test_an_arm_that_callers_can_not_reach_is_not_counted_as_empty() -> None:
    walk = of_callers(Walk().through(1).sees(ONE), 400)
    assert walk.why == "version 2 is not loaded on every Triton"
    assert of_callers(walk.sees(ONE, TWO), 300).state.step == 1
    assert of_callers(walk, 100).state.step == 2


@pytest.mark.slow
def test_what_came_while_the_controller_was_away_is_not_counted_as_empty() -> None:
    walk = Walk().through(1)
    first = int(walk.now // SECONDS) * SECONDS
    missed = tuple(named(first + i * SECONDS, GROUPS) for i in range(400))
    walk.observed = replace(walk.observed, windows=(*(walk.observed.windows or ()), *missed))
    assert walk.step(400 * SECONDS).state.step == 1
    assert of_callers(walk, 361).state.step == 2


def test_a_pause_and_a_minimum_step_keep_an_empty_step() -> None:
    walk = of_callers(Walk().through(1).told(Verb.PAUSE), 400)
    assert (walk.state.step, walk.why) == (1, "paused")
    assert walk.told(Verb.RESUME).state.step == 2
    spec = SPEC.model_copy(update={"minimum_step": 2 * HOUR})
    walk = Walk().through(1)
    walk.spec = spec
    assert of_callers(walk, 400).state.step == 1


def test_a_step_that_an_older_controller_began_is_not_passed_by() -> None:
    walk = Walk().through(1)
    older = walk.status.model_dump(mode="json", by_alias=True)
    del older["rollout"]["traffic"]
    walk.status = type(walk.status).model_validate(older)
    assert of_callers(walk, 400).state.step == 1
    assert walk.why == "no traffic has reached it in this step"


# The rule by itself


@st.composite
def traffics(draw: st.DrawFn) -> StepTraffic:
    stable = draw(st.integers(0, 5000))
    return StepTraffic(
        candidate=draw(st.sampled_from([0, 0, 1, 50])),
        since=0.0,
        stable=stable,
        named=draw(st.integers(0, stable)),
        groups=draw(st.integers(0, 2**32 - 1)),
    )


@given(traffics(), st.floats(0.01, 0.99), st.floats(0, 2 * HOUR))
def test_an_arm_is_empty_only_where_its_callers_should_have_been_seen(
    traffic: StepTraffic, share: float, through: float
) -> None:
    if not arm_traffic.is_empty(traffic, share, through, HOUR):
        return
    assert traffic.candidate == 0
    assert through >= HOUR
    assert traffic.named * share >= 5
    longer = traffic.model_copy(update={"named": traffic.named + 10, "stable": traffic.stable + 10})
    assert arm_traffic.is_empty(longer, share, through + 1, HOUR)
    seen = traffic.model_copy(update={"candidate": 1})
    assert not arm_traffic.is_empty(seen, share, through, HOUR)


answers = st.builds(
    EvidenceCounts,
    requests=st.just(0),
    errors=st.integers(0, 9),
    labels=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 9)),
    latency=st.dictionaries(st.just(16), st.dictionaries(st.integers(0, 9), st.integers(1, 9))),
    feedback=st.integers(0, 9),
    feedback_wrong=st.integers(0, 9),
)
drawn = st.tuples(st.integers(0, 3), st.dictionaries(st.integers(0, 31), st.integers(1, 9)))


def windows(
    counts: Sequence[tuple[int, dict[int, int]]], evidence: Sequence[EvidenceCounts]
) -> list[EndpointWindow]:
    made = []
    for index, (requests, groups) in enumerate(counts):
        start, answer = 1000 + index * SECONDS, evidence[index]
        of_stable = structs.replace(
            answer, requests=sum(groups.values()) + requests, group_requests=groups
        )
        stable = counted(ONE, Arm.STABLE, start, of_stable)
        candidate = counted(TWO, Arm.CANARY, start, answer)
        candidate.statuses = {200: requests}
        made.append(EndpointWindow("e", start, SECONDS, [stable, candidate]))
    return made


@given(st.lists(drawn, min_size=1, max_size=9), st.data())
def test_no_answer_and_no_grouping_into_passes_changes_what_is_counted(
    counts: list[tuple[int, dict[int, int]]], data: st.DataObject
) -> None:
    size = len(counts)
    one, other = (data.draw(st.lists(answers, min_size=size, max_size=size)) for _ in range(2))

    def after(state: RolloutState, made: Sequence[EndpointWindow], through: float) -> RolloutState:
        traffic = arm_traffic.after(
            state, made, through, Arm.CANARY, longest_seconds=300, is_routed=True
        )
        return state.model_copy(update={"traffic": traffic})

    at_once = after(STATE, windows(counts, one), 1000.0).traffic
    state = STATE
    for index, window in enumerate(windows(counts, other)):
        state = after(state, [window], 1000.0 + index * SECONDS)
    assert state.traffic == at_once


@pytest.mark.parametrize(
    ("groups", "words"),
    [(1, "about 1 callers"), (10, "about 12 callers"), (32, "more than 100 callers")],
)
def test_callers_are_counted_by_their_groups(groups: int, words: str) -> None:
    traffic = StepTraffic(since=0.0, groups=2**groups - 1)
    assert arm_traffic.callers(traffic) == words


def test_a_step_of_one_percent_waits_for_more_requests_than_one_of_half() -> None:
    traffic = StepTraffic(since=0.0, stable=100, named=100, groups=1)
    assert arm_traffic.is_empty(traffic, 0.5, HOUR, HOUR)
    assert not arm_traffic.is_empty(traffic, 0.01, HOUR, HOUR)


# At the deadline


def test_at_the_deadline_it_says_what_traffic_a_verdict_would_have_taken() -> None:
    walk = Walk(replace_deadline(600)).through(1)
    walk.traffic("unknown", 20)
    while walk.status.rollout is not None:
        walk.step(SECONDS)
    assert walk.last.outcome is Outcome.EXPIRED
    assert walk.last.reason.startswith("no verdict within 10m: not yet known: fake; this step had ")
    assert (
        "2,000 requests of version 2 in 9m50s, 3.39 a second; fake needs more" in walk.last.reason
    )


def test_what_was_counted_since_the_middle_of_a_step_gives_no_rate() -> None:
    assert arm_traffic.describe_lack(STATE.model_copy(update={"traffic": None}), (), 2000.0) == ""

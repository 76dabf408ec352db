"""What all watch stays small whatever a rollout holds, and no other text is taken for a record."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts.endpoint import (
    KEPT_LIMIT,
    NAMED_LIMIT,
    Arm,
    Candidate,
    EndpointStatus,
    KeptSpace,
    Phase,
    RecordRef,
    Rejection,
    Route,
    Transition,
    Wait,
    WaitsFor,
)
from contracts.endpoint_record import (
    SUMMARY_BYTES,
    read,
    ref_to,
    shorten,
    summary,
    text_of,
)
from contracts.model import ModelRef
from contracts.rollout import (
    SERIES_LIMIT,
    CheckResult,
    CommandOutcome,
    Outcome,
    RolloutState,
    SeriesPoint,
    StepTraffic,
    Verb,
    Verdict,
)
from registry.stores.cluster_shown import conditions, make_columns

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-_ 0123456789", min_size=1, max_size=63)
SENTENCES = st.one_of(
    st.text(max_size=100),
    st.builds(lambda text, times: text * times, st.text(max_size=40), st.integers(0, 60)),
)
TIMES = st.floats(1e9, 2e9)
FIGURES = st.dictionaries(st.sampled_from("abcdefgh"), TIMES, max_size=8)
CHECKS = st.builds(
    CheckResult,
    name=st.text("abcxyz", min_size=1, max_size=63),
    verdict=st.sampled_from(Verdict),
    reason=SENTENCES,
    figures=FIGURES,
    needs=st.none() | st.integers(0, 10**9),
)
POINT = SeriesPoint(
    start=1.7e9,
    seconds=30,
    candidate_requests=10**6,
    candidate_errors=10**5,
    candidate_slow=10**5,
    stable_requests=10**7,
    stable_errors=10**6,
    stable_slow=10**6,
)


def ref(name: str, version: str) -> ModelRef:
    return ModelRef(model=name, version=version, package=version * 64, space="0" * 12)


LOADERS = st.lists(st.text("abcxyz0123456789-", min_size=1, max_size=63), max_size=NAMED_LIMIT)
WAITS = st.builds(Wait, cause=st.sampled_from(WaitsFor), since=TIMES, what=SENTENCES)


@st.composite
def statuses(draw: st.DrawFn) -> EndpointStatus:
    """Of an endpoint with two rollouts behind it, of any length, with anything said of them."""
    name = draw(NAMES)
    old, new = ref(name, "1"), ref(name, "2")
    kept = [ref(name, str(3 + number)) for number in range(draw(st.integers(0, KEPT_LIMIT)))]
    state = RolloutState(
        id="v2-0123456789ab",
        candidate=new,
        options="o" * 32,
        stable=old,
        step=draw(st.integers(0, 19)),
        began=draw(TIMES),
        step_began=draw(TIMES),
        paused_at=draw(st.none() | TIMES),
        traffic=draw(st.none() | st.just(StepTraffic(since=1.7e9, groups=2**32 - 1))),
        looked_through=draw(TIMES),
        checks=tuple(draw(st.lists(CHECKS, max_size=8))) * draw(st.integers(1, 8)),
        evidence={"schema_version": 2, "zlib": "x" * draw(st.integers(0, 200_000))},
        series=(POINT,) * draw(st.integers(0, SERIES_LIMIT)),
    )
    ended = state.model_copy(
        update={"ended_at": 1.7e9, "outcome": Outcome.SETTLED, "reason": draw(SENTENCES)}
    )
    lines = st.builds(
        Transition,
        at=TIMES,
        version=st.just("2"),
        phase=st.sampled_from(Phase),
        reason=SENTENCES,
        by=st.text(max_size=60),
        figures=FIGURES,
    )
    rejections = st.builds(
        Rejection, version=st.just("7"), options=st.just("o" * 32), reason=SENTENCES, at=TIMES
    )
    answers = st.builds(
        CommandOutcome,
        id=st.text("0123456789abcdef", min_size=8, max_size=8),
        verb=st.sampled_from(Verb),
        by=st.text(max_size=60),
        at=TIMES,
        accepted=st.booleans(),
        said=SENTENCES,
    )
    return EndpointStatus(
        generation=draw(st.integers(0, 10**6)),
        routes=(
            Route(arm=Arm.STABLE, ref=old, weight=75),
            Route(arm=Arm.CANARY, ref=new, weight=25),
        ),
        packages=(old, new, *kept),
        kept=tuple(KeptSpace(ref=each, asked_at=draw(TIMES)) for each in kept),
        next_packages=draw(st.just(()) | st.just((new,))),
        cordoned=tuple(draw(LOADERS)),
        loading=tuple(draw(LOADERS)),
        candidate=Candidate(version="2", phase=Phase.CANARY, ref=new, reason=draw(SENTENCES)),
        rollout=state,
        last_rollout=draw(st.none() | st.just(ended)),
        commands=tuple(draw(st.lists(answers, max_size=4))) * draw(st.integers(1, 5)),
        notes=tuple(draw(st.lists(SENTENCES, max_size=12))),
        waits=tuple(draw(st.lists(WAITS, max_size=5))),
        unserved=draw(SENTENCES),
        unguarded=draw(SENTENCES),
        rejected=tuple(draw(st.lists(rejections, max_size=5))) * draw(st.integers(1, 100)),
        history=tuple(draw(st.lists(lines, max_size=5))) * draw(st.integers(1, 10)),
    )


FOLLOWED = {
    "generation", "task", "routes", "packages", "pool", "device", "next_pool", "next_packages",
    "next_loading", "asleep", "cordoned", "loading", "model_created", "rejected_through",
}  # fmt: skip
LARGEST = EndpointStatus(
    routes=(Route.all_callers(ref("m" * 256, "1")),),
    notes=("\x01" * 1000,) * 12,
    unserved="€" * 1000,
    unguarded="€" * 1000,
    history=(Transition(at=1.7e9, version="2", phase=Phase.CANARY, reason='"' * 4000),) * 50,
)


STATE = RolloutState(
    id="v2-0123456789ab",
    candidate=ref("m" * 63, "2"),
    options="o" * 32,
    stable=ref("m" * 63, "1"),
    step=19,
    began=1.7e9 + 1 / 3,
    step_began=1.7e9 + 1 / 3,
    paused_at=1.7e9 + 1 / 3,
    traffic=StepTraffic(since=1.7e9, groups=2**32 - 1),
    looked_through=1.7e9,
    reason="r" * 500,
    checks=(CheckResult(name="c" * 63, verdict=Verdict.FAIL, reason="r" * 500),) * 20,
)
FULL = LARGEST.model_copy(
    update={
        "routes": (
            Route(arm=Arm.STABLE, ref=STATE.stable, weight=75),
            Route(arm=Arm.CANARY, ref=STATE.candidate, weight=25),
        ),
        "packages": (STATE.stable, STATE.candidate),
        "candidate": Candidate(version="2", phase=Phase.CANARY, ref=STATE.candidate),
        "rollout": STATE,
        "last_rollout": STATE.model_copy(update={"ended_at": 1.7e9, "outcome": Outcome.SETTLED}),
        "waits": tuple(
            Wait(cause=each, since=1.7e9, what="w" * 500) for each in list(WaitsFor)[:5]
        ),
        "refused": ("r" * 500,) * 3,
    }
)
CROWDED = FULL.model_copy(
    update={
        "packages": tuple(ref("m" * 63, str(number)) for number in range(1, 3 + KEPT_LIMIT)),
        "kept": (KeptSpace(ref=ref("m" * 63, "3"), asked_at=1.7e9 + 1 / 3),) * KEPT_LIMIT,
        "next_packages": (STATE.candidate,),
        "cordoned": ("l" * 63,) * NAMED_LIMIT,
        "loading": ("l" * 63,) * NAMED_LIMIT,
        "next_loading": ("l" * 63,) * NAMED_LIMIT,
    }
)
STATUS_BYTES = 8000  # in a cluster, with the conditions


@settings(max_examples=150)
@given(statuses())
@example(LARGEST)
@example(FULL)
@example(CROWDED)
@example(CROWDED.model_copy(update={"cordoned": (), "loading": ()}))
def test_a_summary_is_small_and_leaves_what_is_followed_as_it_is(status: EndpointStatus) -> None:
    found = summary(status)
    said = found.model_dump_json(by_alias=True)
    turns = (status.loading, status.next_loading)
    beside = (status.kept, status.next_packages, status.cordoned, *turns)
    assert any(beside) or len(said.encode()) <= SUMMARY_BYTES
    for_people = [make_columns(found), *conditions(found, (), 10**6, 1.7e9)]
    assert len((said + json.dumps(for_people, ensure_ascii=False)).encode()) < STATUS_BYTES
    assert found.model_dump(include=FOLLOWED) == status.model_dump(include=FOLLOWED)
    for state, whole in (
        (found.rollout, status.rollout),
        (found.last_rollout, status.last_rollout),
    ):
        assert (state is None) == (whole is None)
        if state is None or whole is None:
            continue
        assert (state.evidence, state.series) == ({}, ())
        own = {"evidence", "series", "checks", "reason"}
        assert state.model_dump(exclude=own) == whole.model_dump(exclude=own)
    left = len(status.history) > len(found.history) or len(status.rejected) > len(found.rejected)
    assert not left or "left out here for room" in found.notes[-1]


def test_long_words_of_what_is_waited_for_leave_a_summary_small() -> None:
    waits = tuple(Wait(cause=cause, since=0, what="w" * 5000) for cause in list(WaitsFor)[:6])
    found = summary(EndpointStatus(waits=waits))
    assert len(found.model_dump_json(by_alias=True).encode()) <= SUMMARY_BYTES
    assert [wait.cause for wait in found.waits] == [wait.cause for wait in waits]


@settings(max_examples=50)
@given(statuses())
@example(FULL)
@example(CROWDED)
def test_a_summary_is_its_own_summary(status: EndpointStatus) -> None:
    once = summary(status.model_copy(update={"notes": ()}))
    assert summary(once) == once


@settings(max_examples=30)
@given(statuses())
def test_a_record_gives_the_whole_status_back_to_the_last_bit(status: EndpointStatus) -> None:
    text = text_of(status)
    assert read(ref_to(text, None), text) == status


def test_the_newest_lines_stay_and_say_what_they_said() -> None:
    lines = tuple(
        Transition(at=at, version=str(at), phase=Phase.REJECTED, reason=f"reason {at}")
        for at in range(50)
    )
    found = summary(EndpointStatus(history=lines))
    assert found.history == lines[-10:]
    assert found.notes == (
        "left out here for room: 40 lines of history (headrace status and rollout show all)",
    )


def test_a_failed_check_stays_where_there_is_no_room_for_all() -> None:
    passed = CheckResult(name="own", verdict=Verdict.PASS, reason="r" * 250)
    failed = CheckResult(name="errorRate", verdict=Verdict.FAIL, reason="r" * 250)
    state = RolloutState(
        id="x",
        candidate=ref("m", "2"),
        stable=ref("m", "1"),
        began=0,
        step_began=0,
        checks=(*(passed,) * 50, failed),
    )
    found = summary(EndpointStatus(rollout=state)).rollout
    assert found is not None
    assert [check.name for check in found.checks] == ["errorRate"]


@pytest.mark.parametrize("size", [300, 10_000])
@pytest.mark.parametrize("passed_at", [None, 2.0])
def test_gateways_are_told_whether_it_has_passed_also_where_there_is_no_room_for_checks(
    size: int, passed_at: float | None
) -> None:
    checks = [
        CheckResult(name=f"c{at}", verdict=Verdict.UNKNOWN, reason="r" * size) for at in range(10)
    ]
    state = RolloutState(
        id="r", candidate=ref("m", "2"), stable=ref("m", "1"), began=1.0, step_began=1.0,
        looked_through=2.0, checks=tuple(checks), reason="r" * size, passed_at=passed_at,
    )  # fmt: skip
    notes = tuple(f"{at}{'n' * size}" for at in range(10))
    told = summary(EndpointStatus(rollout=state, notes=notes)).rollout
    assert told is not None
    assert told.passed_at == passed_at


def test_a_small_status_without_evidence_is_its_own_summary() -> None:
    status = EndpointStatus(
        generation=3, history=(Transition(at=1.0, version="1", phase=Phase.SERVING),)
    )
    assert summary(status) == status


def test_a_record_goes_where_the_one_that_is_named_does_not_lie() -> None:
    first = ref_to("one", None)
    second = ref_to("two", first)
    assert {first.slot, second.slot} == {"a", "b"}
    assert ref_to("two", second) == second
    assert ref_to("three", second).slot == first.slot


def test_another_text_than_the_named_one_is_no_record() -> None:
    text = text_of(EndpointStatus(generation=1))
    ref = ref_to(text, None)
    for other in (None, "", text[:-1], text_of(EndpointStatus(generation=2))):
        assert read(ref, other) is None
    assert read(RecordRef(slot="b", digest=ref.digest), text) == EndpointStatus(generation=1)


@given(st.text(), st.integers(3, 100))
def test_a_sentence_is_cut_to_its_bytes_and_says_so(sentence: str, most: int) -> None:
    found = shorten(sentence, most)
    assert found == sentence or (found.endswith("…") and sentence.startswith(found[:-1]))
    size = len(EndpointStatus(unserved=found).model_dump_json().encode())
    assert size - len(EndpointStatus().model_dump_json().encode()) <= most

"""The page's document says what is known, and nothing else."""

import functools
from dataclasses import replace

import msgspec
import pytest
import ui_board
import ui_world
from ui_board import Traffic
from ui_world import HOSTILE

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointStatus,
    KeptSpace,
    Phase,
    Route,
    Wait,
    WaitsFor,
)
from contracts.loading import Device, DeviceKind, LoaderReport
from contracts.rollout import Outcome, Verdict
from measures.counting import CountingState, CountingStatus
from stats.evaluation.board import Board
from stats.ui.document import Detail, StatisticsDocument, Tone
from stats.ui.series import MOST_LABELS, MOST_VERSIONS
from stats.ui.view import SPANS, Links, ViewRequest, model_url, run_url, view

NOW = 1_795_275_506.0
LINKS = Links("http://gateway:8080", "http://mlflow:5000/")


@functools.cache
def world_of(name: str) -> ui_world.World:
    """Worlds never change, and take a while to be made."""
    return ui_world.WORLDS[name](NOW)


def seen(
    world: ui_world.World, asked: ViewRequest | None = None, now: float = NOW
) -> StatisticsDocument:
    return view(world.endpoints, world.board, LINKS, asked or ViewRequest(), now)


def detail_of(world: ui_world.World, asked: ViewRequest | None = None, now: float = NOW) -> Detail:
    found = seen(world, asked, now).detail
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rolling() -> ui_world.World:
    return world_of("rolling")


@pytest.mark.parametrize("name", sorted(set(ui_world.WORLDS) - {"many"}))
def test_every_document_is_json_that_reads_back_as_itself(name: str) -> None:
    made = seen(world_of(name))
    assert msgspec.json.decode(msgspec.json.encode(made), type=StatisticsDocument) == made


def test_every_series_has_a_value_for_every_column(rolling: ui_world.World) -> None:
    for span in SPANS:
        detail = detail_of(rolling, ViewRequest(span=span))
        count = detail.columns.count
        for one in detail.series:
            for values in (one.rate, one.errors, one.p50, one.p95, one.p99, one.tokens, one.unk):
                assert len(values) == count
        assert all(len(heatmap.counts) == count for heatmap in detail.heatmaps)
        for heatmap in detail.heatmaps:
            assert {len(column) for column in heatmap.counts} == {len(heatmap.upper)}


def test_totals_are_those_of_the_windows(rolling: ui_world.World) -> None:
    detail = detail_of(rolling)
    since = detail.columns.start
    for series in rolling.board.series("sentiment"):
        aggregates = [w.aggregate() for w in series.windows if w.start >= since]
        (shown,) = (
            one
            for one in detail.series
            if (one.version, one.arm) == (series.version, series.arm.value)
        )
        assert shown.totals["requests"] == sum(sum(c.statuses.values()) for c in aggregates)
        assert shown.totals["texts"] == sum(c.texts for c in aggregates)


def test_both_arms_stand_side_by_side_stable_first(rolling: ui_world.World) -> None:
    detail = detail_of(rolling)
    assert [(one.version, one.arm) for one in detail.series] == [
        ("3", "stable"),
        ("4", "canary"),
        ("4", "shadow"),
    ]
    agreement = {one.arm: one.totals["agreement"] for one in detail.series}
    assert agreement["shadow"] == pytest.approx(0.97, abs=0.01)
    assert agreement["stable"] is None


def test_latency_of_callers_leaves_shadows_out(rolling: ui_world.World) -> None:
    detail = detail_of(rolling)
    (latency,) = (one for one in detail.heatmaps if one.group == "latency")
    called = sum(one.totals["texts"] or 0 for one in detail.series if one.arm != "shadow")
    assert sum(map(sum, latency.counts)) == called


def test_a_rollout_tells_its_steps_checks_and_both_arms(rolling: ui_world.World) -> None:
    detail = detail_of(rolling)
    rollout = detail.rollout
    assert rollout is not None
    assert (rollout.version, rollout.against, rollout.phase) == ("4", "3", "Canary")
    assert [(step.percent, step.shadow) for step in rollout.steps] == [
        (100, True),
        (5, False),
        (25, False),
    ]
    marks = {stage.name: stage.mark for stage in rollout.stages}
    assert marks["5 %"] == "done"
    assert marks["25 %"] == "now"
    assert marks["settled"] == "todo"
    assert {check.name: check.verdict for check in rollout.checks}["outputShift"] == "pass"
    assert rollout.ended is None
    assert rollout.deadline == pytest.approx(rollout.began + 86_400)


def test_a_rollback_is_said_in_the_list_and_marked_where_it_happened() -> None:
    made = seen(world_of("gone-back"))
    assert made.endpoints[0].tone is Tone.WARN
    assert made.endpoints[0].said == "serving version 3; version 4 was rolled back"
    assert made.detail is not None
    rollout = made.detail.rollout
    assert rollout is not None
    assert rollout.phase == Outcome.ROLLED_BACK.value
    assert rollout.steps[-1].percent == 0
    assert {stage.name: stage.mark for stage in rollout.stages}["25 %"] == "failed"
    assert [c.name for c in rollout.checks if c.verdict == Verdict.FAIL.value] == ["errorRate"]


def test_a_model_that_is_asleep_is_no_cause_for_alarm() -> None:
    world = world_of("quiet")
    status = world.endpoints[0].status.model_copy(update={"asleep": NOW - 60})
    asleep = world.endpoints[0].model_copy(update={"status": status})
    made = seen(replace(world, endpoints=(asleep, *world.endpoints[1:])))
    assert made.endpoints[0].tone is Tone.QUIET
    assert "asleep, and comes back with the next caller" in made.endpoints[0].said


def test_a_drift_alarm_is_the_most_urgent_thing_to_say() -> None:
    made = seen(world_of("drifted"))
    assert made.endpoints[0].tone is Tone.BAD
    assert "tokens per word" in made.endpoints[0].said
    assert made.detail is not None
    by_name = {item.statistic: item for item in made.detail.drift[0].statistics}
    assert by_name["tokens_per_word"].alarm
    assert not by_name["truncated"].alarm
    assert any(ratio is not None and ratio > 1 for ratio in by_name["tokens_per_word"].ratios)


def test_drift_that_is_not_calibrated_alarms_nobody() -> None:
    world = world_of("drifted")
    factor = {"tokens_per_word": 9.0}
    drift = ui_board.drift("3", NOW, factor=factor, calibration=0.3)
    held = replace(world.board.of("sentiment"), drift=(drift,))
    board = replace(world.board, by_endpoint={"sentiment": held})
    made = view(world.endpoints, board, LINKS, ViewRequest(), NOW)
    assert made.endpoints[0].tone is Tone.QUIET
    assert made.detail is not None
    assert made.detail.drift[0].statistics[3].level == 2


def test_what_nobody_knows_is_null_and_not_zero() -> None:
    made = seen(world_of("untouched"))
    assert made.health.known
    assert made.health.through is None
    assert made.endpoints[0].rate is None
    assert made.endpoints[0].errors is None
    assert made.detail is not None
    assert made.detail.series == []
    assert "headrace replay" in made.detail.try_it


def test_kafka_away_is_said(rolling: ui_world.World) -> None:
    away = replace(rolling.board, connected=False)
    health = view(rolling.endpoints, away, LINKS, ViewRequest(), NOW).health
    assert not health.known
    assert "Kafka does not answer" in health.said


def test_a_first_version_on_its_way_shows_its_stages() -> None:
    made = seen(world_of("preparing"))
    assert made.endpoints[0].tone is Tone.BUSY
    assert made.detail is not None
    assert made.detail.preparing is not None
    assert made.detail.preparing.version == "1"
    assert [stage.name for stage in made.detail.preparing.stages] == [
        "converting",
        "verifying",
        "loading",
        "serving",
    ]
    assert made.detail.preparing.stages[1].mark == "now"
    assert made.detail.try_it == ""


@pytest.mark.parametrize(
    ("status", "tone", "words"),
    [
        (EndpointStatus(), Tone.IDLE, "waits for a version"),
        (
            EndpointStatus(candidate=Candidate(version="1", phase=Phase.REJECTED)),
            Tone.BAD,
            "was rejected, nothing serves",
        ),
        (
            EndpointStatus(candidate=Candidate(version="1", phase=Phase.BLOCKED)),
            Tone.WARN,
            "is blocked",
        ),
    ],
)
def test_an_endpoint_that_serves_nothing_says_why(
    status: EndpointStatus, tone: Tone, words: str
) -> None:
    world = ui_world.World((ui_world.endpoint("a", status),), Board(connected=True))
    (shown,) = seen(world).endpoints
    assert shown.tone is tone
    assert words in shown.said


def test_what_an_endpoint_waits_for_is_said_with_what_to_do() -> None:
    waits = (
        Wait(cause=WaitsFor.MODEL, since=NOW - 60, what="MLflow has no registered model typo"),
        Wait(cause=WaitsFor.TURN, since=NOW - 60, version="1"),  # stands with its version
    )
    status = EndpointStatus(generation=1, waits=waits)
    world = ui_world.World((ui_world.endpoint("a", status),), Board(connected=True))
    assert detail_of(world).notes == [
        "waits 1m: MLflow has no registered model typo; to do: register it, or change spec.model"
    ]


def test_an_unknown_endpoint_or_span_falls_back_to_the_first() -> None:
    made = seen(world_of("quiet"), ViewRequest("gone", "a year"))
    assert made.detail is not None
    assert (made.detail.name, made.span) == ("sentiment", "15m")


def test_versions_link_to_their_run_and_data_set(rolling: ui_world.World) -> None:
    detail = detail_of(rolling)
    assert [one.version for one in detail.versions] == ["4", "3"]
    assert detail.versions[0].run_url.startswith("http://mlflow:5000/#/runs/")
    assert detail.model_url == "http://mlflow:5000/#/models/sentiment"
    assert detail.versions[0].version_url == "http://mlflow:5000/#/models/sentiment/versions/4"
    assert detail.versions[0].data_sets == ["reviews-2026-09"]
    assert seen(rolling).mlflow_url == "http://mlflow:5000"


def test_links_can_not_leave_mlflow_whatever_a_model_is_called() -> None:
    assert model_url("http://m", "..x?y#z", "1") == "http://m/#/models/..x%3Fy%23z/versions/1"
    assert run_url("http://m", "a", "") == ""
    assert run_url("", "a", "abc") == ""
    hostile = HOSTILE.replace("/", "")  # of which there is none in a model's name
    assert hostile not in model_url("http://m", hostile, "1")


def test_links_lead_into_the_workspace_of_a_model() -> None:
    assert model_url("http://m/", "team-a/churn") == "http://m/#/models/churn?workspace=team-a"
    page = model_url("http://m", "team-a/churn", "2")
    assert page == "http://m/#/models/churn/versions/2?workspace=team-a"
    assert run_url("http://m", "team-a/churn", "f0") == "http://m/#/runs/f0?workspace=team-a"


def test_labels_and_versions_are_bounded_whatever_users_send() -> None:
    labels = {f"label {number:03}": float(number + 1) for number in range(40)}
    parts = [Traffic(str(version), Arm.FORCED, labels=labels, begin=100) for version in range(1, 9)]
    world = ui_world.World(
        (ui_world.endpoint("sentiment", ui_world.serving("1", NOW)),),
        ui_board.board({"sentiment": parts}, NOW),
    )
    detail = detail_of(world)
    outputs = [one for one in detail.heatmaps if one.group == "outputs"]
    assert len(outputs) == MOST_LABELS * MOST_VERSIONS
    assert {one.version for one in outputs} == {"8", "7", "6"}
    assert "label 039" in detail.labels["8"]


def test_vectors_are_shown_by_their_length() -> None:
    detail = detail_of(world_of("embedding"))
    assert [one.title for one in detail.heatmaps if one.group == "outputs"] == [
        "length of the vector"
    ]


def test_who_gets_which_vector_space_stands_beside_its_version() -> None:
    world = world_of("embedding")
    (one,) = world.endpoints
    stable = one.status.stable
    assert stable is not None
    old, new = (
        stable.model_copy(update={"version": number, "space": number * 12}) for number in "12"
    )
    routes, kept = (Route.all_callers(new),), (KeptSpace(ref=old, asked_at=NOW),)
    status = one.status.model_copy(update={"routes": routes, "packages": (old,), "kept": kept})
    endpoints = (one.model_copy(update={"status": status}),)
    spaces = {
        each.version: each.space for each in detail_of(replace(world, endpoints=endpoints)).versions
    }
    assert spaces == {"2": f"{'2' * 12}: all who name no space", "1": f"{'1' * 12}: who names it"}


def test_traffic_that_stopped_falls_to_zero_after_a_minute() -> None:
    world = world_of("quiet")
    stopped, later = detail_of(world, now=NOW + 30), detail_of(world, now=NOW + 120)
    assert stopped.series[0].rate[-1] is None
    assert later.series[0].rate[-2] == 0


@pytest.mark.parametrize("state", [CountingState.STALLED, CountingState.BEHIND])
def test_traffic_that_is_not_counted_is_never_shown_as_none(state: CountingState) -> None:
    world = world_of("quiet")
    uncounted = replace(world.board, counting=CountingStatus(state, since=NOW, messages=9))
    made = seen(replace(world, board=uncounted), now=NOW + 120)
    assert made.detail is not None
    assert made.detail.series[0].rate[-2] is None
    assert made.endpoints[0].rate is None
    assert made.endpoints[0].spark[-2] is None


def test_statistics_of_the_users_own_and_unknown_words_are_shown() -> None:
    detail = detail_of(world_of("drifted"))
    own = {one.title: one for one in detail.heatmaps if one.group == "own"}
    assert own["language"].names == ["en", "de", "fr"]
    assert own["sentences"].upper
    (links,) = detail.counters
    assert links.name == "links"
    assert any(rate is not None and rate > 0 for rate in links.values)
    assert set(detail.unfit) == {"colour", "language"}
    (words,) = detail.unk_words
    assert words.words[0][0] == "übergrößenträger"


def test_the_page_says_what_each_triton_computes_with_and_why_it_can_not() -> None:
    gpu = Device(
        kind=DeviceKind.GPU, name="NVIDIA H200", count=1, busy=0.354,
        memory_bytes=150_000_000_000, free_bytes=138_000_000_000,
    )  # fmt: skip
    devices = {"b": gpu, "a": Device(fault="this Triton can't use a GPU: it has none"), "c": None}
    reports = [
        LoaderReport(loader=name, triton_grpc="t:1", pool="p", at=NOW, ready=True, device=device)
        for name, device in devices.items()
    ]
    world = world_of("untouched")
    found = view(world.endpoints, world.board, LINKS, ViewRequest(), NOW, reports=reports).engines
    assert [(each.loader, each.pool, each.well) for each in found] == [
        ("a", "p", False),
        ("b", "p", True),
    ]
    assert found[0].said == "this Triton can't use a GPU: it has none"
    assert found[1].said == "on one NVIDIA H200, 12 of 150 GB in use, busy 35 % of the time"


def test_the_page_says_that_a_triton_ended_by_itself_and_how_much_of_its_time_is_useful() -> None:
    gpu = Device(
        kind=DeviceKind.GPU, name="NVIDIA H200", count=1, busy=0.9, useful=0.85,
        memory_bytes=150_000_000_000, free_bytes=138_000_000_000,
    )  # fmt: skip
    report = LoaderReport(
        loader="a", triton_grpc="t:1", at=NOW, ended_at=NOW - 60.0, ready=True, device=gpu
    )
    world = world_of("untouched")
    (line,) = view(
        world.endpoints, world.board, LINKS, ViewRequest(), NOW, reports=[report]
    ).engines
    assert line.said == (
        "on one NVIDIA H200, 12 of 150 GB in use, busy 90 % of the time, 85 % of it with texts; "
        "it ended by itself 1m ago and was started again"
    )

"""What people see of rollouts, of their history and of the status, at 80 and at 120 columns.

``WRITE_GOLDEN=1 pytest tests/headrace/commands/test_pictures.py`` writes what is drawn now.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, Group
from shown_endpoints import HISTORY, NOW, REFUSED, collapsed, sentiment, settled

from contracts.endpoint import (
    Candidate,
    EndpointStatus,
    Phase,
    Rejection,
    Route,
    Wait,
    WaitsFor,
)
from contracts.loading import Device, DeviceKind, LoaderReport, LoadFailure
from contracts.model import ModelRef
from headrace.commands import rollout_picture, status_picture
from headrace.commands.status_picture import StackStatus, endpoint_rows
from headrace.stack.health import CountingHealth
from headrace.stack.state import GatewayRecord, StackRecord, TritonRecord
from rollout.view import newest

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 120)
ENDPOINTS = (sentiment(), collapsed(), settled())
RECORD = StackRecord(
    pid=4711, started_at=NOW, gateway_url="http://127.0.0.1:8080", gateway_grpc="127.0.0.1:8081",
    mlflow_url="http://127.0.0.1:5000", stats_url="http://127.0.0.1:8300",
    kafka_bootstrap="127.0.0.1:9092", triton_grpc="127.0.0.1:8001",
    gateways=(
        GatewayRecord(
            name="gateway", url="http://127.0.0.1:8080", grpc="127.0.0.1:8081", operations_url="",
        ),
        GatewayRecord(
            name="gateway-2", url="http://127.0.0.1:8082", grpc="127.0.0.1:8083", operations_url="",
        ),
    ),
    tritons=(
        TritonRecord(
            name="triton", grpc="127.0.0.1:8001", metrics_url="http://127.0.0.1:8002/metrics",
            loader="loader", loader_metrics_url="http://127.0.0.1:9303/metrics",
        ),
        TritonRecord(
            name="triton-2", grpc="127.0.0.1:8004", metrics_url="http://127.0.0.1:8005/metrics",
            loader="loader-2", loader_metrics_url="http://127.0.0.1:9304/metrics",
        ),
    ),
    services={
        "kafka": 4720, "triton": 4721, "triton-2": 4725, "controller": 4722, "gateway": 4723,
        "gateway-2": 4726, "fold": 4724,
    },
)  # fmt: skip
ALIVE = frozenset({"kafka", "triton", "gateway", "fold", "gateway-2"})
TOLD = CountingHealth(
    "stalled", "traffic since 2026-11-20 09:00:10 UTC is not counted: the fold role reads nothing"
)
RUNNING = StackStatus(
    "/home/anna/.headrace",
    is_starting=False,
    record=RECORD,
    alive=ALIVE,
    counting=TOLD,
    unwell={"mlflow": "", "triton": "does not answer within 1.5 s"},
)


def pictures(*, details: bool) -> dict[str, Group]:
    drawn = {
        f"rollout-status-{endpoint.name.split('-')[0]}": rollout_picture.picture(
            newest(endpoint), NOW, details=details
        )
        for endpoint in ENDPOINTS
    }
    drawn["rollout-history"] = rollout_picture.history(HISTORY, REFUSED, details=details)
    drawn["status"] = status_picture.picture(RUNNING, ENDPOINTS, NOW, details=details)
    return drawn


def text(drawn: Group, width: int) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def test_the_status_says_of_which_space_vectors_are_and_that_those_of_another_are_on_the_way() -> (
    None
):
    old, new = (
        ModelRef(model="m", version=version, package=version * 64, space=version * 12)
        for version in "12"
    )

    def shown(candidate: ModelRef | None) -> str:
        status = EndpointStatus(
            routes=(Route.all_callers(old),),
            candidate=None
            if candidate is None
            else Candidate(version=candidate.version, phase=Phase.LOADED, ref=candidate),
        )
        one = sentiment().model_copy(update={"status": status})
        return " ".join(text(Group(endpoint_rows([one], NOW)), 120).split())

    assert "its vectors are of the space 111111111111" in shown(None)
    assert "those of version" not in shown(new.model_copy(update={"space": old.space}))
    assert "those of version 2 of 222222222222: they can't be compared" in shown(new)


CASES = [
    pytest.param(name, width, details, id=f"{name}{'-details' * details}-{width}")
    for details in (False, True)
    for name in pictures(details=False)
    for width in WIDTHS
]


@pytest.mark.parametrize(("name", "width", "details"), CASES)
def test_people_see_what_was_reviewed_in_lines_that_fit(
    name: str, width: int, details: bool
) -> None:
    shown = text(pictures(details=details)[name], width)
    file = GOLDEN / f"{name}{'-details' * details}-{width}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
    assert max(map(cell_len, shown.splitlines())) <= width


def test_a_home_without_a_stack_says_so_and_shows_its_endpoints() -> None:
    for is_starting, said in (
        (False, "No stack runs on /h."),
        (True, "A stack is starting on /h."),
    ):
        running = StackStatus("/h", is_starting=is_starting, record=None, alive=frozenset())
        shown = text(status_picture.picture(running, ENDPOINTS, NOW), 80)
        assert shown.startswith(f"{said}\n")
        assert "version 10 Canary" in shown
        assert "No endpoint yet." in text(status_picture.picture(running, (), NOW), 80)


def reported(grpc: str, device: Device | None) -> LoaderReport:
    """A loader's word for what its Triton computes with."""
    return LoaderReport(loader=grpc, triton_grpc=grpc, at=NOW, ready=True, device=device)


@pytest.mark.parametrize("width", WIDTHS)
def test_below_each_triton_stands_what_it_computes_with_and_why_it_can_not(width: int) -> None:
    gpu = Device(
        kind=DeviceKind.GPU, name="NVIDIA H200", count=2, busy=0.354,
        memory_bytes=150_000_000_000, free_bytes=138_000_000_000,
    )  # fmt: skip
    missing = Device(kind=DeviceKind.CPU, fault="this Triton can't use a GPU: the driver has none")
    reports = (reported("127.0.0.1:8001", gpu), reported("127.0.0.1:8004", missing))
    shown = text(status_picture.picture(RUNNING, (), NOW, reports), width).splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("  Triton "))
    told = " ".join(" ".join(shown[at + 1 : at + 5]).split())
    assert told.startswith(
        "on 2 NVIDIA H200, 12 of 150 GB of each in use, busy 35 % of the time Triton-2"
    )
    assert "this Triton can't use a GPU: the driver has none" in " ".join(shown)
    assert max(map(cell_len, shown)) <= width


def test_a_triton_that_ended_by_itself_is_told_for_an_hour() -> None:
    report = reported("127.0.0.1:8001", Device())
    for ended_at, told in ((0.0, False), (NOW - 125.0, True), (NOW - 3601.0, False)):
        reports = (report.model_copy(update={"ended_at": ended_at}),)
        shown = text(status_picture.picture(RUNNING, (), NOW, reports), 120)
        assert ("on the CPU; it ended by itself 2m5s ago and was started again" in shown) is told


def test_what_was_lost_is_told_below_what_is_counted() -> None:
    told = CountingHealth("counted", "all traffic is counted", lost="gateways lost 6 events")
    shown = text(status_picture.picture(replace(RUNNING, counting=told), (), NOW), 80)
    assert "Statistics: all traffic is counted.\nLost: gateways lost 6 events." in shown
    assert "Lost" not in text(status_picture.picture(RUNNING, (), NOW), 80)


@pytest.mark.parametrize("details", [False, True])
def test_of_very_many_rejected_versions_the_newest_are_named_and_the_others_counted(
    details: bool,
) -> None:
    rejected = tuple(
        Rejection(version=str(n), options="o", reason="why" if n > 480 else "", at=float(n))
        for n in range(1, 501)
    )
    endpoint = settled()
    status = endpoint.status.model_copy(update={"rejected": rejected})
    many = endpoint.model_copy(update={"status": status})
    shown = text(status_picture.picture(RUNNING, (many,), NOW, details=details), 80)
    assert "500" in shown
    assert "480 earlier" in " ".join(shown.split())
    assert len(shown.splitlines()) < 50


def test_the_history_that_the_documentation_shows_is_one_that_is_drawn() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rollout.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^(time \(UTC\).*?)^```", page, re.MULTILINE | re.DOTALL)
    heading, *events = shown.splitlines(keepends=True)
    drawn = text(pictures(details=False)["rollout-history"], 80)
    assert drawn.startswith(heading)
    assert "".join(events) in drawn


def test_pools_are_shown_where_there_are_several_and_what_is_amiss_with_them() -> None:
    note = "no Triton of the pool gpu has given a sign of life; the pools cpu have Tritons"
    status = ENDPOINTS[-1].status.model_copy(
        update={"pool": "cpu", "next_pool": "gpu", "notes": (note,)}
    )
    moving = ENDPOINTS[-1].model_copy(update={"status": status})
    tritons = RECORD.tritons[0], RECORD.tritons[1].model_copy(update={"pool": "gpu"})
    running = replace(RUNNING, record=RECORD.model_copy(update={"tritons": tritons}))
    shown = text(status_picture.picture(running, (moving,), NOW), 120)
    assert "pool cpu, moves to the pool gpu" in shown
    assert note in shown
    (line,) = [each for each in shown.splitlines() if "Triton-2" in each]
    assert line.rstrip().endswith("pool gpu")
    assert "pool" not in text(status_picture.picture(RUNNING, ENDPOINTS, NOW), 120)


def test_a_model_that_sleeps_says_how_long_and_one_without_room_why_it_does_not_come_back() -> None:
    endpoint = settled()
    stable = endpoint.status.stable
    assert stable is not None
    asleep = endpoint.model_copy(
        update={"status": endpoint.status.model_copy(update={"asleep": NOW - 7200.0})}
    )
    sleeps = LoaderReport(
        loader="triton-0", triton_grpc="t:1", at=NOW, ready=True, asleep={stable.package: 4.0}
    )
    shown = text(Group(endpoint_rows((asleep,), NOW, (sleeps,))), 120)
    assert "asleep for 2h, as it was idle: it comes back with the next caller in about 4 s" in (
        " ".join(shown.split())
    )
    failure = LoadFailure(ref=stable, reason="it needs some 800 MB of memory", by_version=False)
    full = sleeps.model_copy(update={"failed": (failure,)})
    shown = " ".join(text(Group(endpoint_rows((asleep,), NOW, (sleeps, full))), 120).split())
    assert "does not come back: triton-0 says it needs some 800 MB of memory" in shown
    assert "as it was idle" not in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_waited_for_stands_below_with_how_long_and_what_to_do_and_is_told_once(
    width: int,
) -> None:
    lacks = "MLflow has no registered model typo"
    candidate = Candidate(version="2", phase=Phase.BLOCKED, reason="no space left")
    waits = (
        Wait(cause=WaitsFor.MODEL, since=NOW - 720, what=lacks),
        Wait(cause=WaitsFor.RETRY, since=NOW - 60, version="2"),
    )
    one = settled()
    status = EndpointStatus(candidate=candidate, waits=waits, notes=("a note",))
    seen = text(Group(endpoint_rows([one.model_copy(update={"status": status})], NOW)), width)
    words = " ".join(seen.split())
    assert f"waits 12m: {lacks}; to do: register it, or change spec.model" in words
    assert "version 2 waits 1m; to do: put that right" in words
    assert words.count("no space left") == 1
    assert "a note" in words


def test_an_endpoint_that_no_controller_has_looked_at_says_so() -> None:
    fresh = settled().model_copy(update={"status": EndpointStatus()})
    words = " ".join(text(Group(endpoint_rows([fresh], NOW)), 120).split())
    assert "waits: the controller has not looked at it yet; to do: see with headrace" in words

"""The script that probes and helm test run: sentences of what is wrong."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from helm_chart import CHART
from http_server import Answer, http_server
from loaded_script import loaded

FILE = CHART / "files" / "checks" / "check.py"
CONNECTED = "headrace_fold_connected 1.0\nheadrace_evaluate_connected 1.0\n"
AWAY = CONNECTED.replace("1.0", "0.0")


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return loaded(FILE)


class Answers:
    """What the part answers at each path."""

    def __init__(self) -> None:
        self.at: dict[str, tuple[int, str]] = {}
        self.url = ""


@pytest.fixture
def part() -> Iterator[Answers]:
    answers = Answers()
    nothing = (404, "no such page")
    with http_server(lambda asked: Answer(*answers.at.get(asked.path, nothing))) as answers.url:
        yield answers


NOBODY = "127.0.0.1:1"


def test_a_fold_worker_with_kafka_is_well(check: ModuleType, part: Answers) -> None:
    part.at["/metrics"] = (200, CONNECTED)
    assert check.fold(NOBODY, f"{part.url}/metrics") == ""


def test_a_fold_worker_that_is_connected_and_reads_nothing_is_not_well(
    check: ModuleType, part: Answers
) -> None:
    part.at["/metrics"] = (200, f"{CONNECTED}headrace_fold_stalled_seconds 12.0\n")
    assert check.fold(NOBODY, f"{part.url}/metrics") == ""
    part.at["/metrics"] = (200, f"{CONNECTED}headrace_fold_stalled_seconds 95.0\n")
    assert "has read none of its own for 95 s" in check.fold(NOBODY, f"{part.url}/metrics")


def test_a_fold_worker_that_kafka_refuses_names_the_secret_to_look_at(
    check: ModuleType, part: Answers
) -> None:
    part.at["/metrics"] = (200, AWAY)
    broker = part.url.removeprefix("http://")  # anything that takes connections
    assert "look at kafka.existingSecret" in check.fold(f"{NOBODY},{broker}", f"{part.url}/metrics")


def test_a_fold_worker_without_kafka_names_the_brokers_and_the_value_to_look_at(
    check: ModuleType, part: Answers
) -> None:
    part.at["/metrics"] = (200, AWAY)
    said = check.fold(NOBODY, f"{part.url}/metrics")
    assert f"Kafka at {NOBODY} does not take connections" in said
    assert "Look at kafka.bootstrapServers" in said


def test_a_fold_worker_that_is_away_is_said_to_be(check: ModuleType) -> None:
    assert "does not answer" in check.fold(NOBODY, "http://127.0.0.1:1/metrics")


@pytest.mark.parametrize(
    ("ready", "metrics", "said"),
    [
        ((200, "ready\n"), CONNECTED, ""),
        ((503, "the past is being read\n"), CONNECTED, "not ready: the past is being read"),
        ((503, "the past is being read\n"), AWAY, "look at kafka.bootstrapServers"),
    ],
)
def test_the_evaluate_role_says_what_it_waits_for(
    check: ModuleType, part: Answers, ready: tuple[int, str], metrics: str, said: str
) -> None:
    part.at = {"/readyz": ready, "/metrics": (200, metrics)}
    found = check.evaluate(part.url)
    assert said in found
    assert bool(said) == bool(found)


NOTHING = "http://127.0.0.1:1"


def test_a_triton_that_answers_no_inference_is_started_anew(
    check: ModuleType, part: Answers
) -> None:
    said = "Triton answered no inference on m-v1 within 10 s"
    part.at = {"/triton/livez": (503, f"{said}\n"), "/v2/health/live": (200, "")}
    assert check.triton(part.url, part.url) == said


def test_a_loader_that_is_away_does_not_end_triton(check: ModuleType, part: Answers) -> None:
    part.at = {"/v2/health/live": (200, "")}
    assert check.triton(NOTHING, part.url) == ""
    assert check.triton(part.url, part.url) == ""  # one that has no such page


def test_a_triton_that_does_not_even_say_that_it_lives_is_started_anew(
    check: ModuleType, part: Answers
) -> None:
    part.at = {"/triton/livez": (200, "ok\n")}
    assert "does not say that it lives" in check.triton(part.url, NOTHING)


def test_helm_test_names_every_part_that_is_wrong(
    check: ModuleType, part: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    part.at = {"/readyz": (200, "ready"), "/health": (500, "broken")}
    address = part.url.removeprefix("http://")
    parts = [
        f"gateway={part.url}/readyz",
        f"mlflow={part.url}/health",
        f"kafka=tcp://{address}",
        "triton=tcp://127.0.0.1:1",
    ]
    wrong = check.everything(parts, within_seconds=0.0)
    assert f"mlflow at {part.url}/health answers 500: broken" in wrong
    assert "triton at 127.0.0.1:1 does not take connections" in wrong
    well = capsys.readouterr().out
    assert "gateway is well" in well
    assert "kafka is well" in well


def test_helm_test_passes_where_all_is_well(check: ModuleType, part: Answers) -> None:
    part.at = {"/readyz": (200, "ready")}
    assert check.main(["all", f"gateway={part.url}/readyz"]) == 0


def test_helm_test_waits_for_a_part_that_still_starts(check: ModuleType, part: Answers) -> None:
    part.at = {"/readyz": (503, "not yet")}

    def turn_ready(_: float) -> None:
        part.at = {"/readyz": (200, "ready")}

    assert check.everything([f"gateway={part.url}/readyz"], wait=turn_ready) == ""


def test_an_mlflow_that_asks_who_is_there_is_there(check: ModuleType, part: Answers) -> None:
    part.at = {"/health": (401, "who are you")}
    assert check.main(["all", f"mlflow={part.url}/health"]) == 0


def test_the_program_says_what_is_wrong_and_ends_with_1(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # At the program's own address a stack of `headrace up` may answer.
    monkeypatch.setattr(check, "ask", lambda url: (0, f"{url} refuses"))
    assert check.main(["fold", NOBODY]) == 1
    assert "the fold worker does not answer" in capsys.readouterr().out


def test_it_says_how_it_is_used(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 1
    assert "NAME=URL" in capsys.readouterr().out

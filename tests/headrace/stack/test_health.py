"""What the status says of each part and of counting, by asking, not by whether a process lives."""

import json
import socket
from collections.abc import Callable

import pytest

from headrace.stack import health

Serve = Callable[[int, str], str]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, "ok", ""),
        (200, json.dumps({"ready": True, "notes": []}), ""),
        (200, json.dumps({"ready": True, "notes": ["a", "b"]}), "answers, but: a; b"),
        (503, "no loop has turned for 90 s\n", "is not ready: no loop has turned for 90 s"),
        (503, "", "is not ready: it answers 503"),
        (503, json.dumps({"ready": False, "notes": ["a", "b"]}), "is not ready: a; b"),
        (503, json.dumps({"ready": False, "notes": []}), "is not ready: it answers 503"),
    ],
)
def test_a_part_is_told_as_it_says_that_it_is(
    serve: Serve, status: int, body: str, said: str
) -> None:
    assert health.ask({"part": serve(status, body)}, seconds=60) == {"part": said}


def test_a_part_that_nobody_hears_of_is_not_well() -> None:
    (told,) = health.ask({"part": "http://127.0.0.1:1"}).values()
    assert told.startswith("does not answer: ")


def test_parts_that_hang_are_waited_for_together() -> None:
    with socket.create_server(
        ("127.0.0.1", 0), backlog=64
    ) as mute:  # it takes calls, and is silent
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        told = health.ask({str(number): url for number in range(20)}, seconds=0.2)
    assert set(told.values()) == {"does not answer within 0.2 s"}


def test_nobody_is_asked_where_nothing_runs() -> None:
    assert health.ask({}) == {}


def test_what_the_evaluate_role_found_is_told(serve: Serve) -> None:
    found = {"state": "stalled", "since": 5.0, "messages": 7, "said": "traffic is not counted"}
    told = health.ask_counting(serve(200, json.dumps(found)), seconds=60).document()
    nothing = {"missing_messages": 0, "lost_events": 0, "silent_gateways": 0, "lost": ""}
    assert told == found | nothing


@pytest.mark.parametrize(("status", "body"), [(503, "{}"), (200, "no JSON"), (200, "{}")])
def test_an_answer_that_tells_nothing_is_no_peace(serve: Serve, status: int, body: str) -> None:
    told = health.ask_counting(serve(status, body))
    assert told.state == "unknown"
    assert told.said.startswith("the evaluate role does not say whether traffic is counted")


def test_nobody_answering_is_no_peace() -> None:
    assert health.ask_counting("http://127.0.0.1:1").state == "unknown"

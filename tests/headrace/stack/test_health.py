"""What the status says of each part, by asking it."""

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
        (503, "no loop has turned for 90 s\n", "is not ready: no loop has turned for 90 s"),
        (503, "", "is not ready: it answers 503"),
        (503, json.dumps({"ready": False, "notes": ["a", "b"]}), "is not ready: a; b"),
        (503, json.dumps({"ready": False, "notes": []}), "is not ready: it answers 503"),
    ],
)
def test_a_part_is_told_as_it_says_that_it_is(
    serve: Serve, status: int, body: str, said: str
) -> None:
    assert health.ask({"part": serve(status, body)}) == {"part": said}


def test_a_part_that_nobody_hears_of_is_not_well() -> None:
    (told,) = health.ask({"part": "http://127.0.0.1:1"}).values()
    assert told.startswith("does not answer: ")


def test_parts_that_hang_are_waited_for_together() -> None:
    with socket.create_server(
        ("127.0.0.1", 0), backlog=64
    ) as mute:  # it takes calls, and is silent
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        told = health.ask({str(number): url for number in range(20)})
    assert set(told.values()) == {f"does not answer within {health.SECONDS:g} s"}


def test_nobody_is_asked_where_nothing_runs() -> None:
    assert health.ask({}) == {}

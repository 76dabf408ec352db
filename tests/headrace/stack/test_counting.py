"""What the status says of counting, by asking and not by whether a process lives."""

import json
from collections.abc import Callable

import pytest

from headrace.stack import counting

Serve = Callable[[int, str], str]


def test_what_the_evaluate_role_found_is_told(serve: Serve) -> None:
    found = {"state": "stalled", "since": 5.0, "messages": 7, "said": "traffic is not counted"}
    assert counting.ask(serve(200, json.dumps(found))).document() == found


@pytest.mark.parametrize(("status", "body"), [(503, "{}"), (200, "no JSON"), (200, "{}")])
def test_an_answer_that_tells_nothing_is_no_peace(serve: Serve, status: int, body: str) -> None:
    told = counting.ask(serve(status, body))
    assert told.state == "unknown"
    assert told.said.startswith("the evaluate role does not say whether traffic is counted")


def test_nobody_answering_is_no_peace() -> None:
    assert counting.ask("http://127.0.0.1:1").state == "unknown"

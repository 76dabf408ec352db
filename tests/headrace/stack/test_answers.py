from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_server import Answer, Request, http_server

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Rejection,
    Route,
    Wait,
    WaitsFor,
)
from contracts.model import ModelRef
from headrace.stack import answers
from headrace.stack.state import Home, claim_home

REF = ModelRef(model="tone", version="1", package="0" * 64)
STABLE = EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=REF, weight=100),))
REJECTED = EndpointStatus(
    rejected=(Rejection(version="1", options="o", reason="it holds a pickle", at=1.0),)
)


def home_with(root: Path, name: str, status: EndpointStatus) -> Home:
    with claim_home(root) as home:
        endpoint = ModelEndpoint(
            metadata=Metadata(name=name), spec=EndpointSpec(model="tone"), status=status
        )
        (home.endpoints / f"{name}.json").write_text(endpoint.model_dump_json(by_alias=True))
        return home


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            EndpointStatus(waits=(Wait(cause=WaitsFor.MODEL, since=1.0, what="no model typo"),)),
            "Waiting: no model typo",
        ),
        (EndpointStatus(), "Waiting"),
        (STABLE, "version 1 Serving"),
        (REJECTED, "version 1 Rejected: it holds a pickle"),
        (
            EndpointStatus(candidate=Candidate(version="2", phase=Phase.BLOCKED, reason="no room")),
            "version 2 Blocked: no room",
        ),
    ],
)
def test_where_the_newest_version_is_takes_a_few_words(status: EndpointStatus, said: str) -> None:
    assert answers.in_words(status) == said


def test_only_endpoints_with_a_version_are_expected_to_answer(tmp_path: Path) -> None:
    home_with(tmp_path, "tone", STABLE)
    home = home_with(tmp_path, "mood", EndpointStatus())
    assert answers.list_served(home) == {"tone"}


def test_an_endpoint_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    home = home_with(tmp_path, "tone", STABLE)
    (home.endpoints / "mood.json").write_text("{")
    assert set(answers.read(home)) == {"tone"}


@contextmanager
def gateway(*statuses: int, asked: list[str]) -> Iterator[str]:
    """A server that answers with one status after the other, the last one from then on."""

    def answer(request: Request) -> Answer:
        status = statuses[min(len(asked), len(statuses) - 1)]
        asked.append(f"{request.method} {request.path}")
        return Answer(status)

    with http_server(answer) as url:
        yield url


async def unready(home: Home, status: int, within_seconds: float = 60) -> dict[str, str]:
    with gateway(status, asked=[]) as url:
        names = set(answers.read(home))
        return await answers.wait([url], home, names, lambda _: None, within_seconds=within_seconds)


@pytest.mark.parametrize("status", [200, 401])
async def test_waiting_ends_when_the_endpoint_answers(tmp_path: Path, status: int) -> None:
    assert await unready(home_with(tmp_path, "tone", STABLE), status) == {}


async def test_one_whose_only_version_was_rejected_is_not_waited_for(tmp_path: Path) -> None:
    left = await unready(home_with(tmp_path, "tone", REJECTED), 404)
    assert left == {"tone": "version 1 Rejected: it holds a pickle"}


async def test_what_does_not_answer_in_time_is_named_with_where_it_is(tmp_path: Path) -> None:
    home = home_with(tmp_path, "tone", STABLE)
    left = await unready(home, 503, within_seconds=0.1)
    assert left == {"tone": "version 1 Serving"}


async def test_no_prediction_is_asked_for_before_the_gateway_says_that_it_is_ready(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    home = home_with(tmp_path, "tone", STABLE)
    with gateway(503, 200, asked=asked) as url:
        await answers.wait([url], home, {"tone"}, lambda _: None, within_seconds=60)
    ready = "GET /v2/models/tone/ready"
    assert asked == [ready, ready, "POST /endpoints/tone"]


async def test_an_endpoint_answers_once_every_gateway_answers_for_it(tmp_path: Path) -> None:
    quick: list[str] = []
    slow: list[str] = []
    home = home_with(tmp_path, "tone", STABLE)
    with gateway(200, asked=quick) as first, gateway(503, 200, asked=slow) as second:
        left = await answers.wait(
            [first, second], home, {"tone"}, lambda _: None, within_seconds=60
        )
    assert left == {}
    assert quick == ["GET /v2/models/tone/ready", "POST /endpoints/tone"]  # asked once, then known
    assert slow[-1] == "POST /endpoints/tone"
    assert len(slow) == 3

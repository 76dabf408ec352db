"""The page's routes: what they serve, under which rules, and how often they compute."""

import re
from importlib import resources

import msgspec
import pytest
import ui_world
from fastapi import FastAPI
from fastapi.testclient import TestClient

from contracts.endpoint import ModelEndpoint
from stats.evaluation.board import Board
from stats.ui.app import FILES, FRESH_SECONDS, HEADERS, MOST_KEPT, Documents, router
from stats.ui.view import Links, ViewRequest

NOW = 1_795_275_506.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Boards:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Board:
        self.asked += 1
        return Board(connected=True)


@pytest.fixture
def client() -> TestClient:
    world = ui_world.untouched(NOW)
    app = FastAPI()
    app.include_router(router(lambda: world.endpoints, lambda: world.board, Links(), lambda: NOW))
    return TestClient(app)


def test_ui_leads_to_the_page(client: TestClient) -> None:
    answer = client.get("/ui")
    assert answer.status_code == 200
    assert str(answer.url).endswith("/ui/")
    assert "<!doctype html>" in answer.text


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_is_served_under_a_policy_that_lets_nothing_else_in(
    client: TestClient, name: str
) -> None:
    answer = client.get(f"/ui/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == FILES[name]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_lies_in_the_folder_is_what_is_served() -> None:
    folder = resources.files("stats.ui").joinpath("page")
    assert {entry.name for entry in folder.iterdir()} == set(FILES)


def test_every_module_that_a_module_asks_for_is_served() -> None:
    folder = resources.files("stats.ui").joinpath("page")
    for name in FILES:
        if name.endswith(".js"):
            asked = re.findall(r'from "\./([a-z.]+)"', folder.joinpath(name).read_text())
            assert set(asked) <= set(FILES), name


def test_no_file_asks_for_anything_from_elsewhere_or_sets_markup() -> None:
    folder = resources.files("stats.ui").joinpath("page")
    for name in FILES:
        source = folder.joinpath(name).read_text()
        addresses = set(re.findall(r"https?://[a-z0-9.]+", source))
        assert addresses <= {"http://www.w3.org", "http://127.0.0.1"}, name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source
        )


@pytest.mark.parametrize("path", ["../app.py", "..%2fapp.py", "%2e%2e/view.py", "nothing.js"])
def test_nothing_but_the_page_is_served(client: TestClient, path: str) -> None:
    assert client.get(f"/ui/{path}").status_code == 404


def test_nothing_can_be_written(client: TestClient) -> None:
    for path in ("/ui/", "/ui/view.json"):
        assert client.post(path).status_code == 405
        assert client.delete(path).status_code == 405


def test_the_document_is_of_what_was_asked_for(client: TestClient) -> None:
    answer = client.get("/ui/view.json", params={"endpoint": "sentiment", "span": "1h"})
    assert answer.headers["cache-control"] == HEADERS["cache-control"]
    assert answer.json()["detail"]["name"] == "sentiment"
    assert answer.json()["span"] == "1h"
    assert client.get("/ui/view.json", params={"endpoint": "x" * 64}).status_code == 422


def test_many_lookers_cost_one_computation_a_second() -> None:
    boards, clock = Boards(), Clock()
    documents = Documents(tuple, boards, Links(), clock)
    for _ in range(5):
        documents.document(ViewRequest())
    assert boards.asked == 1
    clock.now += FRESH_SECONDS
    made = documents.document(ViewRequest())
    assert boards.asked == 2
    assert msgspec.json.decode(made)["now"] == clock.now


def test_a_clock_set_back_does_not_freeze_the_page() -> None:
    boards, clock = Boards(), Clock()
    documents = Documents(tuple, boards, Links(), clock)
    documents.document(ViewRequest())
    clock.now -= 3600
    documents.document(ViewRequest())
    assert boards.asked == 2


def test_asking_for_ever_other_endpoints_keeps_a_bounded_number() -> None:
    boards, clock = Boards(), Clock()
    documents = Documents(tuple, boards, Links(), clock)
    for number in range(3 * MOST_KEPT):
        documents.document(ViewRequest(str(number)))
    documents.document(ViewRequest(str(3 * MOST_KEPT - 1)))  # is kept
    assert boards.asked == 3 * MOST_KEPT
    documents.document(ViewRequest("0"))  # has had to go
    assert boards.asked == 3 * MOST_KEPT + 1


def test_the_endpoint_that_is_looked_at_is_shown_with_its_whole_status() -> None:
    world = ui_world.untouched(NOW)
    asked: list[str] = []

    def whole(endpoint: ModelEndpoint) -> ModelEndpoint:
        asked.append(endpoint.name)
        notes = ("from the record",)
        status = endpoint.status.model_copy(update={"notes": notes})
        return endpoint.model_copy(update={"status": status})

    documents = Documents(
        lambda: world.endpoints, lambda: world.board, Links(), lambda: NOW, whole=whole
    )
    name = max(endpoint.name for endpoint in world.endpoints)
    found = msgspec.json.decode(documents.document(ViewRequest(name)))
    assert found["detail"]["notes"] == ["from the record"]
    assert asked == [name]

"""The page over several evaluate processes: each endpoint as its owner knows it."""

import json
from dataclasses import replace
from typing import Any

import httpx
import ui_world
from fastapi import FastAPI
from fastapi.testclient import TestClient

from contracts.endpoint import ModelEndpoint
from stats.evaluation.sharding import Shard, owner
from stats.ui.app import router
from stats.ui.shards import Shards
from stats.ui.view import Links

NOW = 1_795_275_506.0
OF = 3
NAMES = [f"e{number}" for number in range(9)]


class Process:
    """A shard that knows its own endpoints alone, and asks the others without a network."""

    def __init__(self, number: int, all_of_them: "list[Process]") -> None:
        world = ui_world.rolling(NOW)
        (known,) = list(world.board.endpoints())[:1]
        shard = Shard(number, OF)
        self.away = False
        self.asked = 0
        board = replace(
            world.board,
            by_endpoint={
                name: replace(world.board.by_endpoint[known], name=name)
                for name in NAMES
                if shard.owns(name)
            },
        )
        (like, *_) = [each for each in world.endpoints if each.name == known]
        endpoints = [_named(like, name) for name in NAMES]

        def ask(other: int, path: str, query: dict[str, str]) -> bytes:
            process = all_of_them[other]
            process.asked += 1
            if process.away:
                raise httpx.ConnectError("away")
            return process.client.get(f"/{path}", params=query).raise_for_status().content

        self.shards = Shards(shard, "", ask=ask)
        app = FastAPI()
        app.include_router(
            router(lambda: endpoints, lambda: board, Links(), lambda: NOW, shards=self.shards)
        )
        self.client = TestClient(app)

    def page(self, endpoint: str = "", **query: str) -> dict[str, Any]:
        answer = self.client.get("/ui/view.json", params={"endpoint": endpoint, **query})
        found: dict[str, Any] = json.loads(answer.raise_for_status().content)
        return found


def _named(endpoint: ModelEndpoint, name: str) -> ModelEndpoint:
    metadata = endpoint.metadata.model_copy(update={"name": name})
    return endpoint.model_copy(update={"metadata": metadata})


def processes() -> list[Process]:
    made: list[Process] = []
    made.extend(Process(number, made) for number in range(OF))
    return made


def traffic(document: dict[str, Any]) -> set[str]:
    """Endpoints with traffic in the list."""
    return {each["name"] for each in document["endpoints"] if any(each["spark"])}


def test_whoever_is_asked_shows_every_endpoint_as_its_owner_knows_it() -> None:
    made = processes()
    for process in made:
        assert traffic(process.page()) == set(NAMES)
        for name in NAMES:
            detail = process.page(name)["detail"]
            assert detail["name"] == name
            assert detail["series"]


def test_asked_alone_a_process_shows_its_own_and_asks_nobody() -> None:
    made = processes()
    mine = {name for name in NAMES if owner(name, OF) == 1}
    assert traffic(made[1].page(alone="1")) == mine
    assert [each.asked for each in made] == [0, 0, 0]


def test_without_one_process_the_others_are_shown() -> None:
    made = processes()
    made[2].away = True
    lost = {name for name in NAMES if owner(name, OF) == 2}
    document = made[0].page(min(lost))
    assert traffic(document) == set(NAMES) - lost
    assert [each["name"] for each in document["endpoints"]] == NAMES
    assert document["detail"]["name"] == min(lost)

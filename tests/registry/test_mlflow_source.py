"""What is read from MLflow and set there. The real server is in tests/real."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from mlflow_answers import MlflowAnswers, serve

from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow_rest import MlflowRest
from registry.mlflow_source import MlflowRegistry, RegisteredModel, RegisteredVersion


@pytest.fixture
def house() -> Iterator[MlflowAnswers]:
    with serve() as made:
        yield made


def version(number: str, **more: Any) -> dict[str, Any]:
    return {"name": "m", "version": number, "status": "READY", "source": "s", **more}


async def test_every_page_of_models_is_read(house: MlflowAnswers) -> None:
    def answer(path: str, query: dict[str, str]) -> tuple[int, Any]:
        assert path == "/api/2.0/mlflow/registered-models/search"
        if "page_token" not in query:
            model = {"name": "a", "aliases": [{"alias": "champion", "version": "3"}]}
            return 200, {"registered_models": [model], "next_page_token": "next"}
        return 200, {"registered_models": [{"name": "b", "last_updated_timestamp": 5}]}

    house.answer = answer
    assert await MlflowRegistry(house.rest()).models() == (
        RegisteredModel("a", 0, {"champion": "3"}),
        RegisteredModel("b", 5, {}),
    )


async def test_versions_come_newest_first_by_number_and_only_where_ready(
    house: MlflowAnswers,
) -> None:
    found = [version("9"), version("10"), version("11", status="PENDING_REGISTRATION")]
    house.answer = lambda path, query: (200, {"model_versions": found})
    versions = await MlflowRegistry(house.rest()).versions("it's")
    assert [item.number for item in versions] == ["10", "9"]
    assert house.asked[0][1]["filter"] == "name='it''s'"


async def test_a_number_that_was_registered_anew_has_another_identity(house: MlflowAnswers) -> None:
    found = [version("1", creation_timestamp=1, run_id="r")]
    house.answer = lambda path, query: (200, {"model_versions": found})
    (first,) = await MlflowRegistry(house.rest()).versions("m")
    found[0]["creation_timestamp"] = 2
    (second,) = await MlflowRegistry(house.rest()).versions("m")
    assert first.identity != second.identity


async def test_a_tag_and_an_alias_are_posted(house: MlflowAnswers) -> None:
    registry = MlflowRegistry(house.rest())
    await registry.set_tag(RegisteredVersion("m", "1", "i"), "key", "value")
    await registry.set_alias("m", "champion", "1")
    assert house.posted == [
        {"name": "m", "version": "1", "key": "key", "value": "value"},
        {"name": "m", "version": "1", "alias": "champion"},
    ]


async def test_credentials_are_sent(house: MlflowAnswers) -> None:
    await MlflowRegistry(house.rest(authorization="Bearer t")).models()
    assert house.authorizations == ["Bearer t"]


@pytest.mark.parametrize("status", [400, 403, 404])
async def test_what_mlflow_will_not_write_is_told_apart_from_its_absence(
    house: MlflowAnswers, status: int
) -> None:
    house.answer = lambda path, query: (status, {"message": "the alias v1 is reserved"})
    with pytest.raises(SourceRefusedError, match="is reserved"):
        await MlflowRegistry(house.rest()).set_alias("m", "v1", "1")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_mlflow_can_not_write_now_is_tried_again(
    house: MlflowAnswers, status: int
) -> None:
    house.answer = lambda path, query: (status, {})
    with pytest.raises(SourceUnavailableError):
        await MlflowRegistry(house.rest()).set_alias("m", "champion", "1")


async def test_a_model_that_is_gone_has_no_versions(house: MlflowAnswers) -> None:
    house.answer = lambda path, query: (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})
    assert await MlflowRegistry(house.rest()).versions("m") == ()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(500, {}, "answered 500"), (401, {}, "answered 401"), (200, b"<html>", "does not answer"),
     (200, [1], "no object")],
)  # fmt: skip
async def test_what_is_no_answer_is_never_an_empty_registry(
    house: MlflowAnswers, status: int, body: object, words: str
) -> None:
    house.answer = lambda path, query: (status, body)
    with pytest.raises(SourceUnavailableError, match=words):
        await MlflowRegistry(house.rest()).models()


async def test_a_server_that_hangs_is_given_up(house: MlflowAnswers) -> None:
    release = Event()

    def hang(path: str, query: dict[str, str]) -> tuple[int, Any]:
        release.wait(20)
        return 200, {}

    house.answer = hang
    try:
        with pytest.raises(SourceUnavailableError):
            await MlflowRegistry(house.rest(timeout=0.2)).models()
    finally:
        release.set()


async def test_a_server_that_is_down_is_said_so() -> None:
    registry = MlflowRegistry(
        MlflowRest("http://127.0.0.1:9", authorization="", timeout_seconds=1.0)
    )
    with pytest.raises(SourceUnavailableError, match="does not answer"):
        await registry.models()


@pytest.mark.parametrize("status", [200, 500])
async def test_a_server_that_dies_in_the_middle_of_its_answer_is_away(
    house: MlflowAnswers, status: int
) -> None:
    house.answer = lambda path, query: (status, {"registered_models": []})
    house.missing = 5
    with pytest.raises(SourceUnavailableError, match="MLflow at http"):
        await MlflowRegistry(house.rest()).models()

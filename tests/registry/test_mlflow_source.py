"""MLflow's REST interface, as it answers and as it fails. The real server is in tests/real."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from registry.errors import SourceUnavailableError
from registry.mlflow_source import MlflowRegistry, RegisteredModel, RegisteredVersion

Answer = Callable[[str, dict[str, str]], tuple[int, Any]]


class House:
    """A server whose answers a test sets."""

    def __init__(self) -> None:
        self.answer: Answer = lambda path, query: (200, {})
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.posted: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.uri = ""

    def registry(self, timeout: float = 5.0, authorization: str = "") -> MlflowRegistry:
        return MlflowRegistry(self.uri, authorization=authorization, timeout_seconds=timeout)


@pytest.fixture
def house() -> Iterator[House]:
    made = House()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            made.asked.append((parts.path, query))
            made.authorizations.append(self.headers["Authorization"])
            status, body = made.answer(parts.path, query)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            made.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def version(number: str, **more: Any) -> dict[str, Any]:
    return {"name": "m", "version": number, "status": "READY", "source": "s", **more}


async def test_every_page_of_models_is_read(house: House) -> None:
    def answer(path: str, query: dict[str, str]) -> tuple[int, Any]:
        assert path == "/api/2.0/mlflow/registered-models/search"
        if "page_token" not in query:
            model = {"name": "a", "aliases": [{"alias": "champion", "version": "3"}]}
            return 200, {"registered_models": [model], "next_page_token": "next"}
        return 200, {"registered_models": [{"name": "b", "last_updated_timestamp": 5}]}

    house.answer = answer
    assert await house.registry().models() == (
        RegisteredModel("a", 0, {"champion": "3"}),
        RegisteredModel("b", 5, {}),
    )


async def test_versions_come_newest_first_by_number_and_only_where_ready(house: House) -> None:
    found = [version("9"), version("10"), version("11", status="PENDING_REGISTRATION")]
    house.answer = lambda path, query: (200, {"model_versions": found})
    versions = await house.registry().versions("it's")
    assert [item.number for item in versions] == ["10", "9"]
    assert house.asked[0][1]["filter"] == "name='it''s'"


async def test_a_number_that_was_registered_anew_has_another_identity(house: House) -> None:
    found = [version("1", creation_timestamp=1, run_id="r")]
    house.answer = lambda path, query: (200, {"model_versions": found})
    (first,) = await house.registry().versions("m")
    found[0]["creation_timestamp"] = 2
    (second,) = await house.registry().versions("m")
    assert first.identity != second.identity


async def test_a_tag_is_posted_and_cut_to_what_mlflow_stores(house: House) -> None:
    await house.registry().set_tag(RegisteredVersion("m", "1", "i"), "key", "x" * 9000)
    (body,) = house.posted
    assert (body["name"], body["version"], body["key"], len(body["value"])) == (
        "m",
        "1",
        "key",
        500,
    )


async def test_credentials_are_sent(house: House) -> None:
    await house.registry(authorization="Bearer t").models()
    assert house.authorizations == ["Bearer t"]


async def test_a_version_that_is_gone_is_no_error(house: House) -> None:
    house.answer = lambda path, query: (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})
    await house.registry().set_tag(RegisteredVersion("m", "1", "i"), "key", "value")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(500, {}, "answered 500"), (401, {}, "answered 401"), (200, b"<html>", "does not answer"),
     (200, [1], "no object")],
)  # fmt: skip
async def test_what_is_no_answer_is_never_an_empty_registry(
    house: House, status: int, body: object, words: str
) -> None:
    house.answer = lambda path, query: (status, body)
    with pytest.raises(SourceUnavailableError, match=words):
        await house.registry().models()


async def test_a_server_that_hangs_is_given_up(house: House) -> None:
    release = Event()

    def hang(path: str, query: dict[str, str]) -> tuple[int, Any]:
        release.wait(20)
        return 200, {}

    house.answer = hang
    try:
        with pytest.raises(SourceUnavailableError):
            await house.registry(timeout=0.2).models()
    finally:
        release.set()


async def test_a_server_that_is_down_is_said_so() -> None:
    registry = MlflowRegistry("http://127.0.0.1:9", authorization="", timeout_seconds=1.0)
    with pytest.raises(SourceUnavailableError, match="does not answer"):
        await registry.models()

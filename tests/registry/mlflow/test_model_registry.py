"""What is read from MLflow and set there: a fake and a real server are held to the same."""

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from fake_mlflow import ARTIFACTS, FakeMlflow, serve
from loop_clocks import ShiftedLoop, runs_on
from own_servers import MlflowProcess

from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.client import ForeignSourceError, MlflowConnection, check_source
from registry.mlflow.model_registry import MlflowRegistry, RegisteredModel, RegisteredVersion

pytestmark = pytest.mark.slow  # imports MLflow: more than a second


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMlflow]:
    with serve(FakeMlflow(tmp_path / "artifacts")) as made:
        yield made


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> MlflowConnection:
    if request.param == "real":
        process: MlflowProcess = request.getfixturevalue("mlflow_server")
        return MlflowConnection(process.url, timeout_seconds=60)
    fake: FakeMlflow = request.getfixturevalue("fake")
    return MlflowConnection(fake.uri, timeout_seconds=60)


def registry(fake: FakeMlflow, timeout: float = 60.0) -> MlflowRegistry:
    return MlflowRegistry(MlflowConnection(fake.uri, timeout_seconds=timeout))


def registered(server: MlflowConnection, count: int = 1) -> tuple[str, str]:
    """A new model with versions of one run; the model's name, and the run's id."""
    name = f"it's {uuid4().hex}"

    def register(client: Any) -> str:
        run = client.create_run("0")
        client.create_registered_model(name)
        for _ in range(count):
            client.create_model_version(name, f"{run.info.artifact_uri}/m", run.info.run_id)
        return str(run.info.run_id)

    return name, server.ask(register)


async def test_versions_come_newest_first_by_number(server: MlflowConnection) -> None:
    name, run_id = registered(server, 11)
    versions = await MlflowRegistry(server).versions(name)
    assert [item.number for item in versions] == [str(number) for number in range(11, 0, -1)]
    assert {item.run_id for item in versions} == {run_id}
    assert {item.model for item in versions} == {name}


async def test_a_tag_and_an_alias_are_set_and_seen(server: MlflowConnection) -> None:
    name, _ = registered(server, 2)
    source = MlflowRegistry(server)
    _, first = await source.versions(name)
    await source.set_tag(first, "headrace.e.verdict", "Promoted")
    await source.set_alias(name, "champion", "1")
    (model,) = [model for model in await source.models() if model.name == name]
    assert model.aliases == {"champion": "1"}
    _, first = await source.versions(name)
    assert first.tags == {"headrace.e.verdict": "Promoted"}


async def test_a_registry_of_more_models_than_fit_into_fifty_pages_is_read_whole(
    fake: FakeMlflow,
) -> None:
    for number in range(10_001):
        name = f"m-{number}"
        fake.models[name] = {"name": name, "last_updated_timestamp": number}
    assert len(await registry(fake).models()) == 10_001
    fake.asked.clear()
    changed = await registry(fake).changed_models(9_900)
    assert {model.changed for model in changed} == set(range(9_900, 10_001))
    assert len(fake.asked) == 1


async def test_what_changed_is_told_by_the_time_of_the_change(server: MlflowConnection) -> None:
    before, _ = registered(server)
    name, run_id = registered(server)
    source = MlflowRegistry(server)
    known = {model.name: model.changed for model in await source.models()}

    def register(client: Any) -> None:
        run = client.get_run(run_id)
        client.create_model_version(name, f"{run.info.artifact_uri}/m", run_id)

    server.ask(register)
    changed = {model.name for model in await source.changed_models(known[name] + 1)}
    assert name in changed
    assert before not in changed


async def test_a_new_version_changes_the_model(server: MlflowConnection) -> None:
    name, run_id = registered(server)
    source = MlflowRegistry(server)
    (before,) = [model for model in await source.models() if model.name == name]
    root = server.ask(lambda client: client.get_run(run_id)).info.artifact_uri
    server.ask(lambda client: client.create_model_version(name, f"{root}/m", run_id))
    (after,) = [model for model in await source.models() if model.name == name]
    assert after.changed > before.changed


async def test_a_file_of_a_run_is_written_over_what_was_there(
    server: MlflowConnection, tmp_path: Path
) -> None:
    _, run_id = registered(server)
    for content in (b"old", b"<html>new"):
        await MlflowRegistry(server).put(run_id, "headrace/e/v2/a file.html", content)
    root = server.ask(lambda client: client.get_run(run_id)).info.artifact_uri
    folder = server.folder(root)
    assert list(folder.files()) == [("headrace/e/v2/a file.html", len(b"<html>new"))]
    folder.fetch("headrace/e/v2/a file.html", tmp_path)
    assert (tmp_path / "headrace/e/v2/a file.html").read_bytes() == b"<html>new"


async def test_a_model_that_is_gone_has_no_versions(server: MlflowConnection) -> None:
    assert await MlflowRegistry(server).versions("nobody") == ()


async def test_what_is_gone_is_a_refusal(server: MlflowConnection) -> None:
    source = MlflowRegistry(server)
    with pytest.raises(SourceRefusedError, match="answered 404"):
        await source.set_tag(RegisteredVersion("nobody", "1", "i"), "key", "value")
    with pytest.raises(SourceRefusedError, match="abc"):
        await source.put("abc", "e.json", b"x")


async def test_every_page_of_models_is_read(fake: FakeMlflow) -> None:
    names = [f"m{number}" for number in range(201)]
    for name in names:
        fake.register(name, "mlflow-artifacts:/v", created=5)
    found = await registry(fake).models()
    assert found == tuple(RegisteredModel(name, 5) for name in names)


async def test_versions_that_are_not_ready_are_none(fake: FakeMlflow) -> None:
    fake.register("m", "mlflow-artifacts:/v")
    fake.versions["m", "1"]["status"] = "PENDING_REGISTRATION"
    assert await registry(fake).versions("m") == ()


async def test_a_number_that_was_registered_anew_has_another_identity(fake: FakeMlflow) -> None:
    fake.register("m", "mlflow-artifacts:/v", run_id="r", created=1)
    (first,) = await registry(fake).versions("m")
    assert first.identity == "1|models:/m-m|r"
    fake.register("m", "mlflow-artifacts:/v", run_id="r", created=2)
    (second,) = await registry(fake).versions("m")
    assert first.identity != second.identity


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"TOKEN": "t"}, "Bearer t"),
        ({"USERNAME": "u", "PASSWORD": "p"}, "Basic dTpw"),
    ],
)
async def test_the_clients_own_variables_sign_in(
    fake: FakeMlflow, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], header: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    await registry(fake).models()
    assert {headers["Authorization"] for headers in fake.headers} == {header}


def test_what_the_client_does_is_settled_here_and_not_by_who_starts_it(
    fake: FakeMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3600")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ssl/ours.pem")
    registry(fake, timeout=1.5)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "2"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "1"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["REQUESTS_CA_BUNDLE"] == "/etc/ssl/ours.pem"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "the alias v1 is reserved"}),
        (403, {"detail": "the alias v1 is reserved"}),  # of a proxy
        (413, b"<html>the alias v1 is reserved"),
    ],
)
async def test_what_mlflow_will_not_write_is_told_apart_from_its_absence(
    fake: FakeMlflow, status: int, body: object
) -> None:
    fake.script = lambda path, query: (status, body)
    with pytest.raises(SourceRefusedError, match=r"MLflow at http.* is reserved"):
        await registry(fake).set_alias("m", "v1", "1")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_mlflow_can_not_write_now_is_tried_again(fake: FakeMlflow, status: int) -> None:
    fake.script = lambda path, query: (status, {})
    with pytest.raises(SourceUnavailableError, match=f"answered {status}"):
        await registry(fake).set_alias("m", "champion", "1")
    assert len(fake.asked) == 2  # once more, at once


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(500, {}, "answered 500"), (401, b"no", "answered 401"), (200, b"<html>", "does not answer"),
     (200, [1], "does not answer"), (200, {"registered_models": 5}, "does not answer")],
)  # fmt: skip
async def test_what_is_no_answer_is_never_an_empty_registry(
    fake: FakeMlflow, status: int, body: object, words: str
) -> None:
    fake.script = lambda path, query: (status, body)
    with pytest.raises(SourceUnavailableError, match=words):
        await registry(fake).models()


@dataclass
class Hanging:
    """A server that does not answer until it is released."""

    fake: FakeMlflow
    asked: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)

    def hang(self, path: str, query: dict[str, str]) -> None:
        self.asked.set()
        self.released.wait(60)


@pytest.fixture
def hanging(fake: FakeMlflow) -> Iterator[Hanging]:
    made = Hanging(fake)
    fake.script = made.hang
    yield made
    made.released.set()


@runs_on(ShiftedLoop)
async def test_a_server_that_hangs_is_given_up(hanging: Hanging) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ShiftedLoop)
    models = asyncio.create_task(registry(hanging.fake, timeout=60).models())
    assert await asyncio.to_thread(hanging.asked.wait, 60)
    loop.shift_seconds += 60
    with pytest.raises(SourceUnavailableError, match="takes too long"):
        await models
    hanging.released.set()


def test_a_thread_that_waits_is_let_go_in_the_end(hanging: Hanging) -> None:
    server = MlflowConnection(hanging.fake.uri, timeout_seconds=0.2)  # a second, for the client
    with pytest.raises(SourceUnavailableError, match="no whole answer came within 1 s"):
        server.ask(lambda client: client.search_registered_models())


async def test_a_server_that_is_down_is_said_so() -> None:
    source = MlflowRegistry(MlflowConnection("http://127.0.0.1:9", timeout_seconds=60))
    with pytest.raises(SourceUnavailableError, match=r"does not answer: .*Connection refused"):
        await source.models()


def test_only_http_addresses_are_taken() -> None:
    with pytest.raises(SourceUnavailableError, match="must begin with http"):
        MlflowConnection("file:///etc", timeout_seconds=1.0)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_server_that_dies_in_the_middle_of_its_answer_is_away(
    fake: FakeMlflow, status: int
) -> None:
    fake.script = lambda path, query: (status, {"registered_models": []})
    fake.missing = 5
    with pytest.raises(SourceUnavailableError, match="MLflow at http"):
        await registry(fake).models()


async def test_files_go_where_they_lie_where_the_server_serves_none(
    fake: FakeMlflow, tmp_path: Path
) -> None:
    fake.log_run("abc", tmp_path.as_uri())
    server = MlflowConnection(fake.uri, timeout_seconds=60, sources=[tmp_path.as_uri()])
    await MlflowRegistry(server).put("abc", "headrace/e.json", b"x")
    assert (tmp_path / "headrace" / "e.json").read_bytes() == b"x"


async def test_nothing_is_written_where_nobody_allowed_it(fake: FakeMlflow, tmp_path: Path) -> None:
    fake.log_run("abc", tmp_path.as_uri())
    with pytest.raises(ForeignSourceError):
        await registry(fake).put("abc", "headrace/e.json", b"x")
    assert not (tmp_path / "headrace").exists()


async def test_the_servers_own_artifact_urls_are_understood(fake: FakeMlflow) -> None:
    fake.log_run("abc", f"{fake.uri}{ARTIFACTS}/1/abc/artifacts")
    await registry(fake).put("abc", "e.json", b"x")
    assert (fake.root / "1" / "abc" / "artifacts" / "e.json").read_bytes() == b"x"


async def test_a_store_that_nobody_here_can_reach_is_a_refusal(fake: FakeMlflow) -> None:
    fake.log_run("abc", "no-such-store://bucket/abc")
    with pytest.raises(SourceRefusedError, match="no-such-store"):
        await registry(fake).put("abc", "e.json", b"x")


Refusing = Callable[[int], None]


@pytest.fixture
def refusing(fake: FakeMlflow) -> Refusing:
    """Lets the server answer to whoever sends a file."""
    fake.log_run("abc", "mlflow-artifacts:/1/abc/artifacts")

    def refuse(status: int) -> None:
        fake.script = lambda path, query: (
            (status, b"not that file") if path.startswith(ARTIFACTS) else None
        )

    return refuse


async def test_a_server_that_fails_to_take_a_file_is_tried_again(
    fake: FakeMlflow, refusing: Refusing
) -> None:
    refusing(503)
    with pytest.raises(SourceUnavailableError, match="answered 503"):
        await registry(fake).put("abc", "e.json", b"x")


async def test_a_server_that_will_not_take_a_file_refuses(
    fake: FakeMlflow, refusing: Refusing
) -> None:
    refusing(403)
    with pytest.raises(SourceRefusedError, match="answered 403: not that file"):
        await registry(fake).put("abc", "e.json", b"x")


@pytest.mark.parametrize(
    ("root", "sources", "fine"),
    [
        ("mlflow-artifacts:/1/abc/artifacts", [], True),
        ("mlflow-artifacts://MLFLOW:5000/1/abc", [], True),
        ("mlflow-artifacts://evil:5000/1/abc", [], False),
        ("mlflow-artifacts:/1/../2", [], False),
        ("s3://models/mlflow/1", [], False),
        ("s3://models/mlflow/1", ["s3://models/mlflow"], True),
        ("s3://models/mlflow/1", ["s3://models/mlflow/"], True),
        ("s3://models/mlflow-others/1", ["s3://models/mlflow"], False),
        ("s3://models.evil/mlflow/1", ["s3://models"], False),
        ("s3://models/mlflow/../secrets", ["s3://models/mlflow"], False),
        ("s3://models/mlflow/%2e%2e/secrets", ["s3://models/mlflow"], False),
        ("s3://models/mlflow/..\\secrets", ["s3://models/mlflow"], False),
        ("s3://models/mlflow/1?versionId=2", ["s3://models/mlflow"], False),
        ("gs://models/mlflow/1", ["s3://models/mlflow"], False),
        ("/etc/ssl/private", [], False),
        ("file:///var/mlruns/1", ["file:///var/mlruns"], True),
        ("/var/mlruns/1", ["file:///var/mlruns"], True),
        ("http://169.254.169.254/latest/meta-data", [], False),
        ("http://mlflow:5000/elsewhere", [], False),
        ("http://mlflow:5000/api/2.0/mlflow-artifacts/artifacts/1", [], True),
    ],
)
def test_artifacts_lie_with_the_server_or_where_the_operator_allows(
    root: str, sources: list[str], fine: bool
) -> None:
    if fine:
        check_source(root, "http://mlflow:5000", sources)
    else:
        with pytest.raises(ForeignSourceError, match=r"mlflow\.sources"):
            check_source(root, "http://mlflow:5000", sources)

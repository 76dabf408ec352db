"""Whatever stands before MLflow may answer in its place: nothing of that is MLflow's word."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from dripping import HEAD, LONG_HEAD, dripping, slowly_taking
from fake_mlflow import FakeMlflow, serve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlflow.utils import request_utils
from registry_fakes import MemoryArtifacts
from tiny_models import write_onnx_version

from contracts.endpoint import ServingOptions
from registry.conversions.messages import ConversionRequest
from registry.convert.download import fetch, recognise
from registry.convert.errors import ConversionError, EnvironmentFaultError
from registry.convert.tracking import TrackingServer
from registry.errors import SourceUnavailableError
from registry.mlflow.client import MlflowConnection, time_client
from registry.mlflow.model_registry import MlflowRegistry
from registry.mlflow.projection import Projection, ShownRollout, VersionTags
from registry.mlflow.watch import EMPTY_LIST_SECONDS, SECOND_LOOK_SECONDS, SourceWatch
from registry.mlflow.write_back import WriteBack

pytestmark = pytest.mark.slow  # imports MLflow: more than a second


def listed(**version: str) -> dict[str, object]:
    """A list of one version."""
    return {"model_versions": [{**version, "status": "READY"}]}


PAGE = "<html><head><title>404 Not Found</title></head><body>default backend - 404</body></html>"
FAULTS: dict[str, tuple[int, Any]] = {
    "an ingress without a backend": (404, PAGE),
    "a gone page": (410, PAGE),
    "a method that is not allowed": (405, PAGE),
    "another server's 404": (404, {"detail": "Not Found"}),
    "Kong without a route": (404, {"message": "no Route matched with those values"}),
    "Traefik without a route": (404, "404 page not found\n"),
    "an empty 404": (404, ""),
    "a bad gateway": (502, "<html>502 Bad Gateway</html>"),
    "an empty answer": (200, ""),
    "a page": (200, "<html>welcome</html>"),
    "half of an answer": (200, '{"registered_models": [{"name": "m'),
    "another server's answer": (200, {"status": "ok"}),
    "nothing": (200, {}),
    "what another was asked for": (200, listed(name="n", version="2")),
    "a version without a number": (200, listed(name="m", version="one")),
}
# In which MLflow itself might have said that it lists nothing.
EMPTY = {
    "another server's answer",
    "nothing",
    "what another was asked for",
    "a version without a number",
}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeMlflow]:
    with serve(FakeMlflow(tmp_path_factory.mktemp("artifacts"))) as made:
        made.register("m", "mlflow-artifacts:/v", run_id="r")
        made.register("n", "mlflow-artifacts:/v", run_id="r")
        yield made


@pytest.fixture(autouse=True)
def answers_itself(fake: FakeMlflow) -> None:
    fake.script = lambda _path, _query: None


async def nothing(evidence: ShownRollout) -> dict[str, bytes]:
    raise AssertionError(f"nobody asked for {evidence}")


class Watched:
    """A watch of one MLflow, by a clock that a test moves."""

    def __init__(self, fake: FakeMlflow) -> None:
        self.fake = fake
        self.time = 0.0
        registry = MlflowRegistry(MlflowConnection(fake.uri, timeout_seconds=60))
        self.watch = SourceWatch(
            registry,
            WriteBack(registry, MemoryArtifacts(), nothing),
            poll_seconds=1.0,
            changed=asyncio.Event(),
            clock=lambda: self.time,
        )
        self.watch.follow({"m"}, Projection())

    async def look(self, fault: str = "", only: str = "") -> bool:
        """Whether MLflow is said to answer; ``only``: of one route."""
        self.time += 1.0
        self.watch.wake()
        told = FAULTS.get(fault)
        self.fake.script = lambda path, _query: told if only in path else None
        try:
            await self.watch.round()
        except SourceUnavailableError:
            return False
        finally:
            self.fake.script = lambda _path, _query: None
        return True

    def seen(self) -> tuple[set[str], list[str]]:
        snapshot = self.watch.snapshot
        assert snapshot is not None
        return set(snapshot.models), [item.number for item in snapshot.versions["m"]]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_of_others_rejects_a_version(fake: FakeMlflow, fault: str) -> None:
    tracking = TrackingServer(fake.uri)
    fake.script = lambda _path, _query: FAULTS[fault]
    for ask in (lambda: tracking.version("m", "1"), lambda: tracking.run("0" * 32)):
        with pytest.raises(ConversionError) as found:
            ask()
        assert not found.value.by_version, found.value.reason


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("route", ["model-versions/get-download-uri", "logged-models", "runs/get"])
def test_no_answer_of_others_rejects_a_version_on_the_way(
    fake: FakeMlflow, fault: str, route: str
) -> None:
    fake.logged["l"] = "mlflow-artifacts:/v"
    fake.locations["m", "1"] = "runs:/r/m" if route == "runs/get" else "models:/l"
    fake.log_run("r", "mlflow-artifacts:/v")
    tracking = TrackingServer(fake.uri)
    assert tracking.version("m", "1").artifacts.startswith("mlflow-artifacts:/v")
    fake.script = lambda path, _query: FAULTS[fault] if route in path else None
    with pytest.raises(ConversionError) as found:
        tracking.version("m", "1")
    assert not found.value.by_version, found.value.reason


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_answer_of_others_says_that_a_model_is_gone_or_another(
    fake: FakeMlflow, fault: str
) -> None:
    registry = MlflowRegistry(MlflowConnection(fake.uri, timeout_seconds=60))
    fake.script = lambda _path, _query: FAULTS[fault]
    with pytest.raises(SourceUnavailableError):
        await registry.model("m")


@pytest.mark.parametrize("fault", ["what another was asked for", "a version without a number"])
async def test_a_list_of_versions_that_can_not_be_the_models_is_an_outage(
    fake: FakeMlflow, fault: str
) -> None:
    registry = MlflowRegistry(MlflowConnection(fake.uri, timeout_seconds=60))
    fake.script = lambda _path, _query: FAULTS[fault]
    with pytest.raises(SourceUnavailableError, match="asked for versions of m, it lists"):
        await registry.versions("m")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("route", ["mlflow-artifacts/artifacts", "mlflow-artifacts/artifacts/v/"])
@pytest.mark.parametrize("looks", [1, 100])
def test_no_answer_of_others_rejects_a_version_whose_files_it_hands_out(
    tmp_path: Path, fault: str, route: str, looks: int
) -> None:
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake:
        write_onnx_version(fake.root / "v")
        fake.register("m", "mlflow-artifacts:/v")
        request = ConversionRequest(
            tracking_uri=fake.uri, model="m", version="1", store_url="unused",
            serving=ServingOptions(), work_dir=str(tmp_path),
        )  # fmt: skip
        left = looks

        def answer(path: str, _query: object) -> tuple[int, Any] | None:
            nonlocal left
            if not path.endswith(route) and not (route.endswith("/") and route in path):
                return None
            left -= 1
            return FAULTS[fault] if left >= 0 else None

        fake.script = answer
        tracking = TrackingServer(fake.uri)
        with suppress(EnvironmentFaultError):
            recognise(fetch(request, tracking, tmp_path), request)
        assert left < looks


@pytest.mark.parametrize("head", [LONG_HEAD, HEAD], ids=["head", "body"])
def test_an_answer_that_drips_is_an_outage_that_keeps_no_thread(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # which a connection changes
    with dripping(head) as port:
        connection = MlflowConnection(f"http://127.0.0.1:{port}", timeout_seconds=0.5)
        with pytest.raises(SourceUnavailableError, match="came within 1 s"):
            connection.ask(lambda client: client.search_registered_models())


def test_a_file_that_is_taken_too_slowly_is_an_outage_that_keeps_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    with slowly_taking() as port:
        connection = MlflowConnection(f"http://127.0.0.1:{port}", timeout_seconds=0.5)
        folder = connection.folder("mlflow-artifacts:/run")
        with pytest.raises(SourceUnavailableError, match="were taken within 1 s"):
            folder.put("report", bytes(16 << 20))


def test_sessions_of_an_older_client_have_their_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(request_utils, "TCPKeepAliveHTTPAdapter")  # MLflow 3.1 has none
    monkeypatch.setattr(request_utils, "HTTPAdapter", requests.adapters.HTTPAdapter)
    time_client.__wrapped__()  # what a process does once
    with dripping() as port, requests.Session() as session:
        session.mount("http://", request_utils.HTTPAdapter())
        with pytest.raises(requests.RequestException, match="came within 1 s"):
            session.get(f"http://127.0.0.1:{port}/", timeout=1.0)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from(["", *FAULTS]), st.sampled_from(["", "model-versions"]))))
async def test_whatever_answers_for_a_while_nothing_that_was_seen_is_lost(
    fake: FakeMlflow, faults: list[tuple[str, str]]
) -> None:
    watched = Watched(fake)
    assert await watched.look()
    before = watched.seen()
    assert before == ({"m", "n"}, ["1"])
    for fault, only in faults[: int(SECOND_LOOK_SECONDS) - 2]:
        answers = await watched.look(fault, only)
        assert watched.seen() == before
        if fault and fault not in EMPTY and not only:
            assert not answers, fault
    assert await watched.look()
    assert watched.seen() == before


async def test_an_empty_list_after_one_that_was_not_is_an_outage_for_a_while(
    fake: FakeMlflow,
) -> None:
    watched = Watched(fake)
    assert await watched.look()
    assert not await watched.look("nothing")
    watched.time += EMPTY_LIST_SECONDS - 10.0
    assert not await watched.look("nothing")
    watched.time += 20.0
    assert await watched.look("nothing")
    assert watched.watch.snapshot is not None
    assert not watched.watch.snapshot.models


async def test_an_empty_first_list_is_an_outage_for_a_while_if_versions_are_served(
    fake: FakeMlflow,
) -> None:
    watched = Watched(fake)
    served = Projection(tags=(VersionTags("m", "1", {}),))
    watched.watch.follow({"m"}, served)
    assert not await watched.look("nothing")
    watched.time += SECOND_LOOK_SECONDS
    assert not await watched.look("nothing")
    assert watched.watch.snapshot is None
    assert await watched.look()
    assert watched.seen() == ({"m", "n"}, ["1"])
    nobody = Watched(fake)  # serves: MLflow may be new
    assert await nobody.look("nothing")


async def test_a_model_that_one_list_lost_is_gone_with_the_second_look(fake: FakeMlflow) -> None:
    watched = Watched(fake)
    await watched.look()
    gone = fake.models.pop("n")
    try:
        await watched.look()
        assert watched.seen()[0] == {"m", "n"}
        watched.time += SECOND_LOOK_SECONDS
        await watched.look()
        assert watched.seen()[0] == {"m"}
    finally:
        fake.models["n"] = gone


async def test_a_followed_model_that_the_first_list_lacks_is_unknown_until_the_second_look(
    fake: FakeMlflow,
) -> None:
    watched = Watched(fake)
    watched.watch.follow({"m", "new"}, Projection())
    await watched.look()
    assert watched.watch.snapshot is not None
    assert watched.watch.snapshot.doubted == {"new"}
    watched.time += SECOND_LOOK_SECONDS
    await watched.look()
    assert not watched.watch.snapshot.doubted


def test_the_faults_are_what_their_names_say() -> None:
    for fault in EMPTY:
        assert "registered_models" not in json.dumps(FAULTS[fault][1])

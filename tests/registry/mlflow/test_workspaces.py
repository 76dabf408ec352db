"""Two teams on one real MLflow with workspaces: each sees its own models, files and packages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_ports import own_ports
from own_servers import MlflowProcess
from registry_fakes import packed

from headrace.stack.mlflow import LocalMlflowServer
from registry.convert.tracking import TrackingServer
from registry.errors import SourceUnavailableError
from registry.mlflow.client import MlflowConnection
from registry.mlflow.model_registry import MlflowRegistry
from registry.packages.store import PackageStore

pytestmark = pytest.mark.real
TEAMS = ("team-a", "team-b")
WORKSPACE = "MLFLOW_WORKSPACE"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a workspace for each team."""
    (port,) = own_ports(1)
    process = MlflowProcess(LocalMlflowServer(tmp_path_factory.mktemp("mlflow"), port))
    with pytest.MonkeyPatch.context() as set_up:
        set_up.setenv("MLFLOW_ENABLE_WORKSPACES", "true")
        process.start()

    def make(client: Any) -> None:
        for team in TEAMS:
            client.create_workspace(team)

    try:
        MlflowConnection(process.url, timeout_seconds=60).ask(make)
        yield process.url
    finally:
        process.stop()


def register(url: str, name: str, text: str) -> None:
    """A version of one file, in the workspace that the environment names."""

    def ask(client: Any) -> None:
        run = client.create_run(client.create_experiment(f"of {name}"))
        client.log_text(run.info.run_id, text, "m/words.txt")
        client.create_registered_model(name)
        client.create_model_version(name, f"runs:/{run.info.run_id}/m", run.info.run_id)

    MlflowConnection(url, timeout_seconds=60).ask(ask)


async def test_a_release_sees_the_models_files_and_packages_of_its_workspace_only(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)  # the client logs texts there
    for team in TEAMS:
        monkeypatch.setenv(WORKSPACE, team)
        register(url, "churn", team)
        register(url, f"own-of-{team}", team)
    for team in TEAMS:
        monkeypatch.setenv(WORKSPACE, team)
        registry = MlflowRegistry(MlflowConnection(url, timeout_seconds=60))
        names = {model.name for model in await registry.models()}
        assert names == {"churn", f"own-of-{team}"}
        (version,) = await registry.versions("churn")
        await registry.set_tag(version, "seen.by", team)
        tracking = TrackingServer(url)
        found = tracking.version("churn", "1")
        tracking.download(found.artifacts, tmp_path / team, skip=lambda _name: False)
        assert (tmp_path / team / "words.txt").read_text() == team
        await registry.put(version.run_id, "headrace/report.json", b"{}")
        (again,) = await registry.versions("churn")
        assert again.tags["seen.by"] == team

        store = PackageStore(f"mlflow-artifacts+{url}/headrace/packages")
        assert store.packages() == []
        manifest = packed(tmp_path / f"made-{team}", team.encode())
        ref = store.publish(tmp_path / f"made-{team}", manifest)
        assert store.packages() == [ref.package]
        assert store.fetch(ref.package, tmp_path / f"fetched-{team}") == manifest


async def test_one_process_reads_several_workspaces_each_with_its_own_files(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)  # the client logs texts there
    for team in TEAMS:
        monkeypatch.setenv(WORKSPACE, team)
        register(url, "sales", team)
    monkeypatch.setenv(WORKSPACE, "team-c")  # nobody's: what a connection names counts
    for team in TEAMS:
        registry = MlflowRegistry(MlflowConnection(url, timeout_seconds=60, workspace=team))
        (version,) = await registry.versions(f"{team}/sales")
        assert f"{team}/sales" in {model.name for model in await registry.models()}
        assert version.model == f"{team}/sales"
        await registry.set_tag(version, "seen.by", team)
        await registry.set_alias(f"{team}/sales", "champion", "1")
        await registry.put(version.run_id, "headrace/report.json", b"{}")
        tracking = TrackingServer(url, workspace=team)
        found = tracking.version(f"{team}/sales", "1")
        tracking.download(found.artifacts, tmp_path / team, skip=lambda _name: False)
        assert (tmp_path / team / "words.txt").read_text() == team
        assert tracking.run(found.run_id).artifacts
        model = await registry.model(f"{team}/sales")
        assert model is not None
        assert model.aliases == {"champion": "1"}
        (again,) = await registry.versions(f"{team}/sales")
        assert again.tags["seen.by"] == team


async def test_a_workspace_that_the_server_does_not_have_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKSPACE, "team-c")
    with pytest.raises(SourceUnavailableError, match="Workspace 'team-c' not found"):
        await MlflowRegistry(MlflowConnection(url, timeout_seconds=60)).models()

"""Two workspaces of one real MLflow, whose models of one name one release serves."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from chaos.embedder import ENDPOINT, TEXTS, register_embedder
from own_ports import own_ports
from own_servers import MlflowProcess
from running_stack import RunningStack, running_stack
from waiting import until

from headrace.stack.mlflow import LocalMlflowServer
from registry.mlflow.client import MlflowConnection

pytestmark = [
    pytest.mark.real,
    # Of MLflow's own hints, once its flavour for pyfuncs is imported.
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]
TEAMS = ("team-a", "team-b")


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[str]:
    """A server with a workspace for each team."""
    (port,) = own_ports(1)
    process = MlflowProcess(LocalMlflowServer(tmp_path / "mlflow", port))
    with pytest.MonkeyPatch.context() as set_up:
        set_up.setenv("MLFLOW_ENABLE_WORKSPACES", "true")
        process.start()
    try:
        opened = MlflowConnection(process.url, timeout_seconds=60)
        for team in TEAMS:
            opened.ask(partial(make_workspace, team))
        yield process.url
    finally:
        process.stop()


def make_workspace(name: str, client: Any) -> None:
    client.create_workspace(name)


def vector(stack: RunningStack, endpoint: str) -> list[float] | None:
    """An endpoint's answer; None while it has none."""
    asked = {"model": endpoint, "input": TEXTS[0]}
    try:
        answer = httpx.post(f"{stack.gateway}/v1/embeddings", json=asked, timeout=20)
    except httpx.HTTPError:
        return None
    if answer.status_code != 200:
        return None
    found: list[float] = answer.json()["data"][0]["embedding"]
    return found


def test_models_of_one_name_in_two_workspaces_are_served_side_by_side(
    mlflow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--mlflow-uri", mlflow, "--no-example"]
    for team in TEAMS:
        flags += ["--mlflow-workspace", team]
    with running_stack(tmp_path / "home", *flags) as stack:
        vectors = {}
        for seed, team in enumerate(TEAMS):
            monkeypatch.setenv("MLFLOW_WORKSPACE", team)
            register_embedder(mlflow, seed=seed)
            name = f"{team}--{ENDPOINT}"
            vectors[team] = until(f"{name} answers", 300, partial(vector, stack, name))
        assert vectors["team-a"] != vectors["team-b"]
        monkeypatch.delenv("MLFLOW_WORKSPACE")
        for team in TEAMS:
            opened = MlflowConnection(mlflow, timeout_seconds=60, workspace=team)
            key = f"headrace.{team}--{ENDPOINT}.verdict"

            def told(at: MlflowConnection = opened, tag: str = key) -> bool:
                version = at.ask(lambda client: client.get_model_version(ENDPOINT, "1"))
                return bool(version.tags.get(tag) == "Promoted")

            until(f"{team}'s version has its verdict", 120, told, every_seconds=0.5)
        named = [word for team in TEAMS for word in ("--mlflow-workspace", team)]
        listed = stack.command("models", *named, "--json").stdout
        found = {(line["model"], line["endpoint"], line["state"]) for line in json.loads(listed)}
        assert found == {(f"{team}/{ENDPOINT}", f"{team}--{ENDPOINT}", "Serving") for team in TEAMS}

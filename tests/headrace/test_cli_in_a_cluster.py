"""``headrace --namespace`` does in a cluster what it does on a home."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_controller import FakeController
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes, write_kubeconfig
from typer.testing import CliRunner, Result

from contracts.endpoint import EndpointSpec, Metadata, ModelEndpoint
from contracts.rollout import Command
from headrace.cli import app
from registry.stores.cluster_endpoints import KubernetesEndpointStore

TONE = """\
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {name: tone}
spec:
  model: tone-model
"""


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


@pytest.fixture
def store(fake: Fake) -> KubernetesEndpointStore:
    return KubernetesEndpointStore(fake.client(), NAMESPACE)


@pytest.fixture
def config(fake: Fake, tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path, fake.server)


def run(config: Path, *words: str) -> Result:
    env = {"COLUMNS": "200", "HEADRACE_NAMESPACE": NAMESPACE, "KUBECONFIG": str(config)}
    return CliRunner().invoke(app, [*words], env=env)


def test_an_endpoint_is_applied_shown_changed_and_deleted(
    config: Path, fake: Fake, tmp_path: Path
) -> None:
    file = tmp_path / "tone.yaml"
    file.write_text(TONE)
    assert run(config, "apply", "-f", str(file)).output == "endpoint tone created\n"
    assert run(config, "apply", "-f", str(file)).output == "endpoint tone unchanged\n"
    file.write_text(TONE + "  serving: {instances: 2}\n")
    changed = run(config, "apply", "-f", str(file)).output
    assert "spec.serving.instances: null -> 2" in changed
    assert "tone-model" in run(config, "get").output
    assert "instances: 2" in run(config, "get", "tone").output
    assert run(config, "delete", "tone", "--yes").output.startswith("endpoint tone deleted\n")
    assert fake.all("modelendpoints") == []


def test_a_decision_is_noted_and_the_controllers_answer_shown(
    config: Path, store: KubernetesEndpointStore
) -> None:
    def says(command: Command) -> tuple[bool, str]:
        return True, f"version 4 is {command.verb.value}d"

    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    with FakeController(store, says).running() as controller:
        result = run(config, "rollout", "promote", "tone", "--by", "ann")
    assert result.output == "Version 4 is promoted.\n"
    assert [command.by for command in controller.commands] == ["ann"]


def test_an_unknown_endpoint_names_those_there_are(
    config: Path, store: KubernetesEndpointStore
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    result = run(config, "rollout", "status", "other")
    assert result.exit_code == 10
    assert "the endpoints are: tone" in result.output


@pytest.mark.parametrize("words", [("get",), ("get", "tone"), ("rollout", "history", "tone")])
def test_a_cluster_that_does_not_answer_is_a_sentence(
    config: Path, fake: Fake, words: tuple[str, ...]
) -> None:
    fake.go_away()
    result = run(config, *words)
    assert result.exit_code == 6
    assert "does not answer" in result.output


def test_a_cluster_that_nobody_named_is_a_sentence(tmp_path: Path) -> None:
    result = run(tmp_path / "none", "get")
    assert result.exit_code == 9
    assert "The cluster can't be reached" in result.output


def test_what_works_on_a_local_stack_alone_says_so(config: Path) -> None:
    result = run(config, "up")
    assert result.exit_code == 1
    assert "In a cluster: apply, delete, get, rollout, schema" in result.output

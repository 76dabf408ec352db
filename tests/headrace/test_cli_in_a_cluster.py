"""``headrace --namespace`` does in a cluster what it does on a home."""

import getpass
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fake_controller import FakeController
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes, write_kubeconfig
from page_snippets import ROOT, of
from typer.testing import CliRunner, Result

from contracts.controller import ControllerBeat
from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Rejection,
    Route,
    Transition,
)
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command
from headrace.cli import app, complete_for_kubectl
from headrace.program import PLUGIN
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.cluster_reports import KubernetesReports
from registry.stores.heartbeats import KubernetesHeartbeats
from service.cluster import pods

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
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


def run(config: Path, *words: str, namespace: str = NAMESPACE) -> Result:
    env = {"COLUMNS": "200", "HEADRACE_NAMESPACE": namespace, "KUBECONFIG": str(config)}
    return CliRunner().invoke(app, [*words], env=env)


def unwrapped(text: str) -> str:
    """A text as it is at any width of the terminal."""
    return " ".join(text.split())


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
    (command,) = controller.commands
    assert (command.by, command.stated) == ("anna@example.com", "ann")


def test_a_decision_carries_the_user_that_a_policy_can_hold_to_be_true(
    config: Path, fake: Fake, store: KubernetesEndpointStore
) -> None:
    fake.world.user = "system:serviceaccount:ci:deployer"
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    assert run(config, "rollout", "pause", "tone", "--no-wait").exit_code == 0
    (item,) = fake.all("modelendpoints")
    notes = dict(item["metadata"]["annotations"])
    ((key, text),) = [note for note in notes.items() if note[0].startswith(COMMAND_PREFIX)]
    user = notes[COMMAND_BY_PREFIX + key.removeprefix(COMMAND_PREFIX)]
    assert user == json.loads(text)["by"] == "system:serviceaccount:ci:deployer"


def test_where_the_server_does_not_say_who_asks_the_login_is_noted(
    config: Path, fake: Fake, store: KubernetesEndpointStore
) -> None:
    fake.refuse("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", 404)
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    told = run(config, "rollout", "pause", "tone", "--no-wait", "-o", "json")
    assert json.loads(told.output)["by"] == getpass.getuser()


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up",), "helm install"),
        (("doctor",), "helm test"),
        (("gc",), "packages.keep"),
        (("models",), "--mlflow-uri"),
        (("predict", "tone", "text"), "--url"),
        (("recount",), "--kafka"),
        (("stats", "unk-words", "tone"), "--kafka"),
    ],
)
def test_what_needs_more_than_the_cluster_says_in_one_line_what(
    config: Path, store: KubernetesEndpointStore, words: tuple[str, ...], said: str
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    result = run(config, *words)
    assert result.exit_code in {1, 9}
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("-n", NAMESPACE, "rollout", "history", "tone"),
        ("rollout", "-n", NAMESPACE, "history", "tone"),
        ("rollout", "history", "-n", NAMESPACE, "tone"),
        ("rollout", "history", "tone", f"-n{NAMESPACE}"),
        ("rollout", "history", "tone", f"--namespace={NAMESPACE}"),
    ],
)
def test_the_namespace_may_stand_anywhere(
    config: Path, store: KubernetesEndpointStore, words: tuple[str, ...]
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    result = run(config, *words, namespace="")
    assert result.output == "Nothing has happened to tone yet.\n"


def names_in(result: Result) -> list[str]:
    """Names of the endpoints that ``get -o json`` shows."""
    return [each["metadata"]["name"] for each in json.loads(result.output)]


def test_a_namespace_behind_the_command_wins_over_the_environment(
    config: Path, store: KubernetesEndpointStore
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    assert names_in(run(config, "get", "-o", "json")) == ["tone"]
    assert names_in(run(config, "get", "-n", "other", "-o", "json")) == []


def test_kubectls_plugin_works_on_the_contexts_namespace(
    config: Path, store: KubernetesEndpointStore
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    said = json.loads(config.read_text())
    said["contexts"][0]["context"]["namespace"] = NAMESPACE
    config.write_text(json.dumps(said))
    env = {"KUBECONFIG": str(config), "HEADRACE_NAMESPACE": ""}
    found = CliRunner().invoke(app, ["get", "-o", "json"], env=env, prog_name=PLUGIN)
    assert names_in(found) == ["tone"]


def test_a_context_is_chosen_by_its_name(
    config: Path, store: KubernetesEndpointStore, tmp_path: Path
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    said = json.loads(config.read_text())
    said["current-context"] = "elsewhere"
    config.write_text(json.dumps(said))
    assert run(config, "get").exit_code == 9
    found = run(config, "get", "--context", "fake", "-o", "json")
    assert names_in(found) == ["tone"]
    missing = run(config, "get", "--context", "none")
    assert (missing.exit_code, "it has no context none, but: fake" in missing.stderr) == (9, True)


@pytest.mark.parametrize("before", [True, False])
def test_a_kubeconfig_is_named_by_an_option_and_means_a_cluster(
    config: Path, store: KubernetesEndpointStore, tmp_path: Path, before: bool
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    said = json.loads(config.read_text())
    said["contexts"][0]["context"]["namespace"] = NAMESPACE
    config.write_text(json.dumps(said))
    option, command = ("--kubeconfig", str(config)), ("get", "-o", "json")
    words = (*option, *command) if before else (*command, *option)
    found = run(tmp_path / "none", *words, namespace="")
    assert names_in(found) == ["tone"]
    missing = run(config, "get", "--kubeconfig", str(tmp_path / "none"), namespace="")
    assert (missing.exit_code, "there is no such file" in missing.stderr) == (9, True)


@pytest.fixture
def tone_of_the_context(config: Path, store: KubernetesEndpointStore) -> Path:
    """A kubeconfig whose context's namespace has the endpoint ``tone``."""
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    said = json.loads(config.read_text())
    said["contexts"][0]["context"]["namespace"] = NAMESPACE
    config.write_text(json.dumps(said))
    return config


@pytest.mark.parametrize(
    "words",
    [
        ("-n", NAMESPACE, "get", "t"),
        ("rollout", "promote", f"--namespace={NAMESPACE}", "t"),
        ("delete", "--context", "fake", ""),
    ],
)
def test_names_of_a_clusters_endpoints_are_completed(
    tone_of_the_context: Path, words: tuple[str, ...]
) -> None:
    assert completed(tone_of_the_context, *words) == ["tone"]


def test_names_and_contexts_of_the_kubeconfig_on_the_line_are_completed(
    tone_of_the_context: Path, tmp_path: Path
) -> None:
    option = f"--kubeconfig={tone_of_the_context}"
    assert completed(tmp_path / "none", option, "get", "t") == ["tone"]
    assert completed(tmp_path / "none", "get", option, "--context", "f") == ["fake"]
    assert completed(tmp_path / "none", "get", "--context", "f") == []


@pytest.fixture
def judged(tone_of_the_context: Path, store: KubernetesEndpointStore) -> Path:
    """The endpoint has promoted version 9, rejected 10, and 11 is on its way."""
    before = store.get("tone")
    assert before is not None
    package = ModelRef(model="m", version="9", package="0" * 64)
    status = EndpointStatus(
        routes=(Route.all_callers(package),),
        rejected=(Rejection(version="10", options="", reason="slow", at=1.0),),
        candidate=Candidate(version="11", phase=Phase.CONVERTING),
        history=(Transition(at=1.0, version="9", phase=Phase.PROMOTED),),
    )
    store.put(before.model_copy(update={"status": status}))
    return tone_of_the_context


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("rollout", "pin", "tone", ""), ["11", "10", "9"]),
        (("rollout", "pin", "tone", "1"), ["11", "10"]),
        (("rollout", "retry", "tone", ""), ["10"]),
        (("rollout", "promote", "tone", "--version", ""), ["11", "10", "9"]),
        (("rollout", "wait", "tone", "--version", "9"), ["9"]),
        (("rollout", "pin", "other", ""), []),
    ],
)
def test_versions_that_a_clusters_endpoint_considered_are_completed(
    judged: Path, words: tuple[str, ...], found: list[str]
) -> None:
    assert completed(judged, "-n", NAMESPACE, *words) == found
    assert told_kubectl(judged, *words) == [*found, ":0"]


@pytest.mark.parametrize(
    "words", [("get", "-n", "mo"), ("-n", "mo"), ("rollout", "pause", "--namespace", "mo")]
)
def test_namespaces_of_the_cluster_are_completed(
    config: Path, fake: Fake, words: tuple[str, ...]
) -> None:
    fake.namespaces("default", "models", "monitoring")
    assert completed(config, *words) == ["models", "monitoring"]
    assert told_kubectl(config, *words) == ["models", "monitoring", ":0"]


def test_who_may_not_list_namespaces_is_offered_those_of_the_contexts(
    tone_of_the_context: Path, fake: Fake, tmp_path: Path
) -> None:
    fake.refuse("GET /api/v1/namespaces", 403)
    assert completed(tone_of_the_context, "get", "-n", "") == [NAMESPACE]
    assert completed(tmp_path / "none", "get", "-n", "") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("get", "t"), ["tone"]),
        (("rollout", "promote", ""), ["tone"]),
        (("rollout", "promo"), ["promote"]),
        (("get", "-n", "other", ""), []),
        (("get", "-o", "y"), ["yaml"]),
        (("get", "a file's name"), []),
    ],
)
def test_kubectl_is_told_what_may_follow_its_plugin(
    tone_of_the_context: Path, words: tuple[str, ...], found: list[str]
) -> None:
    assert told_kubectl(tone_of_the_context, *words) == [*found, ":0"]


@pytest.mark.slow
def test_kubectl_is_told_the_commands_where_nothing_was_written_yet(
    tone_of_the_context: Path,
) -> None:
    code = "from headrace.cli import complete_for_kubectl as it; it()"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True, text=True, check=True, timeout=300,
        env=of_kubectl(tone_of_the_context),
    )  # fmt: skip
    *commands, directive = said.stdout.split()
    assert {"apply", "get", "rollout"} <= set(commands)
    assert directive == ":0"


def told_kubectl(config: Path, *words: str) -> list[str]:
    """What the program prints that kubectl asks to complete a line; kubectl skips empty lines."""
    said = StringIO()
    with (
        mock.patch.dict(os.environ, of_kubectl(config), clear=True),
        mock.patch.object(sys, "argv", ["kubectl_complete-headrace", *words]),
        redirect_stdout(said),
        pytest.raises(SystemExit) as ended,
    ):
        complete_for_kubectl()
    assert not ended.value.code
    return said.getvalue().split()


def of_kubectl(config: Path) -> dict[str, str]:
    """The environment that kubectl gives it."""
    return {"PATH": os.environ["PATH"], "KUBECONFIG": str(config), "HOME": "/nonexistent"}


def completed(config: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    env = {
        "_HEADRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("headrace", *words)),
        "COMP_CWORD": str(len(words)),
        "HEADRACE_NAMESPACE": "",
        "KUBECONFIG": str(config),
        "HEADRACE_HOME": str(config.with_name("no-home")),
    }
    return CliRunner().invoke(app, [], env=env, prog_name="headrace").output.split()


def test_commands_of_the_page_about_the_command_line_work_as_they_stand(
    judged: Path, store: KubernetesEndpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for ``--watch``, which goes on; and the plugin is run without kubectl."""
    said = json.loads(judged.read_text())
    said["contexts"].append({**said["contexts"][0], "name": "production"})
    judged.write_text(json.dumps(said))
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "endpoints" / "tone.yaml").write_text(TONE.replace("tone-model", "m"))
    stable = store.get("tone")
    assert stable is not None
    served = Transition(at=1.0, version="7", phase=Phase.SERVING)
    route = Route.all_callers(ModelRef(model="m", version="7", package="0" * 64))
    status = EndpointStatus(routes=(route,), history=(served,))
    store.put(stable.model_copy(update={"status": status}))
    monkeypatch.chdir(tmp_path)
    (page,) = (each for each in of(ROOT / "docs/cli.md") if each.kind == "run by")
    lines = [line.partition(" && ")[0].split() for line in page.text.splitlines()]
    assert len(lines) > 5
    for *words, last in lines:
        given = [*words, last] if last != "--watch" else words
        prog = PLUGIN if given[0] == "kubectl" else "headrace"
        env = {"COLUMNS": "80", "HEADRACE_NAMESPACE": "", "KUBECONFIG": str(judged)}
        arguments = given[len(prog.split()) :]
        ran = CliRunner().invoke(app, arguments, env=env, prog_name=prog)
        assert ran.exit_code == 0, (given, ran.output)


def test_the_status_shows_loaders_the_controller_and_endpoints(
    config: Path, fake: Fake, store: KubernetesEndpointStore
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    assert "No controller has given a sign of life." in run(config, "status").output
    KubernetesHeartbeats(fake.client(), NAMESPACE).put(
        ControllerBeat(instance="a", count=1, at=time.time())
    )
    report = LoaderReport(loader="triton-0", triton_grpc="t:1", at=time.time(), ready=True)
    KubernetesReports(fake.client(), NAMESPACE).put(report)
    shown = run(config, "status", "--details").output
    assert f"Namespace {NAMESPACE}. The controller gave a sign of life" in shown
    assert "triton-0" in shown
    assert "gRPC t:1, 0 models" in shown
    assert "Waiting" in shown
    told = json.loads(run(config, "status", "tone", "-o", "json").output)
    assert [each["loader"] for each in told["loaders"]] == ["triton-0"]
    assert told["controller"]["seconds_ago"] < 600
    assert [each["metadata"]["name"] for each in told["endpoints"]] == ["tone"]


def gateway_pod(name: str, *, ready: bool) -> dict[str, Any]:
    labels = {"app.kubernetes.io/part-of": "headrace", "app.kubernetes.io/component": "gateway"}
    waiting = {"name": "gateway", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [] if ready else [waiting],
        },
    }


def test_the_status_shows_pods_that_are_not_ready_and_what_ready_gateways_say(
    config: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, ready in (("gateway-a", True), ("gateway-b", True), ("gateway-c", False)):
        fake.write(PODS, gateway_pod(name, ready=ready))
    note = "tone: version 3's code ended: out of memory"
    said = {"gateway-a": (200, json.dumps({"notes": [note]})), "gateway-b": (200, "{}")}

    def page(_: object, namespace: str, pod: str, *__: object, seconds: float) -> tuple[int, str]:
        assert (namespace, seconds > 0) == (NAMESPACE, True)
        return said[pod]

    monkeypatch.setattr(pods, "page", page)
    shown = unwrapped(run(config, "status").output)
    assert "2 of 3 pods are ready." in shown
    assert f"answers, but: {note}" in shown
    assert "gateway-b" not in shown
    assert "gateway: CrashLoopBackOff" in shown
    told = json.loads(run(config, "status", "-o", "json").output)
    found = {each["pod"]: (each["ready"], each["said"]) for each in told["pods"]}
    assert found["gateway-a"] == (True, f"answers, but: {note}")
    assert found["gateway-b"] == (True, "")
    assert found["gateway-c"] == (False, "gateway: CrashLoopBackOff")


def test_the_status_says_which_right_is_lacking_to_see_pods(config: Path, fake: Fake) -> None:
    fake.write(PODS, gateway_pod("gateway-a", ready=True))
    fake.refuse(f"GET {PODS}/gateway-a/portforward", 403)
    shown = unwrapped(run(config, "status").output)
    assert "1 of 1 pods are ready." in shown
    assert "it needs pods/portforward" in shown
    fake.refuse(f"GET {PODS}", 403)
    forbidden = run(config, "status")
    assert forbidden.exit_code == 0
    assert "your account may not list them" in unwrapped(forbidden.output)


def test_statistics_are_declared_in_a_cluster_too(
    config: Path, store: KubernetesEndpointStore
) -> None:
    store.put(ModelEndpoint(metadata=Metadata(name="tone"), spec=EndpointSpec(model="m")))
    assert run(config, "stats", "add", "tone", "rare", "--kind", "counter").exit_code == 0
    (listed,) = json.loads(run(config, "stats", "list", "tone", "-o", "json").output)
    assert listed["name"] == "rare"


def test_a_dry_run_asks_the_server_and_stores_nothing(
    config: Path, fake: Fake, store: KubernetesEndpointStore, tmp_path: Path
) -> None:
    file = tmp_path / "tone.yaml"
    file.write_text(TONE)
    made = run(config, "apply", "-f", str(file), "--dry-run", "server")
    assert made.output == "endpoint tone created (server dry run)\n"
    assert fake.all("modelendpoints") == []
    run(config, "apply", "-f", str(file))
    file.write_text(TONE + "  serving: {instances: 2}\n")
    changed = run(config, "apply", "-f", str(file), "--dry-run", "server").output
    assert "spec.serving.instances: null -> 2" in changed
    assert run(config, "diff", "-f", str(file)).exit_code == 1
    (item,) = fake.all("modelendpoints")
    assert "serving" not in item["spec"]
    path = f"/apis/headrace.dev/v1alpha1/namespaces/{NAMESPACE}/modelendpoints/tone"
    fake.refuse(f"PUT {path}", 422, "spec.serving.instances: the operator allows 1")
    refused = run(config, "apply", "-f", str(file), "--dry-run", "server")
    assert refused.exit_code == 6
    assert "the operator allows 1" in refused.stderr
    assert run(config, "apply", "-f", str(file), "--dry-run", "client").exit_code == 0

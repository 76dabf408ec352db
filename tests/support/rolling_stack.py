"""What tests of rollouts on a real stack do: register versions, edit the spec, ask MLflow."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rollout_watch import RolloutWatch
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack
from traffic import Traffic
from waiting import until

REGISTER = Path(__file__).parents[2] / "examples" / "rollouts" / "register_variant.py"
SHORT = "{shadow: 100}, {weight: 50}"
LONG = "{shadow: 100}, {weight: 25}, {weight: 50}"
# So loose that a minute of a few callers decides, and so tight that one class for all is noticed.
LOOSE = """
      errorRate: {pass: {absolute: 0.3, relative: 2}}
      latency: null
      classShare:
        fail: {absolute: 0.1, relative: 1}
        pass: {absolute: 0.4, relative: 1}
      outputShift: {distance: 0.4}
      drift: null
"""
# No truth is told in these tests, so that quality is never known and no step is ever over.
UNDECIDED = f"{LOOSE}      quality: {{required: true}}\n"


def spec(steps: str = SHORT, deadline: str = "10m", checks: str = LOOSE) -> str:
    """The example's endpoint with another rollout."""
    return f"""{PATIENT}  rollout:
    steps: [{steps}]
    deadline: {deadline}
    bake: 5s
    checks:{checks}"""


def register(
    stack: RunningStack, variant: str, seconds: float = 300, model: str = EXAMPLE_ENDPOINT
) -> str:
    """Registers one more version, as its trainer would; returns its number.

    Raises:
        AssertionError: MLflow did not take it.
        subprocess.TimeoutExpired: nor did it answer in time.
    """
    done = subprocess.run(
        [sys.executable, str(REGISTER), variant, "--tracking-uri", stack.mlflow,
         "--model-name", model],
        env={**os.environ, "PYTHONSAFEPATH": "", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("version ")[1].split()[0]


def register_folder(stack: RunningStack, name: str, folder: Path) -> str:
    """Registers a folder as the next version of a model, as people do; returns its number."""
    from mlflow import MlflowClient

    client = MlflowClient(stack.mlflow)
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    run = client.create_run("0").info.run_id
    client.log_artifacts(run, str(folder), "model")
    return str(client.create_model_version(name, f"runs:/{run}/model", run).version)


def traffic(stack: RunningStack, texts: list[str]) -> Traffic:
    """A few callers of every gateway, over HTTP and gRPC, who leave the machine some room."""
    return Traffic(stack.ways(), texts, callers=8, pause_seconds=0.07)


@contextmanager
def watched(stack: RunningStack, name: str = EXAMPLE_ENDPOINT) -> Iterator[RolloutWatch]:
    """A watch on the endpoint's stored states, none of which may be wrong."""
    with RolloutWatch(stack.home / "endpoints", name) as watch:
        yield watch
    assert not watch.faults, watch.faults


# What MLflow says


def mlflow(stack: RunningStack, route: str, **query: str) -> Any:
    """One question to MLflow's REST interface."""
    answer = httpx.get(f"{stack.mlflow}/api/2.0/mlflow/{route}", params=query, timeout=60)
    answer.raise_for_status()
    return answer.json()


def until_mlflow_answers(stack: RunningStack, seconds: float = 120) -> None:
    """Waits until models can be registered."""

    def answers() -> bool:
        try:
            mlflow(stack, "registered-models/get", name=EXAMPLE_ENDPOINT)
        except httpx.HTTPError:
            return False
        return True

    until("MLflow answers", seconds, answers)


def tags(stack: RunningStack, number: str, name: str = EXAMPLE_ENDPOINT) -> dict[str, str]:
    """What Headrace says about a version, by the tags' last words."""
    found = _version(stack, number, name).get("tags", ())
    return {item["key"].removeprefix(f"headrace.{name}."): item["value"] for item in found}


def champion(stack: RunningStack, name: str = EXAMPLE_ENDPOINT) -> str:
    """The version that the alias names."""
    model = mlflow(stack, "registered-models/get", name=name)
    aliases = model["registered_model"].get("aliases", ())
    return next((item["version"] for item in aliases if item["alias"] == "champion"), "")


def evidence(stack: RunningStack, number: str, name: str = EXAMPLE_ENDPOINT) -> set[str]:
    """Names of the files that show a verdict, in the run that made the version."""
    found = mlflow(
        stack,
        "artifacts/list",
        run_id=_version(stack, number, name)["run_id"],
        path=f"headrace/{name}/v{number}",
    )
    return {Path(item["path"]).name for item in found.get("files", ())}


def report(stack: RunningStack, number: str, name: str = EXAMPLE_ENDPOINT) -> str:
    """The page about a version's rollout that Headrace wrote into the run that made it, as HTML."""
    answer = httpx.get(
        f"{stack.mlflow}/get-artifact",
        params={
            "run_uuid": _version(stack, number, name)["run_id"],
            "path": f"headrace/{name}/v{number}/report.html",
        },
        timeout=60,
    )
    return answer.raise_for_status().text


def until_told(
    stack: RunningStack, number: str, verdict: str, serving: str, name: str = EXAMPLE_ENDPOINT
) -> None:
    """Waits until MLflow says what became of a version, and shows why."""

    def is_told() -> bool:
        return (
            tags(stack, number, name).get("verdict") == verdict
            and champion(stack, name) == serving
            and evidence(stack, number, name) == {"evidence.json", "report.html"}
        )

    until(f"MLflow says that version {number} is {verdict}", 180, is_told)


def _version(stack: RunningStack, number: str, name: str) -> dict[str, Any]:
    query = {"name": name, "version": number}
    found: dict[str, Any] = mlflow(stack, "model-versions/get", **query)["model_version"]
    return found

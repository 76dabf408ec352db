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
PREFIX = f"headrace.{EXAMPLE_ENDPOINT}"
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


def register(stack: RunningStack, variant: str, seconds: float = 300) -> str:
    """Registers one more version, as its trainer would; returns its number.

    Raises:
        AssertionError: MLflow did not take it.
        subprocess.TimeoutExpired: nor did it answer in time.
    """
    done = subprocess.run(
        [sys.executable, str(REGISTER), variant, "--tracking-uri", stack.mlflow,
         "--model-name", EXAMPLE_ENDPOINT],
        env={**os.environ, "PYTHONSAFEPATH": "", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("version ")[1].split()[0]


def traffic(stack: RunningStack, texts: list[str]) -> Traffic:
    """A few callers of every gateway, over HTTP and gRPC, who leave the machine some room."""
    return Traffic(stack.ways(), texts, callers=8, pause_seconds=0.07)


@contextmanager
def watched(stack: RunningStack) -> Iterator[RolloutWatch]:
    """A watch on the endpoint's stored states, none of which may be wrong."""
    with RolloutWatch(stack.home / "endpoints", EXAMPLE_ENDPOINT) as watch:
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


def tags(stack: RunningStack, number: str) -> dict[str, str]:
    """What Headrace says about a version, by the tags' last words."""
    found = _version(stack, number).get("tags", ())
    return {item["key"].removeprefix(f"{PREFIX}."): item["value"] for item in found}


def champion(stack: RunningStack) -> str:
    """The version that the alias names."""
    model = mlflow(stack, "registered-models/get", name=EXAMPLE_ENDPOINT)
    aliases = model["registered_model"].get("aliases", ())
    return next((item["version"] for item in aliases if item["alias"] == "champion"), "")


def evidence(stack: RunningStack, number: str) -> set[str]:
    """Names of the files that show a verdict, in the run that made the version."""
    found = mlflow(
        stack,
        "artifacts/list",
        run_id=_version(stack, number)["run_id"],
        path=f"headrace/{EXAMPLE_ENDPOINT}/v{number}",
    )
    return {Path(item["path"]).name for item in found.get("files", ())}


def report(stack: RunningStack, number: str) -> str:
    """The page about a version's rollout that Headrace wrote into the run that made it, as HTML."""
    answer = httpx.get(
        f"{stack.mlflow}/get-artifact",
        params={
            "run_uuid": _version(stack, number)["run_id"],
            "path": f"headrace/{EXAMPLE_ENDPOINT}/v{number}/report.html",
        },
        timeout=60,
    )
    return answer.raise_for_status().text


def until_told(stack: RunningStack, number: str, verdict: str, serving: str) -> None:
    """Waits until MLflow says what became of a version, and shows why."""

    def is_told() -> bool:
        return (
            tags(stack, number).get("verdict") == verdict
            and champion(stack) == serving
            and evidence(stack, number) == {"evidence.json", "report.html"}
        )

    until(f"MLflow says that version {number} is {verdict}", 180, is_told)


def _version(stack: RunningStack, number: str) -> dict[str, Any]:
    query = {"name": EXAMPLE_ENDPOINT, "version": number}
    found: dict[str, Any] = mlflow(stack, "model-versions/get", **query)["model_version"]
    return found

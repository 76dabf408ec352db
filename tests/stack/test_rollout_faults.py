"""Rollouts on the real stack, with its parts killed or stopped on the way.

One stack of its own, with windows of a second and checks so loose that a minute decides. CI kills
the controller five times, the soak (``make soak``) fifty.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rollout_watch import RolloutWatch
from running_stack import EXAMPLE_ENDPOINT, RunningStack, running_stack, until
from soak_record import record
from traffic import Traffic

from contracts.endpoint import Phase
from contracts.rollout import Outcome

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

REGISTER = Path(__file__).parents[2] / "examples" / "rollouts" / "register_variant.py"
KILLS = 5
SOAK_KILLS = int(os.environ.get("HEADRACE_SOAK_KILLS", "50"))
PREFIX = f"headrace.{EXAMPLE_ENDPOINT}"
SPEC = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {EXAMPLE_ENDPOINT}}}
spec:
  model: {EXAMPLE_ENDPOINT}
  rollout:
    steps: [{{shadow: 100}}, {{weight: 25}}, {{weight: 50}}]
    deadline: 10m
    bake: 5s
    checks:
      errorRate: {{pass: {{absolute: 0.3, relative: 2}}}}
      latency: null
      classShare:
        fail: {{absolute: 0.1, relative: 1}}
        pass: {{absolute: 0.4, relative: 1}}
      outputShift: {{distance: 0.4}}
      drift: null
"""
GOOD, BAD = "better", "collapsed"


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("rolling")
    with running_stack(folder / "home", "--window-seconds", "1") as running:
        running.until_answers(EXAMPLE_ENDPOINT)
        (folder / "endpoint.yaml").write_text(SPEC, encoding="utf-8")
        done = running.command("apply", "-f", str(folder / "endpoint.yaml"))
        assert done.returncode == 0, done.stdout + done.stderr
        yield running


def register(stack: RunningStack, variant: str) -> str:
    """Registers one more version, as its trainer would; returns its number."""
    done = subprocess.run(
        [sys.executable, str(REGISTER), variant, "--tracking-uri", stack.mlflow,
         "--model-name", EXAMPLE_ENDPOINT],
        env={**os.environ, "PYTHONSAFEPATH": "", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("version ")[1].split()[0]


def traffic(stack: RunningStack, texts: list[str]) -> Traffic:
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    return Traffic(url, texts, callers=6, pause_seconds=0.05)


def watched(stack: RunningStack) -> RolloutWatch:
    return RolloutWatch(stack.home / "endpoints", EXAMPLE_ENDPOINT)


def mlflow(stack: RunningStack, route: str, **query: str) -> Any:
    answer = httpx.get(f"{stack.mlflow}/api/2.0/{route}", params=query, timeout=20)
    answer.raise_for_status()
    return answer.json()


def version(stack: RunningStack, number: str) -> dict[str, Any]:
    query = {"name": EXAMPLE_ENDPOINT, "version": number}
    found: dict[str, Any] = mlflow(stack, "mlflow/model-versions/get", **query)["model_version"]
    return found


def tags(stack: RunningStack, number: str) -> dict[str, str]:
    """What Headrace says about a version, by the tags' last words."""
    found = version(stack, number).get("tags", ())
    return {item["key"].removeprefix(f"{PREFIX}."): item["value"] for item in found}


def champion(stack: RunningStack) -> str:
    model = mlflow(stack, "mlflow/registered-models/get", name=EXAMPLE_ENDPOINT)
    aliases = model["registered_model"].get("aliases", ())
    return next((item["version"] for item in aliases if item["alias"] == "champion"), "")


def evidence(stack: RunningStack, number: str) -> set[str]:
    """Names of the files that show a verdict, in the run that made the version."""
    found = mlflow(
        stack,
        "mlflow/artifacts/list",
        run_id=version(stack, number)["run_id"],
        path=f"headrace/{EXAMPLE_ENDPOINT}/v{number}",
    )
    return {Path(item["path"]).name for item in found.get("files", ())}


def until_told(stack: RunningStack, number: str, verdict: str, serving: str) -> None:
    """Waits until MLflow says what became of a version, and shows why."""

    def is_told() -> bool:
        return (
            tags(stack, number).get("verdict") == verdict
            and champion(stack) == serving
            and evidence(stack, number) == {"evidence.json", "report.html"}
        )

    until(f"MLflow says that version {number} is {verdict}", 30, is_told)


def test_a_good_version_is_promoted_and_mlflow_says_so(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        number = register(rolling, GOOD)
        assert watch.until_ended(number).outcome is Outcome.SETTLED
        before = len(load.replies)
        load.more(50)
    assert set(load.statuses()) == {200}, load.statuses()
    last = [reply.version for reply in load.replies[before + 10 :]]
    assert set(last) == {number}
    phases = [line.phase for line in watch.status.history if line.version == number]
    assert phases[-5:] == [
        Phase.SHADOW,
        Phase.CANARY,
        Phase.CANARY,
        Phase.PROMOTED,
        Phase.SETTLED,
    ]
    until_told(rolling, number, "Promoted", number)


def test_a_collapsed_version_goes_back_while_mlflow_hangs_and_is_told_about_later(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        stable = watch.status.stable
        assert stable is not None
        number = register(rolling, BAD)
        watch.until("the rollout began", 120, lambda status: status.rollout is not None)
        rolling.signal("mlflow", signal.SIGSTOP)
        try:
            ended = watch.until_ended(number)
        finally:
            rolling.signal("mlflow", signal.SIGCONT)
    assert ended.outcome is Outcome.ROLLED_BACK
    assert "classShare" in ended.reason or "outputShift" in ended.reason
    assert watch.status.stable == stable
    assert set(load.statuses()) == {200}, load.statuses()
    until_told(rolling, number, "RolledBack", stable.version)
    assert tags(rolling, number)["reason"] == ended.reason[:500]


def test_without_statistics_a_rollout_holds_and_goes_on_when_they_are_back(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        number = register(rolling, GOOD)
        watch.until("the rollout began", 120, lambda status: status.rollout is not None)
        rolling.signal("kafka", signal.SIGSTOP)
        try:
            held = watch.until(
                "it says that it can't know",
                60,
                lambda status: (
                    status.candidate is not None
                    and status.candidate.reason == "statistics can't be read"
                ),
            )
            load.more(100)
            assert watch.status.routes == held.routes
            assert watch.status.rollout == held.rollout
        finally:
            rolling.signal("kafka", signal.SIGCONT)
        assert watch.until_ended(number).outcome is Outcome.SETTLED
    assert set(load.statuses()) == {200}, load.statuses()


def kill_through_rollouts(stack: RunningStack, texts: list[str], kills: int) -> dict[str, object]:
    """Kills the controller at random instants of rollouts until it was killed so often.

    Every other time the instant is that of a write. Each version must end as it should, after one
    rollout, and what is stored must be right at each moment.
    """
    order = random.Random(20261121)
    done, ends = 0, dict[str, str]()
    with traffic(stack, texts) as load, watched(stack) as watch:
        load.more(50)
        while done < kills:
            variant = order.choice((GOOD, GOOD, BAD))
            number = register(stack, variant)
            while done < kills and not is_over(watch, number):
                if done % 2:
                    watch.until_stored()
                load.more(order.randrange(1, 600), 120)
                dead = stack.kill("controller")
                done += 1
                stack.until_restarted("controller", dead)
            ended = watch.until_ended(number, 300)
            assert ended.outcome is not None
            expected = Outcome.SETTLED if variant == GOOD else Outcome.ROLLED_BACK
            assert ended.outcome is expected, (variant, ended.reason)
            ends[number] = ended.outcome.value
            assert len(watch.rollouts[number]) == 1, watch.rollouts
            assert sum(item.version == number for item in watch.status.rejected) == (
                1 if variant == BAD else 0
            )
    assert set(load.statuses()) == {200}, load.statuses()
    stable = watch.status.stable
    assert stable is not None
    for number, outcome in ends.items():
        verdict = "Promoted" if outcome == Outcome.SETTLED.value else outcome
        until_told(stack, number, verdict, stable.version)
    return {
        "kills": done,
        "ends": ends,
        "requests": len(load.replies),
        "states_stored": watch.stored,
        "faults": watch.faults,
    }


def is_over(watch: RolloutWatch, number: str) -> bool:
    last = watch.status.last_rollout
    return last is not None and last.candidate.version == number


def test_a_controller_killed_at_random_instants_of_rollouts_loses_nothing(
    rolling: RunningStack, texts: list[str]
) -> None:
    kill_through_rollouts(rolling, texts, KILLS)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_fifty_kills_of_the_controller_lose_nothing(
    rolling: RunningStack, texts: list[str]
) -> None:
    record("rollout-kills", kill_through_rollouts(rolling, texts, SOAK_KILLS))

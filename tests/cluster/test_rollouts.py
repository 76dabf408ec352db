"""A version registered inside the cluster is tried on callers, and promoted or rolled back."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_load import CALLERS, Load, Outcome, go_on, load
from cluster_walk import (
    MODEL,
    apply,
    endpoint_url,
    phases,
    register_variant,
    stable,
    until_answered,
    until_phase,
)
from real_cluster import ClientPod, Kill, Release, run, until
from rolling_stack import UNDECIDED, spec

from contracts.endpoint import Arm, Phase
from registry.mlflow.projection import PROMOTED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

RATE = 30.0
HEADRACE = str(Path(sys.executable).with_name("headrace"))
TAGS = """
import json, sys
from mlflow import MlflowClient

version = MlflowClient(sys.argv[1]).get_model_version(sys.argv[2], sys.argv[3])
print(json.dumps(dict(version.tags)))
"""


@pytest.fixture
def rolling(release: Release, served: str) -> str:
    """The version that serves, on an endpoint whose checks a few minutes decide."""
    apply(release, spec())
    return served


@contextlib.contextmanager
def callers(release: Release, client: ClientPod) -> Iterator[Load]:
    until_answered(release, client)
    with load(client, endpoint_url(release), RATE) as running:
        yield running


def told(release: Release, client: ClientPod, version: str) -> str:
    """MLflow's word about a version, empty before there is one."""
    uri = f"http://{release.host('mlflow')}:5000"
    tags = json.loads(client.python(TAGS, uri, MODEL, version))
    return str(tags.get(f"headrace.{MODEL}.verdict", ""))


def events(release: Release) -> list[str]:
    """What the Events about the endpoint say, reasons and messages."""
    found = release.cluster.get("events", f"--field-selector=involvedObject.name={MODEL}")
    return [f"{each['reason']}: {each['message']}" for each in found["items"]]


def kill_controller(release: Release, kill: Kill) -> None:
    """``kill -9``, and waits until its successor runs."""
    (pod,) = release.pods("controller")
    name, before = pod["metadata"]["name"], restarts(pod)
    kill(pod, "controller.main")
    until(
        "the controller has a successor",
        120,
        lambda: restarts(release.cluster.get("pod", name)) > before,
    )


def restarts(pod: dict[str, Any]) -> int:
    return sum(int(each["restartCount"]) for each in pod["status"]["containerStatuses"])


def assert_nobody_failed(outcome: Outcome, versions: set[str]) -> None:
    assert outcome.failures == []
    assert outcome.served <= versions


@pytest.mark.walk
def test_a_good_version_is_promoted_though_the_controller_is_killed_on_the_way(
    release: Release, client: ClientPod, rolling: str, kill: Kill
) -> None:
    with callers(release, client) as running:
        version = register_variant(release, client, "better")
        until_phase(release, version, Phase.CANARY)
        kill_controller(release, kill)
        until_phase(release, version, Phase.SETTLED)
        until("MLflow says so", 60, lambda: told(release, client, version) == PROMOTED)
        go_on(running, 3 * CALLERS)
        outcome = running.stop()
    assert stable(release) == version
    assert_nobody_failed(outcome, {rolling, version})
    walked = phases(release, version)
    assert walked.index(Phase.SHADOW) < walked.index(Phase.CANARY) < walked.index(Phase.PROMOTED)
    assert any(line.startswith(f"{Phase.PROMOTED.value}: ") for line in events(release))
    assert {max(each, key=each.__getitem__) for each in outcome.versions.values()} == {version}


def test_a_collapsed_version_is_rolled_back(
    release: Release, client: ClientPod, rolling: str
) -> None:
    with callers(release, client) as running:
        version = register_variant(release, client, "collapsed")
        until_phase(release, version, Phase.ROLLED_BACK)
        until("MLflow says so", 60, lambda: told(release, client, version) == "RolledBack")
        outcome = running.stop()
    assert stable(release) == rolling
    assert_nobody_failed(outcome, {rolling, version})
    assert any(line.startswith(f"{Phase.ROLLED_BACK.value}: ") for line in events(release))


def arms(release: Release) -> set[str]:
    """The arms that requests go to, as the endpoint's status says."""
    routes = release.cluster.get("mep", MODEL)["status"]["routes"]
    return {route["arm"] for route in routes}


@pytest.fixture
def halved(release: Release, client: ClientPod, served: str) -> Iterator[set[str]]:
    """Two versions with half of the callers each, on neither of which anything is ever decided."""
    apply(release, spec("{weight: 50}", deadline="1h", checks=UNDECIDED))
    with callers(release, client):  # the candidate gets none before stable is known by its traffic
        version = register_variant(release, client, "better")
        until(f"version {version} has callers", 300, lambda: Arm.CANARY in arms(release))
    yield {served, version}
    run(
        [HEADRACE, "--namespace", release.cluster.namespace, "rollout", "abort", MODEL],
        seconds=60,
    )
    until_phase(release, version, Phase.ROLLED_BACK)


def test_a_caller_stays_with_its_arm_while_gateways_and_tritons_come_and_go(
    release: Release, client: ClientPod, halved: set[str]
) -> None:
    with callers(release, client) as running:
        go_on(running, CALLERS)
        for gateways, tritons in ((4, 2), (1, 1)):
            release.scale("gateway", gateways)
            release.scale("triton", tritons)
            go_on(running, 3 * CALLERS)
        outcome = running.stop()
    release.scale("gateway", 2)
    assert outcome.failures == []
    assert outcome.served == halved
    assert len(outcome.versions) == CALLERS
    assert [key for key, versions in outcome.versions.items() if len(versions) > 1] == []

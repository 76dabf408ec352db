"""The chart's defaults on a real cluster: from nothing to a first answer.

The namespace enforces the restricted pod security profile: a pod that does not keep it would never
have started.
"""

import json
import os

import pytest
from cluster_walk import MODEL, register, until_answered, until_serving
from real_cluster import ClientPod, Release
from typer.testing import CliRunner

from headrace.cli import app
from service.cluster import access, pods

pytestmark = [pytest.mark.cluster, pytest.mark.walk, pytest.mark.timeout(1500)]


def test_a_fresh_install_answers_a_first_prediction(release: Release, client: ClientPod) -> None:
    register(release, client)
    served = until_serving(release)
    answer = until_answered(release, client)
    assert answer["version"] == served
    assert "positive" in json.dumps(answer["body"])


def test_kubectl_shows_the_endpoint_with_its_stable_version(release: Release, served: str) -> None:
    header, row = release.cluster.kubectl("get", "mep", MODEL).splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert shown["NAME"] == MODEL
    assert shown["STABLE"] == served


def test_helm_test_passes(release: Release) -> None:
    said = release.cluster.helm("test", release.name, "--timeout", "180s", seconds=200)
    assert "Succeeded" in said


def test_the_status_shows_every_pod_and_asks_each_gateway(release: Release, served: str) -> None:
    del served
    word = ("--namespace", release.cluster.namespace)
    shown = CliRunner().invoke(app, ["status", *word, "-o", "json"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.output)
    assert told["unread"] == ""
    found = {each["component"]: each for each in told["pods"]}
    assert {"gateway", "triton", "controller", "fold", "evaluate"} <= found.keys()
    assert all(each["ready"] for each in told["pods"]), told["pods"]
    client = access.connected(os.environ)
    name = found["gateway"]["pod"]
    status, text = pods.page(client, release.cluster.namespace, name, 9310, "/readyz", seconds=60)
    assert (status, "notes" in json.loads(text)) == (200, True)
    with pytest.raises(OSError, match="9311"):  # where nothing listens
        pods.page(client, release.cluster.namespace, name, 9311, "/readyz", seconds=60)

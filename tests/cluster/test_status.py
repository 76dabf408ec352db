"""The status of a cluster shows its pods, and what gateways say of themselves."""

import json
import os

import pytest
from real_cluster import Release
from typer.testing import CliRunner

from headrace.cli import app
from service.cluster import access, pods

pytestmark = [pytest.mark.cluster]


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
    client = access.connect(os.environ)
    name = found["gateway"]["pod"]
    status, text = pods.page(client, release.cluster.namespace, name, 9310, "/readyz", seconds=60)
    assert (status, isinstance(json.loads(text), dict)) == (200, True)
    with pytest.raises(OSError, match="9311"):  # where nothing listens
        pods.page(client, release.cluster.namespace, name, 9311, "/readyz", seconds=60)

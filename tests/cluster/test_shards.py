"""Two evaluate pods, as the chart installs them: each endpoint is one's, also after a kill."""

import json
from collections.abc import Iterator

import pytest
from cluster_load import CALLERS, go_on, load
from cluster_walk import (
    MODEL,
    apply,
    endpoint_url,
    register,
    register_variant,
    stable,
    until_answered,
    until_phase,
    until_serving,
)
from real_cluster import ClientPod, Release, until
from rolling_stack import spec
from running_stack import PATIENT

from contracts.endpoint import Phase
from contracts.metrics import ANSWERED
from stats.evaluation.sharding import owner

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SHARDS = 2
# The example's, and one that is the other shard's.
OTHER = next(
    name
    for name in (f"films-{number}" for number in range(99))
    if owner(name, SHARDS) != owner(MODEL, SHARDS)
)
RATE = 30.0
_READ = """
import json, sys
import httpx

lines = httpx.get(sys.argv[1], timeout=10).text.splitlines()
counted = [line for line in lines if line.startswith(sys.argv[2] + "{")]
print(json.dumps(sorted({line.split('endpoint="')[1].split('"')[0] for line in counted})))
"""
_LISTED = """
import json, sys
import httpx

said = httpx.get(sys.argv[1], timeout=10).raise_for_status().json()
print(json.dumps(sorted(each["name"] for each in said["endpoints"])))
"""
_ASK = """
import sys
import httpx

for number in range(20):
    httpx.post(sys.argv[1], json={"inputs": f"film {number}"}, timeout=30).raise_for_status()
"""


@pytest.fixture
def divided(chart: Release, client: ClientPod) -> Iterator[Release]:
    """The release with two shards and an endpoint of each."""
    chart.install(f"--set=stats.evaluate.shards={SHARDS}")
    if stable(chart) is None:
        register(chart, client)
    until_serving(chart)
    apply(chart, spec())
    apply(chart, PATIENT.replace(f"name: {MODEL}", f"name: {OTHER}"))
    until_serving(chart, OTHER)
    until_answered(chart, client)
    yield chart
    chart.cluster.kubectl("delete", "mep", OTHER, "--ignore-not-found")
    chart.install()


def shard(release: Release, number: int) -> str:
    """The name of a shard's pod, and of its host."""
    return f"{release.host('evaluate')}-{number}"


def told(release: Release, client: ClientPod, number: int) -> list[str]:
    """The endpoints whose requests a shard tells; none while it is not there."""
    address = release.cluster.get("pod", shard(release, number)).get("status", {}).get("podIP")
    if not address:
        return []
    try:
        return list(
            json.loads(client.python(_READ, f"http://{address}:9300/metrics", ANSWERED.name))
        )
    except AssertionError:
        return []


def until_each_tells_its_own(release: Release, client: ClientPod) -> None:
    """Waits until each endpoint's requests are told, and by its own shard."""
    client.python(_ASK, endpoint_url(release, OTHER), seconds=120)
    wanted = {owner(name, SHARDS): [name] for name in (MODEL, OTHER)}
    until(
        "each shard tells of its own endpoint alone",
        180,
        lambda: all(told(release, client, number) == wanted[number] for number in range(SHARDS)),
    )


def kill(release: Release, number: int) -> None:
    """Ends a shard's pod without a word, and waits until it is back."""
    name = shard(release, number)
    before = release.cluster.get("pod", name)["metadata"]["uid"]
    release.cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    until(
        f"{name} has a successor",
        120,
        lambda: release.cluster.get("pod", name).get("metadata", {}).get("uid", before) != before,
    )
    release.until_ready("evaluate")


def test_a_rollout_gets_its_verdict_while_each_shard_is_killed(
    divided: Release, client: ClientPod
) -> None:
    before = stable(divided)
    with load(client, endpoint_url(divided), RATE) as running:
        go_on(running, CALLERS)
        until_each_tells_its_own(divided, client)
        version = register_variant(divided, client, "better")
        until_phase(divided, version, Phase.SHADOW)
        for number in range(SHARDS):
            kill(divided, number)
        until_phase(divided, version, Phase.SETTLED)
        until_each_tells_its_own(divided, client)
        outcome = running.stop()
    assert outcome.failures == []
    assert outcome.served <= {before, version}
    assert stable(divided) == version
    # Whichever pod is asked for the page, it has all endpoints.
    for number in range(SHARDS):
        address = divided.cluster.get("pod", shard(divided, number))["status"]["podIP"]
        listed = json.loads(client.python(_LISTED, f"http://{address}:9300/ui/view.json"))
        assert listed == sorted((MODEL, OTHER)), number

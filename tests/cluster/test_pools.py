"""Two pools of Tritons, as the chart installs them: each answers its own endpoints alone.

Two endpoints serve the same version, so that only the pool tells them apart.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cluster_load import go_on, load
from cluster_walk import apply, ask, endpoint_url, register, stable, until_serving
from real_cluster import ClientPod, Release, until
from running_stack import EXAMPLE_ENDPOINT, PATIENT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

POOLS = (
    '--set-json=triton.pools={"large": {"replicas": 1}}',
    '--set-json=ceilings.pools=["default", "large"]',
)
LARGE = "triton-large"
STAYS, MOVES = EXAMPLE_ENDPOINT, "films"
RATE = 10.0
SOME = 100  # requests


def films(pool: str) -> str:
    """A second endpoint of the example's model."""
    return f"{PATIENT.replace(f'name: {STAYS}', f'name: {MOVES}')}  pool: {pool}\n"


@pytest.fixture(scope="module")
def pools(chart: Release, client: ClientPod) -> Iterator[Release]:
    """The release with a second pool, and as other tests expect it again afterwards."""
    chart.install(*POOLS)
    if stable(chart) is None:
        register(chart, client)
    until_serving(chart)
    yield chart
    chart.cluster.kubectl("delete", "mep", MOVES, "--ignore-not-found")
    chart.install()


@pytest.fixture
def divided(pools: Release, client: ClientPod) -> Release:
    """With an endpoint in each pool, whatever was done to it before."""
    if len(pools.pods(LARGE)) != 1:
        pools.scale(LARGE, 1)
    bring(pools, "large")
    for endpoint in (STAYS, MOVES):
        until_status(pools, client, endpoint, 200)
    return pools


def bring(release: Release, pool: str) -> None:
    """Puts the second endpoint into a pool, and waits until the status says that it is there."""
    apply(release, films(pool))

    def is_there() -> bool:
        status = release.cluster.get("mep", MOVES).get("status", {})
        placed = status.get("pool", "default") == pool and not status.get("nextPool")
        return placed and stable(release, MOVES) is not None

    try:
        until(f"{MOVES} is in {pool}", 300, is_there)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{release.cluster.trouble()}") from error


def until_status(
    release: Release, client: ClientPod, endpoint: str, status: int
) -> Mapping[str, Any]:
    """Asks until the answer has a status; returns it."""

    def answered() -> Mapping[str, Any] | None:
        said = ask(release, client, endpoint)
        return said if said["status"] == status else None

    return until(f"{endpoint} is answered with {status}", 180, answered)


def test_each_pool_answers_its_own_endpoints_alone(divided: Release, client: ClientPod) -> None:
    with load(client, endpoint_url(divided, STAYS), RATE) as running:
        go_on(running, SOME)
        divided.scale(LARGE, 0)
        said = until_status(divided, client, MOVES, 503)
        go_on(running, SOME)
        divided.scale(LARGE, 1)
        until_status(divided, client, MOVES, 200)
        outcome = running.stop()
    assert said["body"]["error"]["code"] == "model_unavailable", said
    assert outcome.failures == []


def test_a_triton_that_is_killed_is_its_own_pools_alone(
    divided: Release, client: ClientPod
) -> None:
    (pod,) = divided.pods(LARGE)
    with load(client, endpoint_url(divided, STAYS), RATE) as running:
        go_on(running, SOME)
        name = pod["metadata"]["name"]
        divided.cluster.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        go_on(running, SOME)
        divided.until_ready(LARGE)
        until_status(divided, client, MOVES, 200)
        outcome = running.stop()
    assert [each["metadata"]["name"] for each in divided.pods(LARGE)] != [name]
    assert outcome.failures == []


def test_an_endpoint_moves_between_pools_and_no_caller_notices(
    divided: Release, client: ClientPod
) -> None:
    with load(client, endpoint_url(divided, MOVES), RATE) as running:
        go_on(running, SOME)
        bring(divided, "default")
        go_on(running, SOME)
        divided.scale(LARGE, 0)  # what was left answers nobody any more
        go_on(running, SOME)
        divided.scale(LARGE, 1)
        bring(divided, "large")
        go_on(running, SOME)
        outcome = running.stop()
    assert outcome.failures == []

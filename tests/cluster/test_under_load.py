"""What people do to a cluster on an ordinary day, under traffic: no caller notices."""

import contextlib
from collections.abc import Iterator

import pytest
from cluster_load import Load, Outcome, go_on, load
from cluster_walk import endpoint_url, until_answered
from real_cluster import ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

RATE = 15.0  # modest: everything shares the test machine's cores
EMBEDDED = ("mlflow", "kafka")
GATEWAY_REQUESTS = "headrace_gateway_requests_total"
TRITON_REQUESTS = "nv_inference_request_success"

_COUNT = """
import sys
import httpx

lines = httpx.get(sys.argv[1], timeout=10).text.splitlines()
print(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sys.argv[2])))
"""


@contextlib.contextmanager
def traffic(release: Release, client: ClientPod) -> Iterator[Load]:
    """Requests that go on while the test acts; they have begun when it does."""
    until_answered(release, client)
    with load(client, endpoint_url(release), RATE) as running:
        go_on(running, 30)
        yield running


def assert_nobody_noticed(outcome: Outcome, version: str) -> None:
    assert outcome.failures == []
    assert outcome.served == {version}


def counts(
    release: Release, client: ClientPod, component: str, port: int, name: str
) -> list[float]:
    """A counter of each of a component's pods."""
    addresses = release.addresses(component)
    urls = [f"http://{address}:{port}/metrics" for address in addresses]
    return [float(client.python(_COUNT, url, name)) for url in urls]


def test_gateways_come_and_go_and_share_the_load(
    release: Release, client: ClientPod, served: str
) -> None:
    with traffic(release, client) as running:
        release.scale("gateway", 4)
        until(
            "each of four gateways answers",
            60,
            lambda: all(counts(release, client, "gateway", 9310, GATEWAY_REQUESTS)),
        )
        release.scale("gateway", 1)
        go_on(running, 100)
        outcome = running.stop()
    release.scale("gateway", 2)
    assert_nobody_noticed(outcome, served)


def test_tritons_come_and_go_and_share_the_load(
    release: Release, client: ClientPod, served: str
) -> None:
    with traffic(release, client) as running:
        release.scale("triton", 2)
        before = counts(release, client, "triton", 8002, TRITON_REQUESTS)

        def both_grow() -> bool:
            now = counts(release, client, "triton", 8002, TRITON_REQUESTS)
            return len(now) == 2 and all(new > old for new, old in zip(now, before, strict=True))

        until("both Tritons answer", 60, both_grow)
        release.scale("triton", 1)
        go_on(running, 100)
        outcome = running.stop()
    assert_nobody_noticed(outcome, served)


@pytest.mark.walk
def test_an_upgrade_and_a_rollback_lose_no_request(
    release: Release, client: ClientPod, served: str
) -> None:
    """Every pod changes, MLflow's too, which holds what new gateways and loaders must fetch."""
    changed = [f"--set-string={part}.embedded.pod.labels.changed=yes" for part in EMBEDDED]
    with traffic(release, client) as running:
        release.install("--set=logLevel=debug", *changed)
        go_on(running, 100)
        release.rollback()
        go_on(running, 100)
        outcome = running.stop()
    assert_nobody_noticed(outcome, served)


@pytest.mark.parametrize(
    "component", ["gateway", "triton", "controller", "fold", "evaluate", "kafka", "mlflow"]
)
def test_any_one_pod_may_be_deleted(
    release: Release, client: ClientPod, served: str, component: str
) -> None:
    if component == "triton":
        release.scale("triton", 2)
    with traffic(release, client) as running:
        release.delete_one_pod(component)
        release.until_ready(component)
        go_on(running, 100)
        outcome = running.stop()
    if component == "triton":
        release.scale("triton", 1)
    assert_nobody_noticed(outcome, served)

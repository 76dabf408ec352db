"""The HorizontalPodAutoscaler adds gateways under real load."""

import pytest
from cluster_load import load
from cluster_walk import endpoint_url, until_answered
from real_cluster import ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

RATE = 60.0
# A pod asks for a tenth of a core here: this load is more than half of that many times over.
SCALED = (
    "--set=gateway.autoscaling.enabled=true",
    "--set=gateway.autoscaling.minReplicas=1",
    "--set=gateway.autoscaling.maxReplicas=3",
    "--set=gateway.autoscaling.cpuPercent=50",
)


def test_load_brings_more_gateways_and_they_answer(
    release: Release, client: ClientPod, served: str
) -> None:
    release.install(*SCALED)
    try:
        until_answered(release, client)
        with load(client, endpoint_url(release), RATE) as running:
            until("three gateways", 300, lambda: len(release.pods("gateway")) == 3)
            release.until_ready("gateway")
            outcome = running.stop()
    finally:
        release.install()
    assert outcome.failures == []
    assert outcome.served == {served}

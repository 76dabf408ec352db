"""Pods are asked seldom, however often a status is drawn."""

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes

from headrace.commands.installation import CachedInstallation
from service.cluster.access import ClusterNamespace

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.mark.parametrize(("later", "asked"), [(9.0, 1), (10.0, 2), (-1.0, 2)])
def test_pods_are_asked_again_after_ten_seconds_or_when_the_clock_went_back(
    later: float, asked: int
) -> None:
    with fake_kubernetes() as fake:
        lately = CachedInstallation(ClusterNamespace(fake.client(), NAMESPACE))
        for now in (1000.0, 1000.0 + later):
            assert lately.ask(now).pods == ()
        assert fake.world.asked.count(f"GET {PODS}") == asked

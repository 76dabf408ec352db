"""With packages in an object store, what serves starts while controller and MLflow are away."""

from collections.abc import Iterator

import pytest
from cluster_object_store import PORT, SECRET, STORE_URL, ClusterObjectStore
from cluster_walk import register, until_answered, until_serving
from real_cluster import ClientPod, Cluster, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

IN_OBJECT_STORE = (
    f"--set=packages.storeUrl={STORE_URL}",
    f"--set=packages.existingSecret={SECRET}",
    f"--set=networkPolicy.externalPorts={{443,6443,{PORT}}}",
)
AWAY = ("controller", "mlflow")


@pytest.fixture
def store(cluster: Cluster, object_store_image: str) -> Iterator[ClusterObjectStore]:
    ours = ClusterObjectStore(cluster)
    ours.start(object_store_image)
    yield ours
    ours.stop()


def names(release: Release, component: str) -> set[str]:
    return {str(pod["metadata"]["name"]) for pod in release.pods(component)}


def replace_all(release: Release, component: str) -> None:
    """Deletes a component's pods, and waits until others are ready in their place."""
    old = names(release, component)
    release.cluster.kubectl("delete", "pod", *old, "--timeout=180s", seconds=190)
    until(f"other pods of {component}", 60, lambda: names(release, component) - old)
    release.until_ready(component)


def test_what_serves_starts_while_controller_and_mlflow_are_both_away(
    store: ClusterObjectStore, absent: Release, client: ClientPod
) -> None:
    absent.install(*IN_OBJECT_STORE)
    register(absent, client)
    served = until_serving(absent)
    until_answered(absent, client)
    for component in AWAY:
        absent.scale(component, 0)
    replace_all(absent, "triton")
    replace_all(absent, "gateway")
    assert until_answered(absent, client)["version"] == served
    assert not any(absent.pods(component) for component in AWAY)
    for component in AWAY:
        absent.scale(component, 1)
    assert until_answered(absent, client)["version"] == served

"""One release of the chart for all tests here; whoever takes it away has it installed anew."""

import os
import tomllib
from collections.abc import Iterator

import pytest
from cluster_walk import register, stable, until_serving
from real_cluster import (
    ROOT,
    ClientPod,
    Cluster,
    Release,
    own_namespace,
    reason_to_skip,
    writable_host_paths,
)

NAMESPACE = "headrace-tests"


def image_values() -> dict[str, str]:
    """Whence the images are, as ``docker/build`` names them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    values = {"tag": os.environ.get("IMAGE_TAG") or str(project["version"])}
    if registry := os.environ.get("IMAGE_REGISTRY"):
        values["registry"] = registry.rstrip("/")
    return values


def client_image() -> str:
    """The image from which the tests call."""
    images = image_values()
    registry = f"{images['registry']}/" if "registry" in images else ""
    return f"{registry}headrace-client:{images['tag']}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := reason_to_skip(os.environ):
        pytest.skip(reason)
    with writable_host_paths(f"{NAMESPACE}-node", client_image()), own_namespace(NAMESPACE) as ours:
        yield ours


@pytest.fixture
def release(cluster: Cluster) -> Release:
    values = ROOT / "tests" / "cluster" / "values.yaml"
    ours = Release(cluster, values, image_values())
    if not ours.is_installed():
        ours.install()
    return ours


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> ClientPod:
    pod = ClientPod(cluster)
    pod.start(client_image())
    return pod


@pytest.fixture
def served(release: Release, client: ClientPod) -> str:
    """The version of the example that serves, registered where it was not yet."""
    if stable(release) is None:
        register(release, client)
    return until_serving(release)

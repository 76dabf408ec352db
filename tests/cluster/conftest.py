"""One release of the chart for all tests here; whoever takes it away has it installed anew."""

import os
import tomllib
from collections.abc import Iterator
from functools import partial

import pytest
from cluster_walk import register, stable, until_serving
from real_cluster import (
    ROOT,
    ClientPod,
    Cluster,
    Kill,
    Release,
    kill_on_node,
    node_namespace,
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


def image(name: str) -> str:
    """One of our images, as the cluster knows it."""
    values = image_values()
    registry = f"{values['registry']}/" if "registry" in values else ""
    return f"{registry}headrace-{name}:{values['tag']}"


@pytest.fixture(scope="session")
def node() -> Iterator[Cluster]:
    """A namespace whose pods may reach into the node."""
    if reason := reason_to_skip(os.environ):
        pytest.skip(reason)
    with node_namespace(f"{NAMESPACE}-node") as ours:
        yield ours


@pytest.fixture(scope="session")
def cluster(node: Cluster) -> Iterator[Cluster]:
    with writable_host_paths(node, image("client")), own_namespace(NAMESPACE) as ours:
        yield ours


@pytest.fixture
def kill(node: Cluster) -> Kill:
    """``kill -9`` from outside of the pod."""
    return partial(kill_on_node, node, image=image("client"))


def our_release(cluster: Cluster) -> Release:
    values = {f"images.{name}": value for name, value in image_values().items()}
    # The example's versions are ONNX already: CI builds no image with torch.
    if conversion := os.environ.get("IMAGE_CONVERSION"):
        values["conversion.image.repository"] = f"headrace-{conversion}"
    return Release(cluster, ROOT / "tests" / "cluster" / "values.yaml", values)


@pytest.fixture
def release(cluster: Cluster) -> Release:
    ours = our_release(cluster)
    if not ours.is_installed():
        ours.install()
    return ours


@pytest.fixture
def absent(cluster: Cluster) -> Iterator[Release]:
    """The release, not installed and with nothing left of it; so it is again at the end."""
    ours = our_release(cluster)
    ours.forget()
    yield ours
    ours.forget()


@pytest.fixture(scope="session")
def object_store_image() -> str:
    return image("object-store")


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> ClientPod:
    pod = ClientPod(cluster)
    pod.start(image("client"))
    return pod


@pytest.fixture
def served(release: Release, client: ClientPod) -> str:
    """The version of the example that serves, registered where it was not yet."""
    if stable(release) is None:
        register(release, client)
    return until_serving(release)

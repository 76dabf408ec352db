"""One release of the chart for all tests here; whoever takes it away has it installed anew."""

import contextlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from cluster_guard import take_cluster
from cluster_walk import register, stable, until_serving
from real_cluster import (
    COMMAND_SECONDS,
    CRD,
    RECORDS_CRD,
    ROOT,
    ClientPod,
    Cluster,
    CommandError,
    Kill,
    Release,
    run,
    until,
)

NAMESPACE = "headrace-tests"
HOST_PATH = "kubernetes.io/host-path"
HOST_PATH_FOLDER = "/tmp/hostpath_pv"
BUILD_SECONDS = 1800.0


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
    take_cluster()
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


@pytest.fixture(scope="session")
def chart(cluster: Cluster) -> Release:
    """The release, installed or not."""
    return our_release(cluster)


@pytest.fixture
def release(chart: Release) -> Release:
    """The release, installed."""
    if not chart.is_installed():
        chart.install()
    return chart


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
def all_in_one_image() -> str:
    """Built before, where a builder is named, whose images the cluster gets."""
    if os.environ.get("IMAGE_BUILD"):
        run([str(ROOT / "docker" / "build"), "all-in-one"], BUILD_SECONDS)
    return image("all-in-one")


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


# The cluster itself: what its node kills, its volumes and its namespaces

_KILL = """
import os, pathlib, signal, sys

pod, words = sys.argv[1].encode(), sys.argv[2].encode()
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        environment = (process / "environ").read_bytes().split(b"\\0")
        command = (process / "cmdline").read_bytes()
    except OSError:
        continue
    if b"HOSTNAME=" + pod in environment and words in command:
        os.kill(int(process.name), signal.SIGKILL)
        print("killed", process.name)
"""


def kill_on_node(cluster: Cluster, pod: dict[str, Any], words: str, image: str) -> None:
    """``kill -9`` from the node's side: a container's first process can't be killed from inside.

    Args:
        cluster: with a namespace in which pods may see the node's processes.
        pod: the pod, of any namespace, whose processes are killed.
        words: what the command of those processes holds.
        image: one with a Python.

    Raises:
        AssertionError: there was no such process.
    """
    container = {
        "name": "kill",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-I", "-c", _KILL, pod["metadata"]["name"], words],
        "securityContext": {"runAsUser": 0, "privileged": True},
    }
    spec = {
        "automountServiceAccountToken": False,
        "hostPID": True,
        "nodeName": pod["spec"]["nodeName"],
        "restartPolicy": "Never",
        "containers": [container],
    }
    killer = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kill"}, "spec": spec}
    cluster.kubectl("delete", "pod", "kill", "--ignore-not-found", seconds=COMMAND_SECONDS)
    cluster.kubectl("apply", "-f", "-", given=json.dumps(killer))
    until(
        "the pod that kills has ended",
        COMMAND_SECONDS,
        lambda: cluster.get("pod", "kill")["status"]["phase"] in ("Succeeded", "Failed"),
    )
    said = cluster.kubectl("logs", "kill")
    assert "killed" in said, said


@contextlib.contextmanager
def writable_host_paths(cluster: Cluster, image: str) -> Iterator[None]:
    """Keeps the volumes of ``kubernetes.io/host-path`` writable for those who are not root.

    Kubernetes' own provisioner for tests makes folders for root alone, and its volumes take no
    ``fsGroup``. With any other default StorageClass this does nothing.
    """
    classes = cluster.get("storageclass").get("items", [])
    if HOST_PATH not in [each["provisioner"] for each in classes]:
        yield
        return
    program = f"while true; do chmod 777 {HOST_PATH_FOLDER}/* 2>/dev/null; sleep 0.2; done"
    container = {
        "name": "volumes",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", program],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "volumes", "mountPath": HOST_PATH_FOLDER}],
    }
    folder = {"path": HOST_PATH_FOLDER, "type": "DirectoryOrCreate"}
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "volumes", "hostPath": folder}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volumes"}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", given=json.dumps(pod))
    cluster.kubectl("wait", "pod/volumes", "--for=condition=Ready", "--timeout=120s", seconds=130)
    yield


def reason_to_skip(environment: Mapping[str, str]) -> str:
    """Why there is no cluster to test on; empty where there is one."""
    if not environment.get("KUBECONFIG"):
        return (
            "KUBECONFIG is not set: name a cluster that these tests may install into "
            "(docs/images.md tells how its images are built)"
        )
    programs = ("kubectl", environment.get("HELM", "helm"))
    missing = [name for name in programs if shutil.which(name) is None]
    return f"{' and '.join(missing)} are not on PATH" if missing else ""


@contextlib.contextmanager
def node_namespace(name: str) -> Iterator[Cluster]:
    """A namespace whose pods may reach into the node; gone at the end."""
    cluster = Cluster(name)
    _remove(cluster)
    _create(cluster, "privileged")
    try:
        yield cluster
    finally:
        _remove(cluster)


@contextlib.contextmanager
def own_namespace(name: str) -> Iterator[Cluster]:
    """A namespace that refuses all but restricted pods; gone at the end, with our CRD.

    HEADRACE_KEEP=1 leaves it all for a person to look at.
    """
    cluster = Cluster(name)
    _remove_definition(cluster)
    _remove(cluster)
    _create(cluster, "restricted")
    try:
        yield cluster
    finally:
        if not os.environ.get("HEADRACE_KEEP"):
            _remove_definition(cluster)
            _remove(cluster)


def _create(cluster: Cluster, pods: str) -> None:
    """Makes the namespace; ``pods`` is Kubernetes' word for what they may do."""
    metadata = {
        "name": cluster.namespace,
        "labels": {"pod-security.kubernetes.io/enforce": pods},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    cluster.kubectl("create", "-f", "-", given=json.dumps(space))
    until("a new namespace has its account", 30, lambda: cluster.get("serviceaccount", "default"))


def _remove_definition(cluster: Cluster) -> None:
    for name in (CRD, RECORDS_CRD):
        if crd := cluster.get("crd", name):
            owner = crd["metadata"].get("annotations", {}).get("meta.helm.sh/release-namespace")
            if owner not in (None, cluster.namespace):
                raise CommandError(
                    f"This cluster has a Headrace in namespace {owner}: these tests would remove "
                    "its endpoints. Name another cluster in KUBECONFIG."
                )
            cluster.kubectl("delete", "crd", name, "--timeout=60s", seconds=70)


def _remove(cluster: Cluster) -> None:
    gone = ("--ignore-not-found", "--timeout=180s")
    cluster.kubectl("delete", "namespace", cluster.namespace, *gone, seconds=190)

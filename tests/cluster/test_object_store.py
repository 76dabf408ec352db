"""With packages in an object store, what serves starts while controller and MLflow are away."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster_walk import register, until_answered, until_serving
from real_cluster import RESTRICTED, ClientPod, Cluster, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

NAME = "object-store"
SECRET = "object-store-login"
PORT = 7070
STORE_URL = "s3://models/headrace"
IN_OBJECT_STORE = (
    f"--set=packages.storeUrl={STORE_URL}",
    f"--set=packages.existingSecret={SECRET}",
    f"--set=networkPolicy.externalPorts={{443,6443,{PORT}}}",
)
LOGIN = {"id": "headrace", "secret": "a-secret-of-the-tests"}
AWAY = ("controller", "mlflow")


@dataclass(frozen=True)
class ClusterObjectStore:
    """A real S3-compatible server in a pod, with one bucket, and the Secret to sign in.

    ``docker/build object-store`` makes its image. What it holds is gone with its pod.
    """

    cluster: Cluster

    def start(self, image: str) -> None:
        """Starts it and waits until it takes connections; skips the test without the image."""
        for item in (self._secret(), _service(), _pod(image)):
            self.cluster.kubectl("apply", "-f", "-", given=json.dumps(item))
        until("the S3 server runs, or has no image", 120, lambda: self._runs() or self._lacks())
        if not self._runs():
            self.stop()
            pytest.skip(f"the cluster has no image {image}: docker/build object-store makes it")

    def _runs(self) -> bool:
        return bool(self._status().get("ready"))

    def _lacks(self) -> bool:
        reason = self._status().get("state", {}).get("waiting", {}).get("reason")
        return reason in {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"}

    def _status(self) -> dict[str, Any]:
        statuses = self.cluster.get("pod", NAME).get("status", {}).get("containerStatuses", [{}])
        return dict(statuses[0])

    def stop(self) -> None:
        """Takes it away; harmless where it is not."""
        words = [f"pod/{NAME}", f"service/{NAME}", f"secret/{SECRET}"]
        self.cluster.kubectl("delete", *words, "--ignore-not-found")

    def _secret(self) -> dict[str, Any]:
        variables = {
            "AWS_ACCESS_KEY_ID": LOGIN["id"],
            "AWS_SECRET_ACCESS_KEY": LOGIN["secret"],
            "AWS_ENDPOINT_URL": f"http://{NAME}.{self.cluster.namespace}:{PORT}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        return _item("Secret", SECRET, stringData=variables)


def _service() -> dict[str, Any]:
    ports = [{"name": "s3", "port": PORT, "targetPort": PORT}]
    return _item("Service", NAME, spec={"selector": {"app": NAME}, "ports": ports})


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--port=:{PORT}", "--quiet", "posix", "--sidecar=/metadata", "/objects"],
        "env": [
            {"name": "ROOT_ACCESS_KEY", "value": LOGIN["id"]},
            {"name": "ROOT_SECRET_KEY", "value": LOGIN["secret"]},
        ],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "objects", "mountPath": "/objects"},
            {"name": "metadata", "mountPath": "/metadata"},
            # A folder of /objects is a bucket: this has the kubelet make it.
            {"name": "objects", "mountPath": "/bucket", "subPath": "models"},
        ],
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": name, "emptyDir": {}} for name in ("objects", "metadata")],
    }
    return {**_item("Pod", NAME, spec=spec), "metadata": {"name": NAME, "labels": {"app": NAME}}}


def _item(kind: str, name: str, **more: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


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

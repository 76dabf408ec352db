"""A real S3-compatible server in a pod of the cluster, with one bucket, and the Secret to sign in.

Used by ``tests/cluster``. ``docker/build object-store`` makes its image. What it holds is gone with
its pod.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from real_cluster import RESTRICTED, Cluster, until

NAME = "object-store"
SECRET = "object-store-login"
PORT = 7070
STORE_URL = "s3://models/headrace"
_LOGIN = {"id": "headrace", "secret": "a-secret-of-the-tests"}


@dataclass(frozen=True)
class ClusterObjectStore:
    """One such pod, and the Service in front of it."""

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
            "AWS_ACCESS_KEY_ID": _LOGIN["id"],
            "AWS_SECRET_ACCESS_KEY": _LOGIN["secret"],
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
            {"name": "ROOT_ACCESS_KEY", "value": _LOGIN["id"]},
            {"name": "ROOT_SECRET_KEY", "value": _LOGIN["secret"]},
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

"""The image with all parts: one container that answers, and keeps all that it has in one volume.

It runs as on a cluster that assigns users, with a read-only root and no capabilities: what works so
works for ``docker run`` too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster_walk import MODEL, TEXT
from real_cluster import RESTRICTED, SITE_PACKAGES, ClientPod, Cluster, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

NAME = "all-in-one"
ASSIGNED = 1000650000  # a user without a name, in the group 0
START_SECONDS = 600.0  # its image is unpacked, a database made, the example converted
STOP_SECONDS = 60
_ASK = """
import json, sys
import httpx

answer = httpx.post(sys.argv[1], json={"inputs": sys.argv[2]}, timeout=30)
print(json.dumps({"status": answer.status_code, "body": answer.json()}))
"""
_OPEN = """
import json, socket, sys

def takes(port):
    try:
        socket.create_connection((sys.argv[1], port), timeout=5).close()
    except OSError:
        return False
    return True

print(json.dumps([port for port in json.loads(sys.argv[2]) if takes(port)]))
"""
_UNREAPED = """
import pathlib

for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
        told = stat.read_text()
    except OSError:
        continue
    if told.rpartition(")")[2].split()[0] == "Z":
        print(told)
"""


@dataclass(frozen=True)
class OneContainer:
    """A pod of the image and its volume, which outlives the pod."""

    cluster: Cluster
    image: str

    def start(self) -> None:
        """Starts it and waits until the example answers; skips the test without the image."""
        self.cluster.kubectl("apply", "-f", "-", given=json.dumps(_volume()))
        self.cluster.kubectl("apply", "-f", "-", given=json.dumps(_pod(self.image)))
        try:
            until(
                "the example answers, or the image is missing",
                START_SECONDS,
                lambda: "Try it:" in self.said() or self._lacks(),
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.trouble()}\n{self.said()}") from error
        if self._lacks():
            pytest.skip(f"the cluster has no image {self.image}: docker/build {NAME} makes it")

    @property
    def address(self) -> str:
        """Of the pod."""
        return str(self.cluster.get("pod", NAME)["status"]["podIP"])

    def said(self) -> str:
        """What it printed so far."""
        if "running" not in self._state() and "terminated" not in self._state():
            return ""
        return self.cluster.kubectl("logs", NAME)

    def run(self, *words: str, given: str = "") -> str:
        """Runs a command in it, as ``docker exec`` does."""
        return self.cluster.kubectl("exec", "-i", NAME, "--", *words, seconds=120, given=given)

    def end(self) -> dict[str, Any]:
        """Asks its first process to end; returns how it did."""
        self.run("sh", "-c", "kill -TERM 1")
        return until("it has ended", STOP_SECONDS, lambda: self._state().get("terminated"))

    def remove(self) -> None:
        """Takes the pod away and leaves its volume; harmless where there is none."""
        self.cluster.kubectl("delete", "pod", NAME, "--ignore-not-found", seconds=120)

    def forget(self) -> None:
        """Takes both away."""
        self.remove()
        self.cluster.kubectl("delete", "pvc", NAME, "--ignore-not-found")

    def _lacks(self) -> bool:
        reason = self._state().get("waiting", {}).get("reason")
        return reason in {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"}

    def _state(self) -> dict[str, Any]:
        status = self.cluster.get("pod", NAME).get("status", {})
        return dict(status.get("containerStatuses", [{}])[0].get("state", {}))


def _volume() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": {"name": NAME}, "spec": spec}


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": RESTRICTED,
        # From outside of the pod, so that it is ready only where it listens for others.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9310}},
        "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": ASSIGNED,
            "fsGroup": ASSIGNED,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture(scope="module")
def one(cluster: Cluster, all_in_one_image: str) -> Iterator[OneContainer]:
    """It runs and answers."""
    ours = OneContainer(cluster, all_in_one_image)
    ours.forget()
    ours.start()
    yield ours
    ours.forget()


def ask(one: OneContainer, client: ClientPod) -> dict[str, Any]:
    """What another pod is answered about the example."""
    url = f"http://{one.address}:8080/endpoints/{MODEL}"
    return dict(json.loads(client.python(_ASK, url, TEXT)))


def test_it_registers_the_example_and_answers_as_a_user_without_a_name(
    one: OneContainer, client: ClientPod
) -> None:
    assert f"uid={ASSIGNED} gid=0(root)" in one.run("id")
    said = ask(one, client)
    assert (said["status"], said["body"][0]["label"]) == (200, "positive")
    one.cluster.kubectl("wait", f"pod/{NAME}", "--for=condition=Ready", "--timeout=60s", seconds=70)


def test_others_reach_gateway_mlflow_and_page_and_neither_kafka_nor_triton(
    one: OneContainer, client: ClientPod
) -> None:
    ports = [8080, 8081, 9310, 5000, 9300, 9092, 9093, 8000, 8001, 8002, 9301, 9302, 9303]
    found = json.loads(client.python(_OPEN, one.address, json.dumps(ports)))
    assert found == [8080, 8081, 9310, 5000, 9300]


def test_a_version_that_is_registered_from_outside_is_converted_and_compared(
    one: OneContainer, client: ClientPod
) -> None:
    script = f"{SITE_PACKAGES}/headrace/example/register.py"
    uri = f"http://{one.address}:5000"
    client.run("python", "-P", script, "--tracking-uri", uri, "--variant", "v2", seconds=180)

    def in_shadow() -> bool:
        lines = json.loads(one.run("headrace", "models", "--json"))
        return [line["state"] for line in lines if line["version"] == "2"] == ["Shadow"]

    until("version 2 gets copies of requests", 300, in_shadow)


def test_what_has_ended_in_it_is_reaped(one: OneContainer) -> None:
    one.run("sh", "-c", "(sleep 0.1 &)")  # its parent ends first
    until("nothing is left unreaped", 30, lambda: not one.run("python", "-", given=_UNREAPED))


def test_it_ends_in_order_when_asked_and_goes_on_where_it_ended(
    one: OneContainer, client: ClientPod
) -> None:
    ended = one.end()
    assert ended["exitCode"] == 0, one.said()
    assert one.said().rstrip().endswith("Stopped.")
    one.remove()
    one.start()
    assert "registered in MLflow" not in one.said()
    assert ask(one, client)["status"] == 200

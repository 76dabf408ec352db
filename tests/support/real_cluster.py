"""The Kubernetes that KUBECONFIG names, a release of the chart in it, and a pod to call from.

Used by ``tests/cluster``. All goes through kubectl and helm, as people use them, and every command
has a deadline. It starts no cluster and builds no image.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import waiting

T = TypeVar("T")
Kill = Callable[[dict[str, Any], str], None]
"""Kills a pod's processes whose command holds the words."""

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "charts" / "headrace"
SITE_PACKAGES = "/opt/headrace/lib/python3.11/site-packages"
COMMAND_SECONDS = 60.0
CRD, RECORDS_CRD = "modelendpoints.headrace.dev", "endpointrecords.headrace.dev"
REHEARSAL_GROUP = "rehearsal.headrace.dev"  # of the definition that test_api_versions.py changes
# Made anew by Kubernetes itself, or of what has happened.
PASSING = ("event", "podmetrics", "endpointslice", "endpoints/", "lease", "controllerrevision")
STATEFUL = ("evaluate", "kafka", "mlflow")
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class CommandError(AssertionError):
    """kubectl or helm failed; the message is what it said."""


def until(what: str, seconds: float, check: Callable[[], T | None]) -> T:
    """``waiting.until``, asking twice a second: each question is a process."""
    return waiting.until(what, seconds, check, every_seconds=0.5)


@dataclass(frozen=True)
class Cluster:
    """One cluster and one namespace of it, which is the tests' own."""

    namespace: str

    def kubectl(self, *words: str, seconds: float = COMMAND_SECONDS, given: str = "") -> str:
        """Runs ``kubectl -n NAMESPACE WORDS``, with ``given`` as its input; returns its output."""
        return run(["kubectl", "-n", self.namespace, *words], seconds, given)

    def helm(self, *words: str, seconds: float = COMMAND_SECONDS) -> str:
        """Runs ``helm -n NAMESPACE WORDS``, or that of ``HELM``; returns its output."""
        return run([os.environ.get("HELM", "helm"), "-n", self.namespace, *words], seconds)

    def get(self, *words: str) -> dict[str, Any]:
        """``kubectl get WORDS`` as an object; empty where there is none."""
        said = self.kubectl("get", *words, "--ignore-not-found", "-o", "json")
        return dict(json.loads(said)) if said.strip() else {}

    def objects(self) -> set[str]:
        """All that lies in the namespace, as ``kind/name``, but for what only passes."""
        kinds = self.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
        said = self.kubectl("get", ",".join(kinds), "-o", "name", "--ignore-not-found")
        return {name for name in said.split() if not name.startswith(PASSING)}

    def cluster_objects(self) -> set[str]:
        """Those of its objects outside of namespaces that a chart could make."""
        kinds = ("clusterroles,clusterrolebindings,customresourcedefinitions,priorityclasses,"
                 "storageclasses,validatingwebhookconfigurations,mutatingwebhookconfigurations,"
                 "apiservices")  # fmt: skip
        return set(self.kubectl("get", kinds, "-o", "name").split())

    def trouble(self) -> str:
        """What a person would look at first when something does not come up."""
        parts = [self.kubectl("get", "pods,jobs,mep", "-o", "wide", "--ignore-not-found")]
        with contextlib.suppress(CommandError):
            parts.append(self.kubectl("get", "events", "--field-selector=type=Warning"))
        for pod in self.get("pods").get("items", []):
            ready = all(c["ready"] for c in pod["status"].get("containerStatuses", [{"ready": 0}]))
            if not ready and pod["status"].get("phase") != "Succeeded":
                with contextlib.suppress(CommandError):
                    name = pod["metadata"]["name"]
                    logs = self.kubectl("logs", name, "--all-containers", "--tail=20")
                    parts.append(f"--- {name}\n{logs}")
        return "\n".join(parts)


@dataclass(frozen=True)
class Release:
    """The chart, installed with its embedded parts."""

    cluster: Cluster
    values: Path
    images: Mapping[str, str]  # values of the chart
    name: str = "headrace"

    def install(self, *flags: str, seconds: float = 600) -> str:
        """Installs or upgrades, and waits until all is ready; returns what helm said."""
        sets = [
            word
            for name, value in self.images.items()
            for word in ("--set-string", f"{name}={value}")
        ]
        command = ["upgrade", "--install", self.name, str(CHART), "--values", str(self.values)]
        deadline = ["--wait", "--timeout", f"{seconds:.0f}s"]
        try:
            return self.cluster.helm(*command, *sets, *deadline, *flags, seconds=seconds + 30)
        except CommandError as error:
            raise CommandError(f"{error}\n{self.cluster.trouble()}") from error

    def is_installed(self) -> bool:
        """Whether helm knows it as deployed."""
        said = json.loads(self.cluster.helm("list", "--deployed", "-o", "json"))
        return self.name in [each["name"] for each in said]

    def is_known(self) -> bool:
        """Whether helm knows it at all, be it well or not."""
        states = ("--deployed", "--failed", "--pending", "--uninstalling")  # helm 4 has no --all
        return bool(json.loads(self.cluster.helm("list", *states, "-o", "json")))

    def uninstall(self) -> str:
        """Uninstalls; returns what helm said."""
        return self.cluster.helm("uninstall", self.name, "--wait", "--timeout", "180s", seconds=200)

    def forget(self) -> None:
        """Uninstalls it where it is installed, with the endpoints and volumes that it left."""
        if self.is_known():
            self.uninstall()
        if self.cluster.get("crd", CRD):
            self.cluster.kubectl("delete", "mep", "--all")
        self.cluster.kubectl("delete", "pvc", "--all", "--timeout=60s", seconds=70)

    def rollback(self, seconds: float = 600) -> str:
        """Goes back to the revision before, and waits until all is ready."""
        deadline = ["--wait", "--timeout", f"{seconds:.0f}s"]
        return self.cluster.helm("rollback", self.name, *deadline, seconds=seconds + 30)

    def scale(self, component: str, pods: int) -> None:
        """Scales a component, and waits until it has just so many pods, all ready."""
        self.cluster.kubectl("scale", self._owner(component), f"--replicas={pods}")
        self.until_ready(component)
        until(f"{pods} pods of {component}", 120, lambda: len(self.pods(component)) == pods)

    def until_ready(self, component: str) -> None:
        """Waits until all pods of a component are as asked, and ready."""
        self.cluster.kubectl(
            "rollout", "status", self._owner(component), "--timeout=300s", seconds=310
        )

    def delete_one_pod(self, component: str) -> None:
        """Deletes a pod and waits until it is gone."""
        name = self.pods(component)[0]["metadata"]["name"]
        self.cluster.kubectl("delete", "pod", name, "--timeout=180s", seconds=190)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """A component's pods, those on their way out included."""
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        return list(self.cluster.get("pods", "-l", labels).get("items", []))

    def addresses(self, component: str) -> list[str]:
        """Where a component's pods listen, in the order of their names."""
        pods = sorted(self.pods(component), key=lambda pod: str(pod["metadata"]["name"]))
        return [pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"]]

    def _owner(self, component: str) -> str:
        kind = "statefulset" if component in STATEFUL else "deployment"
        return f"{kind}/{self.host(component)}"

    def host(self, component: str) -> str:
        """A component's Service, as pods of the namespace know it."""
        return f"{self.name}-{component}"


@dataclass(frozen=True)
class ClientPod:
    """A pod with MLflow's client and ours of HTTP and gRPC, as a user's own pod would be."""

    cluster: Cluster
    name: str = "client"

    def start(self, image: str) -> None:
        """Starts it and waits until it runs."""
        container = {
            "name": "client",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "infinity"],
            # Without, it is the first to starve where many pods start: it would be silent for
            # seconds and then send all that was due at once.
            "resources": {"requests": {"cpu": "250m", "memory": "128Mi"}},
            "securityContext": RESTRICTED,
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}, "spec": spec}
        self.cluster.kubectl("apply", "-f", "-", given=json.dumps(pod))
        try:
            self.cluster.kubectl(
                "wait", f"pod/{self.name}", "--for=condition=Ready", "--timeout=120s", seconds=130
            )
        except CommandError as error:
            raise CommandError(f"{error}\n{self.cluster.trouble()}") from error

    def run(self, *words: str, seconds: float = COMMAND_SECONDS, given: str = "") -> str:
        """Runs a command in it; returns its output."""
        return self.cluster.kubectl(
            "exec", "-i", self.name, "--", *words, seconds=seconds, given=given
        )

    def python(self, program: str, *words: str, seconds: float = COMMAND_SECONDS) -> str:
        """Runs a Python program in it; returns what it printed."""
        return self.run("python", "-P", "-", *words, seconds=seconds, given=program)


def run(command: list[str], seconds: float, given: str = "") -> str:
    """Runs a command to its end; returns what it printed.

    Raises:
        CommandError: it failed, or took longer; with what it said.
    """
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)} took more than {seconds:.0f} s") from error
    if done.returncode != 0:
        said = f"{done.stdout[-4000:]}{done.stderr[-4000:]}".strip()
        raise CommandError(f"{' '.join(command)} failed with {done.returncode}:\n{said}")
    return done.stdout

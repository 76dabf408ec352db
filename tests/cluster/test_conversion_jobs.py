"""A real API server takes the Jobs that the controller makes, and none that reaches further."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes
import pytest
from conversion_template import request as conversion
from helm_chart import LIGHT, manifests, one, policies
from kubernetes.client import ApiException
from real_api_server import real_api_server
from real_policies import in_force

from registry.conversions import job_manifest

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

ON = "conversion.verifyJobs=true"
POD = {
    "env": [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "one-key", "key": "a"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "one-value", "key": "b"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    ],
    "extraEnvFrom": [{"secretRef": {"name": "proxy"}}, {"configMapRef": {"name": "region"}}],
    "extraVolumes": [
        {"name": "ours", "secret": {"secretName": "mounted"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "packages"}},
        {"name": "audit", "csi": {"driver": "csi.example.com", "volumeAttributes": {"of": "us"}}},
        {"name": "share", "nfs": {"server": "nfs.example.com", "path": "/packages"}},
        {
            "name": "cloud",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "audience": "cloud"}},
                    {"secret": {"name": "projected-secret"}},
                    {"configMap": {"name": "projected-map"}},
                ]
            },
        },
    ],
    "initContainers": [{"name": "before", "image": "registry.example.com/before:1"}],
    "sidecars": [
        {
            "name": "beside",
            "image": "registry.example.com/beside:1",
            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
        }
    ],
}
VALUES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "all that values can say": (
        'trust.configMap="authorities"',
        'images.pullSecrets=["pull"]',
        'mlflow.url="https://mlflow.example.com"',
        'mlflow.existingSecret="mlflow-login"',
        'packages.storeUrl="s3://bucket/headrace"',
        'packages.existingSecret="store"',
        'conversion.serviceAccount={"create": false, "name": "theirs"}',
        f"conversion.pod={json.dumps(POD)}",
        *(
            f'conversion.scheduling.{name}="of-theirs"'
            for name in ("priorityClassName", "runtimeClassName")
        ),
    ),
    "an own secret": ('conversion.existingSecret="conversions"',),
}
Change = Callable[[dict[str, Any]], None]


def with_(**fields: Any) -> Change:
    """Says something else of the pod."""
    return lambda pod: pod.update(fields)


def container(**fields: Any) -> Change:
    """Says something else of the container that converts."""
    return lambda pod: pod["containers"][0].update(fields)


def before(**fields: Any) -> Change:
    """Has a container first, of the image that converts."""

    def change(pod: dict[str, Any]) -> None:
        first = {"name": "first", "image": pod["containers"][0]["image"], **fields}
        pod["initContainers"] = [*pod.get("initContainers", []), first]

    return change


def volume(**source: Any) -> Change:
    return lambda pod: pod["volumes"].append({"name": "further", **source})


def env(source: dict[str, Any]) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": source}]}


KEY = {"secretKeyRef": {"name": "demo-headrace-index", "key": "keys"}}
VALUE = {"configMapKeyRef": {"name": "another", "key": "a"}}
BEYOND: dict[str, Change] = {
    "account": with_(serviceAccountName="demo-headrace-controller", serviceAccount=None),
    "token": with_(automountServiceAccountToken=True),
    "token by default": lambda pod: pod.pop("automountServiceAccountToken"),
    "image": container(image="registry.example.com/another:1"),
    "image of a container before it": before(image="registry.example.com/another:1"),
    "network of the node": with_(hostNetwork=True),
    "processes of the node": with_(hostPID=True),
    "memory of the node": with_(hostIPC=True),
    "privileged": container(securityContext={"privileged": True}),
    "capabilities": before(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "variable of a Secret": container(**env(KEY)),
    "variable of a Secret, before it": before(**env(KEY)),
    "variable of a ConfigMap": container(**env(VALUE)),
    "variables of a Secret": container(envFrom=[{"secretRef": {"name": "another"}}]),
    "variables of a ConfigMap": before(envFrom=[{"configMapRef": {"name": "another"}}]),
    "login of a registry": with_(imagePullSecrets=[{"name": "another"}]),
    "Secret": volume(secret={"secretName": "demo-headrace-index"}),
    "ConfigMap": volume(configMap={"name": "another"}),
    "projected Secret": volume(projected={"sources": [{"secret": {"name": "another"}}]}),
    "projected ConfigMap": volume(projected={"sources": [{"configMap": {"name": "another"}}]}),
    "projected token": volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
    "folder of the node": volume(hostPath={"path": "/"}),
    "claim": volume(persistentVolumeClaim={"claimName": "another"}),
    "volume of CSI": volume(csi={"driver": "another.example.com"}),
    "other volume of CSI": volume(
        csi={"driver": "csi.example.com", "volumeAttributes": {"of": "others"}}
    ),
    "login of a volume of CSI": volume(
        csi={
            "driver": "csi.example.com", "volumeAttributes": {"of": "us"},
            "nodePublishSecretRef": {"name": "another"},
        }
    ),
    "volume of another kind": volume(nfs={"server": "nfs.example.com", "path": "/"}),
}  # fmt: skip


class Account:
    """An account that makes Jobs; nothing of them is kept."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace = namespace
        api = kubernetes.config.new_client_from_config()
        api.set_default_header("Impersonate-User", name)
        api.set_default_header("Impersonate-Group", "system:masters")
        self._jobs = kubernetes.client.BatchV1Api(api)

    def is_refused(self, job: dict[str, Any]) -> bool:
        """Whether the policy refuses the Job; raises where something else does."""
        job = {**job, "metadata": {**job["metadata"], "namespace": self._namespace}}
        try:
            self._jobs.create_namespaced_job(
                self._namespace, job, dry_run="All", _request_timeout=10
            )
        except ApiException as error:
            if error.status != 403 or "a conversion's Job has" not in str(error.body):
                raise
            return True
        return False


def controller(settings: tuple[str, ...]) -> str:
    """The account that the policy looks at."""
    found = one(policies("jobs", ON, *settings), "ValidatingAdmissionPolicy", "")
    (who,) = found["spec"]["matchConditions"]
    return str(who["expression"].split(" == ")[1].strip("'"))


def changed(job: dict[str, Any], change: Change) -> dict[str, Any]:
    job = copy.deepcopy(job)
    change(job["spec"]["template"]["spec"])
    return job


def job_of(settings: tuple[str, ...]) -> dict[str, Any]:
    """A Job as the controller makes it of the chart's template."""
    file = one(manifests("", *LIGHT, *settings), "ConfigMap", "-conversion")["data"]["job.json"]
    base = job_manifest.template(file)
    return job_manifest.job(base, conversion(), owner=None, timeout_seconds=60)


@pytest.fixture
def namespace() -> Iterator[str]:
    with real_api_server() as ours:
        yield ours.namespace


@pytest.mark.parametrize("values", VALUES)
def test_the_controllers_jobs_are_held_to_the_charts(namespace: str, values: str) -> None:
    settings = VALUES[values]
    job, ours = job_of(settings), Account(namespace, controller(settings))
    beyond = changed(job, BEYOND["account"])
    with in_force("jobs", namespace, lambda: ours.is_refused(beyond), ON, *settings):
        assert not ours.is_refused(job)
        refused = {name for name, change in BEYOND.items() if ours.is_refused(changed(job, change))}
        assert refused == BEYOND.keys()
        assert not Account(namespace, "somebody").is_refused(beyond)

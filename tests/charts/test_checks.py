"""What the chart asks a cluster before it installs anything, against one that answers by hand."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_kubernetes import write_kubeconfig
from helm_chart import CHART, KUBERNETES, LIGHT, SPACE, helm
from http_server import Answer, Request, http_server

# What the chart makes and asks for: helm 4 finds every kind before it says that it can install.
KINDS = {
    "v1": ("Secret", "ServiceAccount", "Service", "ConfigMap", "Pod", "Namespace"),
    "apps/v1": ("Deployment", "StatefulSet"),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding", "ClusterRole"),
    "storage.k8s.io/v1": ("StorageClass",),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
}
WIDE = {"Namespace", "ClusterRole", "StorageClass", "CustomResourceDefinition"}
DEFINITION = "modelendpoints.headrace.dev"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
OWN_KAFKA = ("kafka.bootstrapServers[0]=kafka.example:9092", "kafka.existingSecret=named")
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def plural(kind: str) -> str:
    """A kind's name in paths."""
    return (kind.lower() + ("es" if kind.endswith("s") else "s")).replace("ys", "ies")


def resources(version: str) -> dict[str, Any]:
    """What the cluster says that it knows."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": [
            {"name": plural(kind), "kind": kind, "namespaced": kind not in WIDE, "verbs": ["get"]}
            for kind in KINDS[version]
        ],
    }


def group_of(name: str) -> dict[str, Any]:
    """How the cluster lists a group of kinds."""
    group, _, number = name.partition("/")
    version = {"groupVersion": name, "version": number}
    return {"name": group, "versions": [version], "preferredVersion": version}


class Cluster:
    """An API server that knows Secrets and StorageClasses, and what helm asks besides."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        groups = [group_of(version) for version in KINDS if "/" in version]
        self.at: dict[str, dict[str, Any]] = {
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
            "/api/v1": resources("v1"),
            **{f"/apis/{version}": resources(version) for version in KINDS},
        }
        self.add("/api/v1/namespaces/kube-system", "Namespace", "kube-system")
        self.add(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default", "ServiceAccount", "default")
        self.classes()

    def add(
        self, path: str, kind: str, name: str, owner: str = "demo/" + SPACE, **more: object
    ) -> None:
        """An object as a release made it, RELEASE/NAMESPACE."""
        release, _, namespace = owner.partition("/")
        metadata = {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": release,
                "meta.helm.sh/release-namespace": namespace,
            },
        }
        self.at[path] = {"kind": kind, "apiVersion": "v1", "metadata": metadata, **more}

    def definition(self, release: str, namespace: str) -> None:
        """The ModelEndpoint definition, as a release installed it."""
        path = f"{CRDS}/{DEFINITION}"
        self.add(path, "CustomResourceDefinition", DEFINITION, f"{release}/{namespace}")

    def secret(self, name: str, **data: str) -> None:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        self.add(f"/api/v1/namespaces/{SPACE}/secrets/{name}", "Secret", name, data=encoded)

    def deployment(self, name: str, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/{name}"
        self.add(path, "Deployment", name, spec={"replicas": replicas})

    def controllers(self, *releases: str) -> None:
        """The controllers of these releases, in the namespace that is installed into."""
        names = ("name", "instance", "component", "part-of")
        items = []
        for release in releases:
            values = ("headrace", release, "controller", "headrace")
            labels = dict(zip((f"app.kubernetes.io/{name}" for name in names), values, strict=True))
            items.append({"metadata": {"name": f"{release}-headrace-controller", "labels": labels}})
        self.at[f"/apis/apps/v1/namespaces/{SPACE}/deployments"] = {
            "kind": "DeploymentList",
            "apiVersion": "apps/v1",
            "metadata": {},
            "items": items,
        }

    def classes(self, **annotations: dict[str, str]) -> None:
        self.at[CLASSES] = {
            "kind": "StorageClassList",
            "apiVersion": "storage.k8s.io/v1",
            "metadata": {},
            "items": [
                {"metadata": {"name": name, "annotations": found}}
                for name, found in annotations.items()
            ],
        }

    def helm(self, *settings: str) -> subprocess.CompletedProcess[str]:
        """What helm renders, or says, with this cluster at hand."""
        command = [helm(), "template", "demo", str(CHART), "--namespace", SPACE]
        command += ["--dry-run=server", "--kube-version", KUBERNETES]
        command += ["--disable-openapi-validation"]
        command += ["--kubeconfig", str(self._folder / "kubeconfig")]
        command += [word for setting in (*LIGHT, *settings) for word in ("--set", setting)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(self._folder)},
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    ours = Cluster(tmp_path)

    def answer(request: Request) -> Answer:
        missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        found = ours.at.get(request.path)
        as_json = {"content-type": "application/json"}
        return Answer(200 if found else 404, found or missing, headers=as_json)

    with http_server(answer) as url:
        write_kubeconfig(tmp_path, url)
        yield ours


def test_a_secret_that_is_not_there_is_named_with_its_value(cluster: Cluster) -> None:
    cluster.classes(standard=DEFAULT)
    done = cluster.helm("gateway.keys.existingSecret=no-such")
    assert done.returncode != 0
    assert 'gateway.keys.existingSecret names the Secret "no-such"' in done.stderr
    assert f'namespace "{SPACE}" has none of that name' in done.stderr


@pytest.mark.parametrize(
    ("settings", "value", "kind"),
    [
        (["trust.configMap=gone"], "trust.configMap", "ConfigMap"),
        (
            ["mlflow.webhook.enabled=true", "mlflow.webhook.existingSecret=gone"],
            "mlflow.webhook.existingSecret",
            "Secret",
        ),
    ],
)
def test_nothing_that_is_not_there_is_mounted(
    cluster: Cluster, settings: list[str], value: str, kind: str
) -> None:
    cluster.classes(standard=DEFAULT)
    assert f'{value} names the {kind} "gone"' in cluster.helm(*settings).stderr


def test_a_namespace_that_is_yet_to_be_made_has_no_secret(cluster: Cluster) -> None:
    cluster.classes(standard=DEFAULT)
    del cluster.at[f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"]
    assert f'namespace "{SPACE}" has none' in cluster.helm("gateway.keys.existingSecret=k").stderr
    assert cluster.helm().returncode == 0


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        (["gateway.keys.existingSecret=named"], "keys"),
        (["gateway.keys.existingSecret=named", "gateway.keys.key=file"], "file"),
        (["gateway.feedback.existingSecret=named"], "receipts"),
        (["gateway.tls.existingSecret=named"], "tls.crt"),
        (["triton.tls.existingSecret=named"], "ca.crt"),
        (["controller.indexKey.existingSecret=named"], "keys"),
        (["mlflow.webhook.enabled=true", "mlflow.webhook.existingSecret=named"], "keys"),
        (["trust.configMap=named"], "ca.crt"),
    ],
)
def test_a_key_that_a_secret_lacks_is_named(
    cluster: Cluster, settings: list[str], lacking: str
) -> None:
    cluster.classes(standard=DEFAULT)
    cluster.secret("named", other="")
    cluster.add(f"/api/v1/namespaces/{SPACE}/configmaps/named", "ConfigMap", "named")
    assert f'which lacks the key "{lacking}"' in cluster.helm(*settings).stderr


@pytest.mark.parametrize(
    ("data", "lacking"),
    [
        ({"mechanism": "OAUTHBEARER\n"}, "token-url"),
        ({"mechanism": "OAUTHBEARER", "token-url": "https://a/t"}, "client-id"),
        (
            {"mechanism": "OAUTHBEARER", "token-url": "https://a/t", "client-id": "a"},
            "client-secret",
        ),
        ({"username": "ann"}, "password"),
    ],
)
def test_a_key_that_kafkas_mechanism_needs_is_named(
    cluster: Cluster, data: dict[str, str], lacking: str
) -> None:
    cluster.classes(standard=DEFAULT)
    cluster.secret("named", **data)
    assert f'which lacks the key "{lacking}"' in cluster.helm(*OWN_KAFKA).stderr


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        ({"mechanism": "OAUTHBEARER", "token": "t"}, ()),
        ({"mechanism": "OAUTHBEARER"}, ("kafka.tokenAudience=kafka",)),
        ({"mechanism": "AWS_MSK_IAM"}, ()),
        ({"ca.crt": "a certificate"}, ()),
        ({"username": "ann", "password": "p"}, ()),
    ],
)
def test_a_secret_with_what_kafkas_mechanism_needs_is_taken(
    cluster: Cluster, data: dict[str, str], settings: tuple[str, ...]
) -> None:
    cluster.classes(standard=DEFAULT)
    cluster.secret("named", **data)
    done = cluster.helm(*OWN_KAFKA, *settings)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_there_is_installed(cluster: Cluster) -> None:
    cluster.classes(standard=DEFAULT)
    cluster.secret("api-keys", keys="{}")
    bundle = {"ca.crt": "a certificate"}
    path = f"/api/v1/namespaces/{SPACE}/configmaps/bundle"
    cluster.add(path, "ConfigMap", "bundle", data=bundle)
    done = cluster.helm("gateway.keys.existingSecret=api-keys", "trust.configMap=bundle")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_default_storage_class_the_value_to_set_is_named(cluster: Cluster) -> None:
    cluster.classes(other={})
    said = cluster.helm().stderr
    assert "mlflow.embedded.persistence wants a volume" in said
    assert "no default StorageClass" in said
    named = ("mlflow.embedded", "kafka.embedded")
    done = cluster.helm(*(f"{part}.persistence.storageClass=other" for part in named))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_storage_class_that_is_not_there_is_named(cluster: Cluster) -> None:
    cluster.classes(standard=DEFAULT)
    said = cluster.helm("kafka.embedded.persistence.storageClass=gone").stderr
    assert 'kafka.embedded.persistence.storageClass is "gone"' in said


def test_the_checks_can_be_left_out(cluster: Cluster) -> None:
    done = cluster.helm("gateway.keys.existingSecret=no-such", "checks=false")
    assert (done.returncode, done.stderr) == (0, "")


def made(text: str, name: str, key: str) -> str:
    for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if manifest and (manifest["kind"], manifest["metadata"]["name"]) == ("Secret", name):
            return base64.b64decode(manifest["data"][key]).decode()
    raise AssertionError("no Secret")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("demo-headrace-receipts", "receipts"),
        ("demo-headrace-index", "keys"),
        ("demo-headrace-webhook", "keys"),
    ],
)
def test_a_key_that_signs_is_made_once_and_kept_by_an_upgrade(
    cluster: Cluster, name: str, key: str
) -> None:
    cluster.classes(standard=DEFAULT)
    webhook = "mlflow.webhook.enabled=true"
    first, other = (made(cluster.helm(webhook).stdout, name, key) for _ in range(2))
    assert first != other
    assert len(bytes.fromhex(first.strip())) == 32
    cluster.secret(name, **{key: first})
    assert made(cluster.helm(webhook).stdout, name, key) == first


def test_the_key_by_which_mlflow_keeps_secrets_is_one_that_it_takes_and_stays(
    cluster: Cluster,
) -> None:
    cluster.classes(standard=DEFAULT)
    name, webhook = "demo-headrace-webhook", "mlflow.webhook.enabled=true"
    keys = [made(cluster.helm(webhook).stdout, name, "encryption") for _ in range(8)]
    assert len(set(keys)) == 8
    assert {len(base64.b64decode(key, altchars=b"-_", validate=True)) for key in keys} == {32}
    cluster.secret(name, encryption=keys[0], keys="ab" * 32)
    assert made(cluster.helm(webhook).stdout, name, "encryption") == keys[0]


def test_a_definition_that_another_release_left_is_told_with_the_way_out(cluster: Cluster) -> None:
    cluster.classes(fast=DEFAULT)
    cluster.definition("before", "elsewhere")
    said = cluster.helm("crd.install=true")
    assert said.returncode != 0
    assert 'belongs to the release "before" of the namespace "elsewhere"' in said.stderr
    assert f"meta.helm.sh/release-name=demo meta.helm.sh/release-namespace={SPACE}" in said.stderr
    assert cluster.helm("crd.install=false").returncode == 0


def test_ones_own_definition_is_no_fault(cluster: Cluster) -> None:
    cluster.classes(fast=DEFAULT)
    cluster.definition("demo", SPACE)
    said = cluster.helm("crd.install=true")
    assert said.returncode == 0, said.stderr


def test_a_second_release_in_a_namespace_is_refused_whatever_is_said_of_the_definition(
    cluster: Cluster,
) -> None:
    cluster.classes(fast=DEFAULT)
    cluster.definition("before", SPACE)
    cluster.controllers("before")
    for install in ("true", "false"):
        done = cluster.helm(f"crd.install={install}")
        assert done.returncode != 0
        assert f'namespace "{SPACE}" has the release "before" of Headrace' in done.stderr
        assert "a namespace of its own" in done.stderr
        assert "before-headrace-controller" in done.stderr


def test_an_upgrade_finds_its_own_controller_and_goes_on(cluster: Cluster) -> None:
    cluster.classes(fast=DEFAULT)
    cluster.controllers("demo")
    done = cluster.helm()
    assert (done.returncode, done.stderr) == (0, "")


def replicas(text: str) -> dict[str, int | None]:
    """How many pods each Deployment asks for; None where the line is left out."""
    return {
        manifest["metadata"]["name"]: manifest["spec"].get("replicas")
        for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if manifest and manifest["kind"] == "Deployment"
    }


def test_an_upgrade_that_turns_autoscaling_on_keeps_the_pods_there_are(cluster: Cluster) -> None:
    cluster.classes(fast=DEFAULT)
    on = "gateway.autoscaling.enabled=true"
    assert replicas(cluster.helm(on).stdout)["demo-headrace-gateway"] is None
    cluster.deployment("demo-headrace-gateway", 5)
    assert replicas(cluster.helm(on).stdout)["demo-headrace-gateway"] == 5
    off = cluster.helm("gateway.replicas=3").stdout
    assert replicas(off)["demo-headrace-gateway"] == 3

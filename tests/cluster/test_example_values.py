"""Those of ``examples/values`` that a cluster of one node takes are installed, as they stand.

Operators are not there. Where a file makes objects for one, the cluster gets a definition of their
kind that takes everything: ``tests/charts`` holds the objects to the operators' own schemas.
"""

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_walk import register, until_answered, until_serving
from real_cluster import CHART, ROOT, ClientPod, Cluster, CommandError, Release

from gateway.admission.key_file import Grant, issue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

FOLDER = ROOT / "examples" / "values"
MONITORING = "monitoring.coreos.com"
GATEWAYS = "gateway.networking.k8s.io"


@dataclass(frozen=True)
class Kind:
    """A kind of an operator's: group, version and both names."""

    group: str
    version: str
    plural: str
    name: str

    def definition(self) -> dict[str, Any]:
        """A definition that takes everything."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        names = {"plural": self.plural, "kind": self.name}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{self.plural}.{self.group}",
                # Without it the API server takes no definition of a group of Kubernetes' own.
                "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
            },
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Namespaced",
                "versions": [version],
            },
        }


KINDS = {
    "cert-manager-gateway-api.yaml": (
        Kind(GATEWAYS, "v1", "gateways", "Gateway"),
        Kind(GATEWAYS, "v1", "httproutes", "HTTPRoute"),
        Kind(GATEWAYS, "v1", "grpcroutes", "GRPCRoute"),
    ),
    "keda.yaml": (Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"),),
    "kube-prometheus-stack.yaml": (
        Kind(MONITORING, "v1", "servicemonitors", "ServiceMonitor"),
        Kind(MONITORING, "v1", "prometheusrules", "PrometheusRule"),
    ),
}
# What a node of two cores has no room for.
SMALLER = {"keda.yaml": ("--set=gateway.resources.requests.cpu=50m",)}


def test_kind_answers(absent: Release, client: ClientPod) -> None:
    of_values(absent, "kind.yaml").install()
    register(absent, client)
    served = until_serving(absent)
    assert until_answered(absent, client)["version"] == served
    assert len(absent.pods("gateway")) == 1


@pytest.mark.parametrize("name", list(KINDS))
def test_an_example_for_an_operator_installs_beside_its_objects(absent: Release, name: str) -> None:
    kinds = KINDS[name]
    with defined(absent.cluster, kinds), secret(absent.cluster, "api-keys", "keys", key_line()):
        of_values(absent, name).install(*SMALLER.get(name, ()))
        for kind in kinds:
            assert absent.cluster.get(f"{kind.plural}.{kind.group}")["items"], kind.name
        absent.uninstall()
        for kind in kinds:
            assert not absent.cluster.get(f"{kind.plural}.{kind.group}").get("items"), kind.name


def test_argo_cd_applies_what_it_rendered_and_an_endpoint_of_git(
    absent: Release, client: ClientPod
) -> None:
    cluster, name = absent.cluster, "argo-cd.yaml"
    key = secrets.token_hex(32)
    with secret(cluster, "receipts", "receipts", key), secret(cluster, "index-key", "keys", key):
        made = rendered(absent, FOLDER / name)
        assert rendered(absent, FOLDER / name) == made  # a second sync changes nothing
        try:
            forced = ("apply", "--server-side", "--force-conflicts")
            cluster.kubectl(*forced, "-f", "-", given=made, seconds=120)
            for component in ("gateway", "controller", "triton", "mlflow", "kafka"):
                absent.until_ready(component)
            endpoint = (FOLDER / "endpoints-in-git.yaml").read_text(encoding="utf-8")
            pinned = endpoint.replace('pin: "7"', 'pin: "1"')
            assert pinned != endpoint
            cluster.kubectl("apply", "--server-side", "-f", "-", given=pinned)
            register(absent, client)
            assert until_serving(absent, "sentiment") == "1"
        except CommandError as error:
            raise CommandError(f"{error}\n{cluster.trouble()}") from error
        finally:
            remove(cluster, made)


def test_an_api_server_takes_the_objects_of_the_cloud(absent: Release) -> None:
    made = rendered(absent, ROOT / "examples/cloud/eks/values.yaml")
    absent.cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", given=made)


def of_values(release: Release, name: str) -> Release:
    """The release with a file of ``examples/values`` and nothing of the tests' own."""
    return replace(release, values=FOLDER / name)


def rendered(release: Release, values: Path) -> str:
    """What helm renders without asking the cluster, as Argo CD has it rendered."""
    said = json.loads(release.cluster.kubectl("version", "-o", "json"))
    version = f"--kube-version={said['serverVersion']['gitVersion']}"
    sets = [
        word for key, value in release.images.items() for word in ("--set-string", f"{key}={value}")
    ]
    words = (release.name, str(CHART), "--values", str(values), *sets)
    return release.cluster.helm("template", *words, version, "--skip-tests")


def remove(cluster: Cluster, made: str) -> None:
    """Takes away what was applied, endpoints before what serves them, and its volumes."""
    gone = ("--ignore-not-found", "--timeout=180s")
    cluster.kubectl("delete", "mep", "--all", *gone, seconds=190)
    objects = [each for each in yaml.safe_load_all(made) if each]
    text = yaml.safe_dump_all(reversed(objects))
    cluster.kubectl("delete", *gone, "-f", "-", given=text, seconds=300)
    cluster.kubectl("delete", "pvc", "--all", *gone, seconds=190)


@contextlib.contextmanager
def defined(cluster: Cluster, kinds: Sequence[Kind]) -> Iterator[None]:
    """The cluster knows the kinds; those that it did not know before it forgets at the end."""
    made = []
    for kind in kinds:
        definition = kind.definition()
        if not cluster.get("crd", definition["metadata"]["name"]):
            cluster.kubectl("create", "-f", "-", given=json.dumps(definition))
            made.append(f"crd/{definition['metadata']['name']}")
    try:
        for name in made:
            cluster.kubectl("wait", name, "--for=condition=Established", "--timeout=30s")
        yield
    finally:
        for name in made:
            cluster.kubectl("delete", name, "--timeout=50s")


@contextlib.contextmanager
def secret(cluster: Cluster, name: str, file: str, text: str) -> Iterator[None]:
    """A Secret with one file."""
    cluster.kubectl("create", "secret", "generic", name, f"--from-literal={file}={text}")
    try:
        yield
    finally:
        cluster.kubectl("delete", "secret", name, "--ignore-not-found")


def key_line() -> str:
    """The line of a file of API keys, of a key that opens the example."""
    _, record = issue("the tests", Grant(("sentiment-classifier",)))
    return record.model_dump_json(by_alias=True)

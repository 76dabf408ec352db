"""The files of ``examples/values``: each is rendered, has what it promises, and is on its page."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from helm_chart import LIGHT, OPERATOR, ROOT, Manifest, helm, manifests, one, pod_specs
from page_snippets import of

from headrace.endpoints import document

PAGE = ROOT / "docs/values-examples.md"
FOLDER = ROOT / "examples" / "values"
ENDPOINTS = FOLDER / "endpoints-in-git.yaml"
EKS = ROOT / "examples" / "cloud" / "eks" / "values.yaml"
FILES = [EKS, *sorted(path for path in FOLDER.glob("*.yaml") if path != ENDPOINTS)]
# Their own definitions come with the CRDs of the operators that read them.
FOREIGN = ("kafka.strimzi.io", "gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com")


def example(name: str) -> list[Manifest]:
    """The objects that an example makes, on a cluster with the Prometheus operator."""
    return objects_of(FOLDER / f"{name}.yaml")


def objects_of(path: Path) -> list[Manifest]:
    return manifests(str(path.with_suffix("")), *LIGHT, apis=OPERATOR)


def kinds(name: str) -> set[str]:
    return {manifest["kind"] for manifest in example(name)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_renders_objects_that_kubernetes_takes(path: Path) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate, which carries the schemas, is missing"
    )
    for manifest in objects_of(path):
        if not manifest["apiVersion"].startswith(FOREIGN):
            validator.validate(manifest, "1.34", strict=True)


def test_the_page_says_how_to_render_one(tmp_path: Path) -> None:
    (command,) = [each for each in of(PAGE) if each.kind == "run by"]
    (tmp_path / "helm").symlink_to(shutil.which(helm()) or helm())
    for name in ("charts", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run(
        ["bash", "-euc", command.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "rendered.yaml").read_text(encoding="utf-8")
    assert "s3://models/headrace" in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_key_of_an_example_is_said_twice(path: Path) -> None:
    """YAML's parsers take the last one and say nothing."""
    nodes = [yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(keys) == len(set(keys)), keys
            nodes += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value


def test_an_example_says_which_cluster_it_was_installed_on() -> None:
    installed = re.findall(
        r'"([a-z-]+\.yaml)"', (ROOT / "tests/cluster/test_example_values.py").read_text()
    )
    told = {path.name: path.read_text(encoding="utf-8") for path in FILES}
    for name, text in told.items():
        is_installed = "Installed by tests/cluster" in text
        assert is_installed == (name in installed), name
        assert is_installed or "Not installed by a test" in text, name


def test_every_example_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [
        path.name for path in FOLDER.iterdir() if f"examples/values/{path.name})" not in page
    ]
    assert missing == []


def test_each_account_that_uses_the_store_has_the_role_that_it_needs() -> None:
    role = "eks.amazonaws.com/role-arn"
    roles = {
        manifest["metadata"]["name"].removeprefix("demo-headrace-"): annotations[role].partition(
            "role/headrace-"
        )[2]
        for manifest in example("s3-cloud-role")
        if manifest["kind"] == "ServiceAccount"
        and role in (annotations := manifest["metadata"].get("annotations", {}))
    }
    readers = dict.fromkeys(("gateway", "triton", "evaluate"), "read")
    assert roles == readers | {"conversion": "convert", "controller": "decide"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("strimzi", {"KafkaUser"}),
        ("keda", {"ScaledObject"}),
        ("cert-manager-gateway-api", {"Gateway", "HTTPRoute", "GRPCRoute"}),
        ("kube-prometheus-stack", {"ServiceMonitor", "PrometheusRule"}),
    ],
)
def test_an_example_makes_the_objects_that_it_is_about(name: str, expected: set[str]) -> None:
    assert kinds(name) >= expected


def test_keda_alone_scales_what_its_example_says_that_it_scales() -> None:
    found = example("keda")
    scaled = [each["metadata"]["name"] for each in found if each["kind"] == "ScaledObject"]
    assert sorted(name.removeprefix("demo-headrace-") for name in scaled) == [
        "fold",
        "gateway",
        "triton",
    ]
    assert "HorizontalPodAutoscaler" not in {each["kind"] for each in found}


def test_parts_of_your_own_take_the_place_of_the_embedded_ones() -> None:
    names = {manifest["metadata"]["name"] for manifest in example("s3-cloud-role")}
    assert not {name for name in names if name.endswith(("-kafka", "-mlflow"))}


def test_gpus_are_asked_for_by_triton_alone() -> None:
    asking = [
        name
        for name, _, spec in pod_specs(example("gpu"))
        for container in spec["containers"]
        if "nvidia.com/gpu" in container.get("resources", {}).get("limits", {})
    ]
    assert asking == ["demo-headrace-triton"]


def test_argo_cd_renders_no_secret_that_would_change_each_time() -> None:
    assert "Secret" not in kinds("argo-cd")


def test_rules_carry_the_label_that_prometheus_selects_by() -> None:
    rule = one(example("kube-prometheus-stack"), "PrometheusRule", "headrace")
    assert rule["metadata"]["labels"]["release"] == "monitoring"


def test_the_endpoint_in_git_is_one_that_can_be_applied() -> None:
    (endpoint,) = document.read(ENDPOINTS.read_text(encoding="utf-8"), "-")
    assert endpoint.spec.version.model_dump() == {"pin": "7"}

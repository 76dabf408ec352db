"""Renders the chart with helm, once for each set of values; tests of the chart call it.

helm is the one on PATH, or the one that the variable HELM names. Where there is none a test skips.
"""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headrace"
VALUES = ROOT / "tests" / "charts" / "values"
SCHEMAS = ROOT / "tests" / "charts" / "schemas"
CASES = ("defaults", "own-parts", "gpu", "pools")
SPACE = "space"
KUBERNETES = "1.34"
# What a cluster with the Prometheus operator offers.
OPERATOR = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule")
# Without the largest files: helm takes half the time.
POLICIES = ("admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",)
LIGHT = ("crd.install=false", "monitoring.dashboards.enabled=false")
# Values of those that have pods.
COMPONENTS = (
    "gateway", "controller", "conversion", "stats.fold", "stats.evaluate", "triton",
    "kafka.embedded", "mlflow.embedded",
)  # fmt: skip

Manifest = dict[str, Any]


class RefusedError(Exception):
    """helm refused the values, with these words."""


def rendered(
    values: str = "", *settings: str, apis: Sequence[str] = (), chart: Path = CHART
) -> str:
    """helm's output.

    Args:
        values: a file in ``tests/charts/values``, without ``.yaml``.
        settings: ``path=JSON``, which win over the file.
        apis: what the cluster offers beyond Kubernetes' own.
        chart: a copy of the chart, to render in its place.

    Raises:
        RefusedError: helm does not render it.
    """
    return _template(values, settings, tuple(apis), chart)


def manifests(values: str = "", *settings: str, apis: Sequence[str] = ()) -> list[Manifest]:
    """The objects that helm would make; see ``rendered``."""
    return _parsed(rendered(values, *settings, apis=apis))


@functools.lru_cache(8)
def _parsed(text: str) -> list[Manifest]:
    return [manifest for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader) if manifest]


def everything(values: str) -> list[Manifest]:
    """The objects of a case, on a cluster with the Prometheus operator."""
    return manifests(values, apis=OPERATOR)


def policies(of: str, *settings: str, apis: Sequence[str] = POLICIES) -> list[Manifest]:
    """One of the chart's admission policies and its binding, where they are made."""
    return [
        each
        for each in manifests("", *LIGHT, *settings, apis=apis)
        if each["kind"].startswith("ValidatingAdmission")
        and each["metadata"]["name"].endswith(f".{of}.headrace.dev")
    ]


def refusal(*settings: str) -> str:
    """What helm says of values that it refuses."""
    with pytest.raises(RefusedError) as caught:
        rendered("", *LIGHT, *settings)
    return str(caught.value)


def pod_specs(found: Sequence[Manifest]) -> Iterator[tuple[str, Manifest, Manifest]]:
    """Name, metadata and spec of every pod that manifests bring forth, conversions' among them."""
    for manifest in found:
        name = manifest["metadata"]["name"]
        if manifest["kind"] in {"Deployment", "StatefulSet", "Job"}:
            template = manifest["spec"]["template"]
            yield name, template["metadata"], template["spec"]
        elif manifest["kind"] == "Pod":
            yield name, manifest["metadata"], manifest["spec"]
        elif manifest["kind"] == "ConfigMap" and "job.json" in manifest["data"]:
            template = yaml.safe_load(manifest["data"]["job.json"])["spec"]["template"]
            yield name, template["metadata"], template["spec"]


def containers(spec: Manifest) -> list[Manifest]:
    """A pod's containers, those that start first before the others."""
    found: list[Manifest] = spec.get("initContainers", []) + spec["containers"]
    return found


def other_kinds() -> list[str]:
    """Kinds that are not Kubernetes' own, whose schemas are in ``tests/charts/schemas``."""
    return sorted(path.stem for path in SCHEMAS.glob("*.json"))


@functools.cache
def other_schema(kind: str) -> Any:
    """The schema of a kind of Gateway API 1.3, the Prometheus operator 0.85 or KEDA 2.17.

    Out of its CRD: without descriptions, and closed to what it does not name.
    """
    return jsonschema_rs.validator_for(json.loads((SCHEMAS / f"{kind}.json").read_bytes()))


def one(found: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The object of a kind whose name ends so."""
    (manifest,) = [
        manifest
        for manifest in found
        if manifest["kind"] == kind and manifest["metadata"]["name"].endswith(name)
    ]
    return manifest


@functools.cache
def _found() -> str | None:
    return os.environ.get("HELM") or shutil.which("helm")


def helm() -> str:
    """The program; a test that asks for it skips where there is none."""
    found = _found()
    if found is None:
        pytest.skip("helm is not on PATH, and HELM names none: the chart can't be rendered here")
    return found


@functools.cache
def _template(values: str, settings: tuple[str, ...], apis: tuple[str, ...], chart: Path) -> str:
    command = [helm(), "template", "demo", str(chart), "--namespace", SPACE]
    command += ["--kube-version", KUBERNETES]
    command += ["--values", str(VALUES / f"{values}.yaml")] if values else []
    command += [word for setting in settings for word in ("--set-json", setting)]
    command += [word for api in apis for word in ("--api-versions", api)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout

"""The files that the chart packs are current: dashboards, rules, values and their table."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from helm_chart import CHART, OPERATOR, ROOT, helm, manifests, one

from contracts.endpoint import ModelEndpoint

GENERATED = ROOT / "dashboards" / "generated"
DASHBOARDS = sorted(path.name for path in GENERATED.glob("*.json"))


def test_the_chart_packs_every_dashboard_as_it_is_generated() -> None:
    packed = {path.name: path.read_bytes() for path in (CHART / "files" / "dashboards").iterdir()}
    generated = {name: (GENERATED / name).read_bytes() for name in DASHBOARDS}
    assert packed == generated, "run: python -P -m dashboards"


def test_the_chart_packs_the_rules_as_they_are_generated() -> None:
    packed = CHART / "files" / "rules.yaml"
    assert packed.read_bytes() == (GENERATED / "rules.chart.yaml").read_bytes(), (
        "run: python -P -m dashboards"
    )


def test_the_values_are_those_of_the_schema() -> None:
    program = [sys.executable, "-P", str(ROOT / "charts" / "values.py"), "--check"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_links_to_nothing_that_the_chart_does_not_bring() -> None:
    """It is read beside the chart, far from the repository."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)([^)]*)\)", text) == []


def test_helm_finds_nothing_to_say_of_the_chart() -> None:
    """An icon that it can show among it."""
    done = subprocess.run(
        [helm(), "lint", str(CHART)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, re.findall(r"\[[A-Z]+\].*", done.stdout)) == (0, [])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_reaches_the_sidecar_whole(name: str) -> None:
    at = 'mlflow.publicUrl="http://127.0.0.1:5000"'  # as the files have it
    found = one(manifests("", at), "ConfigMap", f"dashboard-{Path(name).stem}")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = found["data"].values()
    assert json.loads(text) == json.loads((GENERATED / name).read_bytes())


def test_alerts_keep_their_own_templates() -> None:
    """But for their namespace, which is in ``test_shared_cluster.py``."""
    rule = one(manifests(apis=OPERATOR), "PrometheusRule", "")
    generated = yaml.safe_load((GENERATED / "rules.yaml").read_text())
    packed = [(group, each) for group in rule["spec"]["groups"] for each in group["rules"]]
    ours = [(group["name"], {**each, "expr": ""}) for group, each in packed]
    assert ours == [
        (group["name"], {**each, "expr": ""})
        for group in generated["groups"]
        for each in group["rules"]
    ]


def test_without_the_operator_no_object_of_its_is_made() -> None:
    assert {item["kind"] for item in manifests()}.isdisjoint({"ServiceMonitor", "PrometheusRule"})


@pytest.mark.parametrize("kind", ["modelendpoints", "endpointrecords"])
def test_a_crd_is_installed_as_it_is_in_its_file_and_kept(kind: str) -> None:
    crd = one(manifests(), "CustomResourceDefinition", f"{kind}.headrace.dev")
    generated = yaml.safe_load((CHART / "files" / f"{kind}.crd.yaml").read_text())
    assert crd["spec"] == generated["spec"]
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_artifact_hub_is_told_of_the_definition_that_the_chart_installs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    said = {
        name.removeprefix("artifacthub.io/"): yaml.safe_load(text)
        for name, text in chart["annotations"].items()
    }
    crd = yaml.safe_load((CHART / "files" / "modelendpoints.crd.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    (told,) = said["crds"]
    assert told["name"] == crd["metadata"]["name"]
    assert (told["kind"], told["version"]) == (crd["spec"]["names"]["kind"], version["name"])
    (example,) = said["crdsExamples"]
    assert ModelEndpoint.model_validate(example).spec.model == "sentiment-classifier"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert said["license"] == project["license"]


def test_the_crd_can_be_left_to_somebody_else() -> None:
    kinds = {item["kind"] for item in manifests("", "crd.install=false")}
    assert "CustomResourceDefinition" not in kinds

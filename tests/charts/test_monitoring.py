"""Alerts and dashboards as an operator sets them: thresholds, severities, links, namespaces."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import CHART, OPERATOR, ROOT, SPACE, Manifest, RefusedError, manifests, one
from real_prometheus import program

from dashboards.rules import ALERTS, Severity
from dashboards.thresholds import THRESHOLDS

RULE = "monitoring.prometheusRule"
NO_DASHBOARDS = ("crd.install=false", "monitoring.dashboards.enabled=false")
# With the CRD left out, helm takes less time.
BARE = ("crd.install=false",)


def alerts(*settings: str) -> dict[str, dict[str, Any]]:
    rule = one(manifests("", *NO_DASHBOARDS, *settings, apis=OPERATOR), "PrometheusRule", "")
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    return {each["alert"]: each for each in rules if "alert" in each}


def test_thresholds_are_values_whose_defaults_are_those_of_the_rules() -> None:
    values = yaml.safe_load((ROOT / "charts" / "headrace" / "values.yaml").read_text())
    assert values["monitoring"]["prometheusRule"]["thresholds"] == THRESHOLDS
    found = alerts(f"{RULE}.thresholds.slowSeconds=1.25")["HeadraceSlow"]["expr"]
    assert " > 1.25 unless " in found
    assert "@" not in "".join(each["expr"] for each in alerts().values())


def test_severities_are_named_as_ones_own_routes_name_them() -> None:
    named = alerts(f'{RULE}.severities={{"page": "critical", "ticket": "warning"}}')
    words = {Severity.PAGE: "critical", Severity.TICKET: "warning"}
    assert {name: each["labels"]["severity"] for name, each in named.items()} == {
        alert.name: words[alert.severity] for alert in ALERTS
    }


@pytest.mark.real
def test_prometheus_takes_the_rules_and_another_release_raises_none_of_them(tmp_path: Path) -> None:
    rule = one(manifests("", *NO_DASHBOARDS, apis=OPERATOR), "PrometheusRule", "")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    failing = 'endpoint="e",version="1",arm="stable",status="502"'
    series = [
        (f'headrace_gateway_slo_availability_ratio{{namespace="{space}",endpoint="e"}}', "1x30")
        for space in (SPACE, "other")
    ] + [(f'headrace_gateway_attempts_total{{namespace="other",{failing}}}', "0+100x30")]
    silent = [
        {"alertname": alert.name, "eval_time": "29m", "exp_alerts": []}
        for alert in ALERTS
        if "absent(" not in alert.expr
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": silent,
    }
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(whole))
    command = [program("promtool"), "test", "rules", str(tmp_path / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_single_alert_can_be_changed_or_left_out() -> None:
    changed = {"HeadraceTritonAway": {"severity": "page", "for": "15m"}}
    found = alerts(f"{RULE}.alerts={json.dumps({**changed, 'HeadraceSlow': {'enabled': False}})}")
    assert found["HeadraceTritonAway"]["labels"]["severity"] == "page"
    assert found["HeadraceTritonAway"]["for"] == "15m"
    assert {alert.name for alert in ALERTS} - found.keys() == {"HeadraceSlow"}


def test_an_alert_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(RefusedError, match=r"there is no alert HeadraceErrors\."):
        alerts(f'{RULE}.alerts={{"HeadraceErrors": {{"enabled": false}}}}')


def test_alerts_lead_to_runbook_and_dashboard_by_addresses_that_can_be_clicked() -> None:
    assert "runbook_url" not in alerts()["HeadraceSlow"]["annotations"]
    found = alerts(
        f'{RULE}.runbookUrl="https://docs.example.com/dashboards/"',
        f'{RULE}.grafanaUrl="https://grafana.example.com"',
    )
    for name, each in found.items():
        said = each["annotations"]
        assert said["runbook_url"] == f"https://docs.example.com/dashboards/#{name.lower()}"
        board, _, chosen = said["dashboard_url"].partition("?")
        assert board == f"https://grafana.example.com/d/{said['dashboard']}"
        variables = dict(each.split("=") for each in chosen.split("&"))
        assert variables["var-namespace"] == SPACE
        named = variables.get("var-endpoint", "")
        assert named == ("{{ $labels.endpoint }}" if "$labels.endpoint" in said["summary"] else "")


def documented(heading: str) -> list[str]:
    """The values that docs/dashboards.md shows under a heading, as settings of helm."""
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    block = page.split(f"### {heading}\n")[1].split("```yaml\n")[1].split("```")[0]
    return [f"{name}={json.dumps(value)}" for name, value in yaml.safe_load(block).items()]


def test_the_values_for_kube_prometheus_stack_do_what_the_docs_say() -> None:
    settings = (*BARE, *documented("With kube-prometheus-stack"))
    found = manifests("", *settings, apis=OPERATOR)
    theirs = [each for each in found if each["kind"] in ("ServiceMonitor", "PrometheusRule")]
    assert theirs
    for each in theirs:
        assert each["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    rules = one(found, "PrometheusRule", "")["spec"]["groups"]
    told = {rule["alert"]: rule for group in rules for rule in group["rules"] if "alert" in rule}
    assert {rule["labels"]["severity"] for rule in told.values()} == {"critical", "warning"}
    assert told["HeadraceScaledOut"]["for"] == "1h"
    assert "HeadraceTextsUnusual" not in told
    assert ">= 1000 and" in told["HeadraceErrorsFast"]["expr"]


def test_the_values_for_grafana_operator_do_what_the_docs_say() -> None:
    found = manifests("", *BARE, *documented("With grafana-operator"))
    assert sum(each["kind"] == "GrafanaDashboard" for each in found) == 4


def board(found: list[Manifest], name: str) -> dict[str, Any]:
    (text,) = one(found, "ConfigMap", f"dashboard-{name}")["data"].values()
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize("name", ["endpoints", "drift", "rollout", "gateway"])
def test_mlflows_public_address_is_that_of_the_dashboards_links(name: str) -> None:
    public, own = (f'mlflow.{name}="https://{name}.example.com/"' for name in ("publicUrl", "url"))
    for settings, address in (
        ((public,), "https://publicUrl.example.com"),
        ((public, own), "https://publicUrl.example.com"),
        ((own,), "https://url.example.com"),
    ):
        found = manifests("", *BARE, *settings)
        variables = {each["name"]: each for each in board(found, name)["templating"]["list"]}
        assert variables["mlflow"]["query"] == address


@pytest.mark.parametrize("name", ["endpoints", "drift", "rollout", "gateway"])
def test_without_an_address_of_mlflow_no_link_leads_there(name: str) -> None:
    """All the rest of a dashboard is as it was."""
    plain = json.loads((CHART / "files" / "dashboards" / f"{name}.json").read_text())
    plain["templating"]["list"].pop()
    for panel in plain["panels"]:
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            for each in override["properties"]:
                if "${mlflow:" in json.dumps(each):
                    each["value"] = []
    assert board(manifests("", *BARE), name) == plain
    assert "${mlflow" not in json.dumps(plain)


def test_grafana_operator_is_told_of_every_dashboard() -> None:
    operator = "monitoring.dashboards.grafanaOperator"
    settings = (
        f"{operator}.enabled=true",
        f'{operator}.instanceSelector={{"matchLabels": {{"team": "ml"}}}}',
        "monitoring.dashboards.enabled=false",
        'monitoring.dashboards.namespace="grafana"',
    )
    found = manifests("", *BARE, *settings)
    maps = {
        each["metadata"]["name"]: each
        for each in found
        if each["kind"] == "ConfigMap" and "-dashboard-" in each["metadata"]["name"]
    }
    boards = [each for each in found if each["kind"] == "GrafanaDashboard"]
    assert len(boards) == len(maps) == 4
    for each in boards:
        spec, kept = each["spec"], maps[each["spec"]["configMapRef"]["name"]]
        assert spec["configMapRef"]["key"] in kept["data"]
        assert spec["instanceSelector"] == {"matchLabels": {"team": "ml"}}
        assert each["metadata"]["namespace"] == kept["metadata"]["namespace"] == "grafana"
        assert "grafana_dashboard" not in kept["metadata"]["labels"]


def test_without_grafana_operator_no_object_of_its_is_made() -> None:
    assert "GrafanaDashboard" not in {each["kind"] for each in manifests("", *BARE)}

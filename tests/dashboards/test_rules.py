"""The alerts, run by Prometheus' own promtool over the series in ``rules_test.yaml``."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from page_snippets import of
from real_prometheus import program

from dashboards import rules
from dashboards.__main__ import CHART_RULES, DASHBOARDS, GENERATED, RULES
from dashboards.thresholds import THRESHOLDS, find_thresholds
from headrace.stack.settings import Ports

CASES = Path(__file__).with_name("rules_test.yaml")
DOCS = Path(__file__).parents[2] / "docs" / "dashboards.md"
ALERTS = {alert.name: alert for alert in rules.ALERTS}


def cases() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CASES.read_text())
    return loaded


def expectations() -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (expected["alertname"], expected["exp_alerts"])
        for case in cases()["tests"]
        for expected in case.get("alert_rule_test", ())
    ]


def promtool(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [program("promtool"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)


@pytest.mark.real
def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", str(GENERATED / "rules.yaml"))
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(rules.ALERTS) + len(rules.ALL_RECORDS)} rules found" in done.stdout


@pytest.mark.real
def test_prometheus_takes_the_configuration_that_the_page_gives(tmp_path: Path) -> None:
    (given,) = [each for each in of(DOCS) if each.said == "prometheus.yaml"]
    (tmp_path / "dashboards").symlink_to(GENERATED.parent)
    path = tmp_path / "prometheus.yaml"
    path.write_text(given.text, encoding="utf-8")
    done = promtool("check", "config", str(path))
    assert done.returncode == 0, done.stderr
    assert "SUCCESS: 1 rule files found" in done.stdout
    (job,) = yaml.safe_load(given.text)["scrape_configs"]
    (static,) = job["static_configs"]
    ports = {int(each.rpartition(":")[2]) for each in static["targets"]}
    usual = Ports()
    assert ports == {
        usual.gateway_operations,
        usual.stats,
        usual.controller_metrics,
        usual.fold_metrics,
        usual.loader_metrics,
        usual.triton_metrics,
    }


@pytest.mark.real
def test_alerts_fire_when_they_should_and_are_silent_when_they_should_be(tmp_path: Path) -> None:
    whole = cases()
    whole["rule_files"] = [str(GENERATED / "rules.yaml")]
    # Else in any order: an alert may see this minute's records or the last one's.
    rules_file = yaml.safe_load((GENERATED / "rules.yaml").read_text())
    whole["group_eval_order"] = [group["name"] for group in rules_file["groups"]]
    for case in whole["tests"]:
        for expected in case.get("alert_rule_test", ()):
            annotations = ALERTS[expected["alertname"]].rule()["annotations"]
            assert isinstance(annotations, dict)
            for alert in expected["exp_alerts"]:
                alert["exp_annotations"] = {**annotations, **alert["exp_annotations"]}
    path = tmp_path / "rules_test.yaml"
    path.write_text(yaml.safe_dump(whole))
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_is_silent() -> None:
    found = expectations()
    assert {name for name, alerts in found if alerts} == ALERTS.keys()
    assert {name for name, alerts in found if not alerts} == ALERTS.keys()


def test_descriptions_hold_no_values_so_that_one_can_learn_them() -> None:
    for alert in rules.ALERTS:
        assert "{{" not in alert.description
        assert alert.description.endswith(".")


def test_every_alert_leads_to_a_dashboard_that_is_there() -> None:
    boards = {name.removesuffix(".json") for name in DASHBOARDS}
    assert {alert.board for alert in rules.ALERTS} <= boards


def test_every_threshold_is_read_and_the_file_of_defaults_has_no_placeholder() -> None:
    packed, filled = (GENERATED / name for name in (CHART_RULES, RULES))
    assert find_thresholds(packed.read_text()) == THRESHOLDS.keys()
    assert "@" not in filled.read_text()


def test_every_metric_is_of_the_release_that_the_rules_are_for() -> None:
    for expr in (*rules.ALL_RECORDS.values(), *(alert.expr for alert in rules.ALERTS)):
        read = re.findall(r"(?:\bendpoint:)?(?:headrace|kube)_[a-z0-9_]+(?::\w+)?", expr)
        alternatives = len(re.findall(r'__name__=~"[^"]+"', expr))
        assert expr.count("@scope@") == len(read) - alternatives, expr


def test_every_alert_has_its_runbook_where_its_annotation_says() -> None:
    headings = {
        line.removeprefix("### ").strip()
        for line in DOCS.read_text().splitlines()
        if line.startswith("### ")
    }
    assert ALERTS.keys() <= headings

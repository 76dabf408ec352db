"""The committed files: current, as Grafana's published schemas ask, and complete."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import pytest

from dashboards.__main__ import DASHBOARDS, GENERATED, describe_panels, files

CORE_PANELS = {"timeseries", "heatmap", "stat", "table", "state-timeline", "bargauge"}
SCHEMAS = sorted((Path(__file__).parent / "grafana").glob("schema-*.json"))
CONFIG_MAP_BYTES = 1_000_000


def dashboard(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GENERATED / name).read_bytes())
    return document


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(name)["panels"] if panel["type"] != "row"]


def test_committed_files_are_those_that_the_code_makes() -> None:
    committed = {path.name: path.read_bytes() for path in GENERATED.iterdir()}
    assert committed == files(), "run: python -P -m dashboards"


def test_the_page_of_panels_says_what_each_answers() -> None:
    text = describe_panels(files())
    for name in DASHBOARDS:
        for panel in panels(name):
            assert f"| {panel['title']} | {panel['description'].partition(chr(10))[0]}" in text


@pytest.mark.real
def test_the_command_writes_them_and_removes_what_is_no_longer_made(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    command = [sys.executable, "-P", "-m", "dashboards", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files()


def published(document: dict[str, Any]) -> dict[str, Any]:
    """Without what Grafana reads and does not publish."""
    for annotation in document["annotations"]["list"]:
        for name in ("expr", "step", "titleFormat", "textFormat", "tagKeys"):  # of Prometheus
            del annotation[name]
    return document


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_what_grafana_publishes_as_its_schema(name: str, schema: Path) -> None:
    validator = jsonschema_rs.validator_for(json.loads(schema.read_bytes()))
    document = published(dashboard(name))
    found = [
        f"{list(one.instance_path)}: {one.message[:300]}" for one in validator.iter_errors(document)
    ]
    assert not found


def test_the_schemas_refuse_what_is_wrong() -> None:
    for schema in SCHEMAS:
        validator = jsonschema_rs.validator_for(json.loads(schema.read_bytes()))
        document = published(dashboard("endpoints.json"))
        assert validator.is_valid(document)
        document["panels"][1]["options"]["graphMode"] = "sparkles"
        assert not validator.is_valid(document)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_needs_no_plugin_and_names_no_data_source(name: str) -> None:
    for panel in panels(name):
        assert panel["type"] in CORE_PANELS
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}
    first = dashboard(name)["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_says_what_it_shows_and_what_to_do(name: str) -> None:
    for panel in panels(name):
        shows, _, act = panel["description"].partition("\n\n**What to do:** ")
        assert shows.endswith("."), panel["title"]
        assert act.endswith("."), panel["title"]
        assert panel["targets"], panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_lie_within_the_grid_and_on_no_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(name)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_ids_and_addresses_are_unique() -> None:
    assert len({dashboard(name)["uid"] for name in DASHBOARDS}) == len(DASHBOARDS)
    for name in DASHBOARDS:
        ids = [panel["id"] for panel in dashboard(name)["panels"]]
        assert len(set(ids)) == len(ids)


def test_files_fit_into_a_config_map() -> None:
    for path in GENERATED.iterdir():
        assert path.stat().st_size < CONFIG_MAP_BYTES


@pytest.mark.parametrize("name", DASHBOARDS)
def test_rollouts_are_lines_on_every_panel(name: str) -> None:
    (annotation,) = dashboard(name)["annotations"]["list"]
    assert annotation["enable"]
    assert "filter" not in annotation  # it would name the panels that have it
    assert "headrace_rollout_transitions_total" in annotation["expr"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_link_leads_to_the_logs_of_what_is_chosen(name: str) -> None:
    variables = {each["name"]: each for each in dashboard(name)["templating"]["list"]}
    assert (variables["loki"]["type"], variables["loki"]["query"]) == ("datasource", "loki")
    (url,) = (link["url"] for link in dashboard(name)["links"] if link["title"] == "Logs")
    named = set(re.findall(r"\$\{(\w+)", url)) - {"__from", "__to"}
    assert named <= variables.keys()
    values = {"loki": "logs", "__from": "1", "__to": "2"}
    for variable in named | values.keys():
        url = re.sub(rf"\$\{{{variable}(:\w+)?\}}", values.get(variable, ".*"), url)
    (panes,) = parse_qs(urlsplit(url).query)["panes"]
    pane = json.loads(panes)["headrace"]
    assert (pane["datasource"], pane["range"]) == ("logs", {"from": "1", "to": "2"})
    assert pane["queries"][0]["expr"].startswith('{namespace=~".*",')


def test_traces_of_single_requests_are_shown_where_a_gateway_keeps_them() -> None:
    found = [
        target["expr"]
        for name in DASHBOARDS
        for panel in panels(name)
        for target in panel["targets"]
        if target.get("exemplar")
    ]
    assert found
    for expr in found:
        assert "headrace_gateway_stage_seconds_bucket" in expr
        assert 'stage="total"' in expr


@pytest.mark.parametrize("name", ["endpoints.json", "drift.json", "rollout.json"])
def test_a_version_leads_to_its_run_and_its_data_set_in_mlflow(name: str) -> None:
    (table,) = (panel for panel in panels(name) if panel["title"] == "Versions")
    links = {
        override["matcher"]["options"]: override["properties"][0]["value"][0]["url"]
        for override in table["fieldConfig"]["overrides"]
    }
    assert links == {
        "MLflow run": "${mlflow:raw}/#/runs/${__value.raw}",
        "Data set": '${mlflow:raw}/#/runs/${__data.fields["MLflow run"]}',
    }

"""What all four dashboards have in common: variables, links, rollouts' lines, versions' table.

Every dashboard reads the data source that its variable names, so that an import asks for nothing.
A link leads to the logs of what is chosen, in Grafana's Explore, if there is a Loki.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import queries
from dashboards.panels import DATASOURCE, link, rows

TAG: Final = "headrace"
RUN_PAGE: Final = "${mlflow:raw}/#/runs/"  # MLflow finds the run's experiment by itself


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard.

    Attributes:
        name: as queries say it.
        label: as people see it.
        query: ``label_values(...)`` of ``queries.py``.
        regex: part of the value to take.
        hidden: follows from the others; nobody chooses it.
        whole: All means any value, those without one included; else each value that is there.
    """

    name: str
    label: str
    query: str
    regex: str = ""
    hidden: bool = False
    whole: bool = False


def _place(clusters: str, namespaces: str) -> tuple[Variable, Variable]:
    return (
        Variable("cluster", "Cluster", clusters, whole=True),
        Variable("namespace", "Namespace", namespaces, whole=True),
    )


PLACE: Final = _place(queries.CLUSTERS_OF_TRAFFIC, queries.NAMESPACES_OF_TRAFFIC)
ROUTED_PLACE: Final = _place(queries.CLUSTERS_OF_ROUTES, queries.NAMESPACES_OF_ROUTES)
GATEWAY_PLACE: Final = _place(queries.CLUSTERS_OF_GATEWAYS, queries.NAMESPACES_OF_GATEWAYS)
ENDPOINT: Final = Variable("endpoint", "Endpoint", queries.ENDPOINTS_OF_TRAFFIC, whole=True)
ROUTED_ENDPOINT: Final = Variable("endpoint", "Endpoint", queries.ENDPOINTS_OF_ROUTES, whole=True)
VERSION: Final = Variable("version", "Version", queries.VERSIONS_OF_TRAFFIC, whole=True)
ARM: Final = Variable("arm", "Arm", queries.ARMS, whole=True)
# Triton and the gateways' batches know a package by the start of its digest.
PACKAGE: Final = Variable("package", "Package", queries.PACKAGES, "/^(.{12})/", hidden=True)


# A line for each phase that a version enters, on every panel with time. The published types of
# dashboards name no field of a data source's own: these are what Grafana reads for Prometheus.
ROLLOUTS: Final[dict[str, object]] = {
    "name": "Rollouts",
    "datasource": {"type": DATASOURCE.type_val, "uid": DATASOURCE.uid},
    "enable": True,
    "hide": False,
    "iconColor": "blue",
    "expr": queries.ROLLOUT_EVENTS,
    "step": "60s",
    "titleFormat": "{{endpoint}}: {{phase}}",
    "textFormat": "{{cluster}} {{namespace}}",
    "tagKeys": "phase",
}


def _logs(selector: str) -> str:
    """Grafana's Explore on Loki's logs of these pods, within the time that is shown."""
    query = {"refId": "A", "expr": f"{{{selector}}}"}
    span = {"from": "${__from}", "to": "${__to}"}
    pane = {"datasource": "${loki}", "queries": [query], "range": span}
    panes = json.dumps({"headrace": pane}, separators=(",", ":"))
    # Grafana fills in variables before the address is read, and knows them by their own letters.
    return f"/explore?schemaVersion=1&panes={quote(panes, safe='${}_:,')}"


POD_LOGS: Final = 'namespace=~"${namespace:regex}",pod=~"${pod:regex}"'
RELEASE_LOGS: Final = (
    'namespace=~"${namespace:regex}",container=~"gateway|triton|loader|controller"'
)


class PanelRow:
    """A headline of a dashboard, and the panels below it, from left to right."""

    def __init__(self, title: str, *panels: Builder[model.Panel]) -> None:
        self.title = title
        self.panels = panels


def dashboard(
    uid: str,
    title: str,
    description: str,
    *,
    variables: Sequence[Variable],
    rows: Sequence[PanelRow],
    logs: str = RELEASE_LOGS,
) -> builders.Dashboard:
    """A dashboard with what all have in common; ``logs`` selects those of Loki to lead to."""
    made = _begin_dashboard(uid, title, description, variables, logs)
    for row in rows:
        made = made.with_row(builders.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(panel)
    return made


# Of every table; empty if Prometheus has no such labels.
PLACE_COLUMNS: Final = {"cluster": "Cluster", "namespace": "Namespace"}


def versions() -> table.Panel:
    """Which version is which, with links to its MLflow run and its data set."""
    columns = {
        **PLACE_COLUMNS,
        "endpoint": "Endpoint",
        "version": "Version",
        "model": "Registered model",
        "run_id": "MLflow run",
        "data_set": "Data set",
        "task": "Task",
        "precision": "Precision",
    }
    run = link("MLflow run", "Open the run in MLflow", RUN_PAGE + "${__value.raw}")
    data_set = link(
        "Data set", "Open the run that logged it", RUN_PAGE + '${__data.fields["MLflow run"]}'
    )
    return (
        rows(
            "Versions",
            "The versions behind the chosen endpoints: the registered model, the MLflow run that"
            " made each, and the data set that the run logged.",
            "Click a run to see its parameters, metrics and artifacts in MLflow; a data set opens"
            " the run that logged it. A version is missing here when the evaluate role can't read"
            " its package.",
            queries.VERSIONS,
            columns,
            height=6,
        )
        .override_by_name(*run)
        .override_by_name(*data_set)
    )


def _begin_dashboard(
    uid: str, title: str, description: str, variables: Sequence[Variable], logs: str
) -> builders.Dashboard:
    started = (
        builders.Dashboard(f"Headrace / {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(
            builders.DashboardLink("Headrace")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
        .link(
            builders.DashboardLink("Logs")
            .type(model.DashboardLinkType.LINK)
            .tooltip("Logs of what is chosen, from Loki")
            .icon("doc")
            .url(_logs(logs))
            .target_blank(target_blank=True)
        )
        .with_variable(
            builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for variable in variables:
        started = started.with_variable(_variable(variable))
    return started.with_variable(
        builders.DatasourceVariable("loki").label("Logs").type("loki")
    ).with_variable(
        builders.TextBoxVariable("mlflow")
        .label("MLflow")
        .description("Where MLflow's pages are, for links to runs.")
        .default_value("http://127.0.0.1:5000")
    )


def _variable(variable: Variable) -> builders.QueryVariable:
    made = (
        builders.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(DATASOURCE)
        .query({"query": variable.query, "refId": f"variable-{variable.name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .current(model.VariableOption(text="All", value="$__all", selected=True))
    )
    if variable.whole:
        made = made.all_value(".*")
    if variable.regex:
        made = made.regex(variable.regex)
    return made.hide(model.VariableHide.HIDE_VARIABLE) if variable.hidden else made

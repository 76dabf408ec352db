"""What all four dashboards have in common: name, variables, links to each other, versions' table.

Every dashboard reads the data source that its variable names, so that an import asks for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


ENDPOINT: Final = Variable("endpoint", "Endpoint", queries.ENDPOINTS_OF_TRAFFIC, whole=True)
ROUTED_ENDPOINT: Final = Variable("endpoint", "Endpoint", queries.ENDPOINTS_OF_ROUTES, whole=True)
VERSION: Final = Variable("version", "Version", queries.VERSIONS_OF_TRAFFIC, whole=True)
ARM: Final = Variable("arm", "Arm", queries.ARMS, whole=True)
# Triton and the gateways' batches know a package by the start of its digest.
PACKAGE: Final = Variable("package", "Package", queries.PACKAGES, "/^(.{12})/", hidden=True)


class Row:
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
    rows: Sequence[Row],
) -> builders.Dashboard:
    """A dashboard with what all have in common."""
    made = _begun(uid, title, description, variables)
    for row in rows:
        made = made.with_row(builders.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(panel)
    return made


def versions() -> table.Panel:
    """Which version is which, with links to its MLflow run and its data set."""
    columns = {
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


def _begun(
    uid: str, title: str, description: str, variables: Sequence[Variable]
) -> builders.Dashboard:
    started = (
        builders.Dashboard(f"Headrace / {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .style("dark")  # Grafana 10.1 asks for it; people's own choice wins
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
        .with_variable(
            builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for variable in variables:
        started = started.with_variable(_variable(variable))
    return started.with_variable(
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

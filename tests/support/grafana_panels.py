"""The generated dashboards as Grafana reads them: panels, targets, variables filled in.

Tests ask a real Prometheus what each target gives, in the way in which Grafana would.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from real_prometheus import RealPrometheus, Series

from dashboards.__main__ import GENERATED
from dashboards.generate import DASHBOARDS

LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    dashboard: str
    panel: dict[str, Any]
    expr: str
    legend: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.dashboard}: {self.panel['title']}"

    @property
    def kind(self) -> str:
        return str(self.panel["type"])

    def legend_of(self, series: Series) -> str:
        """A line's name, as Grafana writes it."""
        return re.sub(
            r"\{\{\s*(\w+)\s*\}\}", lambda found: series.labels.get(found[1], ""), self.legend
        )


def targets() -> Iterator[Target]:
    """Every query of every panel."""
    for name in DASHBOARDS:
        for panel in _document(name)["panels"]:
            for target in panel.get("targets", ()):
                yield Target(
                    name,
                    panel,
                    target["expr"],
                    target.get("legendFormat", ""),
                    bool(target["instant"]),
                )


def variables() -> Iterator[tuple[str, str, str]]:
    """Dashboard, name and query of every variable that asks Prometheus."""
    for name in DASHBOARDS:
        for variable in _document(name)["templating"]["list"]:
            if variable["type"] == "query":
                yield name, variable["name"], variable["query"]["query"]


def filled(expr: str, values: Mapping[str, str]) -> str:
    """The expression with Grafana's variables replaced."""
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr, expr
    return expr


def values_of(prometheus: RealPrometheus, query: str, values: Mapping[str, str]) -> list[str]:
    """What a variable offers."""
    found = LABEL_VALUES.fullmatch(query)
    assert found is not None, query
    return prometheus.label_values(found["label"], filled(found["selector"], values))


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GENERATED / name).read_bytes())
    return document

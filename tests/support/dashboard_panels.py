"""The generated dashboards as Grafana reads them, and what their panels show of a Prometheus.

Tests ask a real Prometheus what each query gives, in the way in which Grafana would, and hold the
answers to the form that the panel reads.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from real_prometheus import RealPrometheus, Series

from dashboards.__main__ import DASHBOARDS, GENERATED

STEP_SECONDS = 5.0
RATE_SECONDS = "30s"
# Variables that may have any value.
FREE = ("cluster", "namespace", "pod", "endpoint", "version", "arm", "label", "own", "lambda")
LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    dashboard: str
    panel: dict[str, Any]
    expr: str
    legend: str
    instant: bool
    exemplars: bool

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


def _targets() -> Iterator[Target]:
    for name in DASHBOARDS:
        for panel in _document(name)["panels"]:
            for target in panel.get("targets", ()):
                yield Target(
                    name,
                    panel,
                    target["expr"],
                    target.get("legendFormat", ""),
                    bool(target["instant"]),
                    bool(target.get("exemplar")),
                )


def _variables() -> Iterator[tuple[str, str, str]]:
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


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GENERATED / name).read_bytes())
    return document


VARIABLES = tuple(_variables())
TARGETS = {f"{target.name} {target.legend}".strip(): target for target in _targets()}


@dataclass(frozen=True)
class Seen:
    """What Prometheus has seen from ``began`` to ``ended``, unix seconds.

    ``values`` are those of the dashboards' variables.
    """

    prometheus: RealPrometheus
    began: float
    ended: float
    step: float
    values: dict[str, str]

    def ask(self, target: Target) -> list[Series]:
        """The answer to a panel's query."""
        expr = filled(target.expr, self.values)
        if target.instant:
            # Not now: a scrape that takes too long, as on a busy machine, ends all series.
            return self.prometheus.at(expr, self.ended)
        return self.prometheus.over(expr, self.began, self.ended, self.step)

    def offered(self, query: str) -> list[str]:
        found = LABEL_VALUES.fullmatch(query)
        assert found is not None, query
        return self.prometheus.label_values(found["label"], filled(found["selector"], self.values))

    def shown(self, dashboard: str, title: str, **labels: str) -> list[float]:
        """All values of a panel's series with these labels; at least one."""
        found = [
            value
            for target in TARGETS.values()
            if (target.dashboard, target.panel["title"]) == (f"{dashboard}.json", title)
            for series in self.ask(target)
            if labels.items() <= series.labels.items()
            for value in numbers([series])
        ]
        assert found, (title, labels)
        return found


def numbers(answer: list[Series]) -> list[float]:
    found = [value for series in answer for _, value in series.samples]
    return [value for value in found if not math.isnan(value)]


def must_be_in_form(target: Target, answer: list[Series]) -> None:
    """Fails the test unless the panel can show the answer as it is meant."""
    assert numbers(answer), target.expr
    _FORMS[target.kind](target, answer)


def _lines(target: Target, answer: list[Series]) -> None:
    names = [target.legend_of(series) for series in answer]
    assert all(names), names
    assert len(set(names)) == len(names), "two lines of one name"


def _heatmap(target: Target, answer: list[Series]) -> None:
    assert {tuple(series.labels) for series in answer} == {("le",)}
    edges = sorted(answer, key=lambda series: float(series.labels["le"]))
    assert edges[-1].labels["le"] == "+Inf"
    whole = dict(edges[-1].samples)
    for series in edges:
        # increase() reckons each bucket's ends by itself, so that equal counts differ a little.
        assert all(value <= 1.1 * whole[at] for at, value in series.samples)
    assert max(whole.values()) > 0


def _number(target: Target, answer: list[Series]) -> None:
    if len(answer) > 1:
        _lines(target, answer)


def _states(target: Target, answer: list[Series]) -> None:
    _lines(target, answer)
    known = set(target.panel["fieldConfig"]["defaults"]["mappings"][0]["options"])
    assert {f"{value:g}" for value in numbers(answer)} <= known


_MAY_BE_EMPTY = {"cluster", "namespace", "data_set", "task", "precision"}  # an empty label is none


def _table(target: Target, answer: list[Series]) -> None:
    columns = set(target.panel["transformations"][0]["options"]["renameByName"]) - {"Value"}
    for series in answer:
        assert series.labels.keys() <= columns
        assert series.labels.keys() >= columns - _MAY_BE_EMPTY


_FORMS = {
    "timeseries": _lines,
    "heatmap": _heatmap,
    "stat": _number,
    "bargauge": _number,
    "state-timeline": _states,
    "table": _table,
}

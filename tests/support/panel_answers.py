"""What panels show of a time that Prometheus has seen, and whether it is in their form."""

import math
from dataclasses import dataclass

import grafana_panels
from grafana_panels import Target
from real_prometheus import RealPrometheus, Series

TARGETS = {f"{target.name} {target.legend}".strip(): target for target in grafana_panels.targets()}


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
        expr = grafana_panels.filled(target.expr, self.values)
        if target.instant:
            # Not now: a scrape that takes too long, as on a busy machine, ends all series.
            return self.prometheus.at(expr, self.ended)
        return self.prometheus.over(expr, self.began, self.ended, self.step)

    def offered(self, query: str) -> list[str]:
        """What a variable offers."""
        return grafana_panels.values_of(self.prometheus, query, self.values)

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
    """All values that are numbers."""
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


_MAY_BE_EMPTY = {"data_set", "task", "precision"}  # an empty label is none


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

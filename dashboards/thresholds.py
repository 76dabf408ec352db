"""The lines at which alerts begin, and the placeholders that stand for them in expressions.

``generated/rules.yaml`` has the defaults in it. The chart packs ``generated/rules.chart.yaml``, in
which placeholders stand, and puts values of ``monitoring.prometheusRule`` in their place. An
expression writes a threshold as ``@name@``, and ``@scope@`` in the selector of every metric: there
the chart names the release's namespace, so that a part of another release never stands in for one
of this.
"""

import re
from typing import Final

# Name -> its default. What each means is said where it is set: charts/headrace/values.schema.json.
THRESHOLDS: Final[dict[str, float]] = {
    "minimumRequests": 100,
    "minimumFailures": 10,
    "fastBurn": 14.4,
    "burn": 6,
    "slowBurn": 3,
    "lastingBurn": 1,
    "refusedShare": 0.05,
    "slowSeconds": 0.5,
    "foldLagMessages": 500,
    "uncountedSeconds": 60,
    "deadlineShareLeft": 0.2,
    "evidenceSeconds": 3600,
}

_PLACEHOLDER = re.compile(r"@(\w+)@")


def selector(name: str, where: str = "") -> str:
    """A metric's series with these labels, of the release that the rules are for."""
    return f"{name}{{{where},@scope@}}" if where else f"{name}{{@scope@}}"


def by_default(expr: str) -> str:
    """An expression with the default thresholds, of whatever Prometheus scrapes."""
    everywhere = expr.replace("{@scope@}", "").replace(",@scope@", "")
    return _PLACEHOLDER.sub(lambda found: f"{THRESHOLDS[found[1]]:g}", everywhere)


def find_thresholds(expr: str) -> set[str]:
    """The thresholds that an expression reads."""
    return set(_PLACEHOLDER.findall(expr)) - {"scope"}

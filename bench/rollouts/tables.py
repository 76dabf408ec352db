"""Findings as the tables of ``docs/rollout.md``."""

from collections.abc import Sequence

from bench.rollouts.findings import Finding


def table(findings: Sequence[Finding]) -> str:
    """A row for each ``what``, a column for each ``where``."""
    columns = list(dict.fromkeys(found.where for found in findings))
    cells = {(found.what, found.where): _cell(found) for found in findings}
    lines = [
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    lines += [
        f"| {what} | " + " | ".join(cells.get((what, column), "") for column in columns) + " |"
        for what in dict.fromkeys(found.what for found in findings)
    ]
    return "\n".join(lines)


def _cell(found: Finding) -> str:
    if found.unit == "share":
        shown = f"{_percent(found.figure)}"
        if found.low is not None and found.high is not None:
            shown += f" ({_percent(found.low)} to {_percent(found.high)})"
        asked = None if found.target is None else _percent(found.target)
    else:
        shown = f"{_count(found.median)} / {_count(found.figure)}"
        asked = None if found.target is None else _count(found.target)
    if asked is None:
        return shown
    return f"{shown}; at most {asked}" + ("" if found.reached else ": **not reached**")


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _count(value: float | None) -> str:
    if value is None or value == float("inf"):
        return "never"
    return f"{value:,.0f}"

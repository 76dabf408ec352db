"""What was found, as the tables of ``docs/statistics.md``.

Pure.
"""

from collections.abc import Sequence

from bench.drift.figures import Row

_NOTHING = ""


def tables(study: str, rows: Sequence[Row]) -> dict[str, str]:
    """Marker's name -> table: one line for each ``what``, one column for each ``where``.

    ``shifts`` and ``rivals`` are turned: their methods are the lines.
    """
    if study in {"shifts", "rivals"}:
        return {f"drift-{study}": _table(rows, turned=True)}
    # Warnings and alarms are rarer still than what is significant: the JSON has them.
    shown = [row for row in rows if "significant" in row.what or "PSI" in row.what]
    return {f"drift-{study}": _table(shown, turned=False)}


def _table(rows: Sequence[Row], *, turned: bool) -> str:
    placed = {((row.where, row.what) if turned else (row.what, row.where)): row for row in rows}
    lines = dict.fromkeys(line for line, _ in placed)
    columns = dict.fromkeys(column for _, column in placed)
    return "\n".join([
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        *(
            f"| {line} | "
            + " | ".join(_cell(placed.get((line, column))) for column in columns)
            + " |"
            for line in lines
        ),
    ])  # fmt: skip


def _cell(row: Row | None) -> str:
    if row is None:
        return _NOTHING
    if row.unit == "windows":
        shown = f"{_windows(row.median)} / {_windows(row.figure)}"
    elif row.unit == "of windows":
        shown = f"{_number(100 * row.figure)} %"
    else:
        shown = _number(row.figure)
        if row.low is not None and row.high is not None:
            shown += f" ({_number(row.low)} to {_number(row.high)})"
    return shown if row.reached is not False else f"{shown}: **not reached**"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _windows(value: float | None) -> str:
    return "never" if value is None or value == float("inf") else f"{value:,.0f}"

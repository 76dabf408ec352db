"""The tables and the picture of ``docs/performance.md`` out of what was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.findings import middle
from bench.tasks.ways import RANKING, TOKENS, WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOT_RUN = "Not run."
_NAMES = {RANKING: "ranking", TOKENS: "tokens"}
_UNITS = {RANKING: "documents", TOKENS: "texts"}


def tables(kept: Mapping[str, Any]) -> dict[str, str]:
    """Marker's name -> table."""
    made = {"tasks-who": _who(kept)}
    for task, name in _NAMES.items():
        made[f"tasks-{name}"] = _table(kept[task]) if task in kept else _NOT_RUN
    return made


def _who(kept: Mapping[str, Any]) -> str:
    """What each way is, and how its answers differ from the graph's."""
    heads = [f"{name}: scores apart by; equal" for name in _NAMES.values()]
    lines = ["| | set to | " + " | ".join(heads) + " |", "|---|---|---|---|"]
    for way in WAYS:
        cells = []
        for task in _NAMES:
            found = kept.get(task, {}).get("answers", {}).get(way.name)
            cells.append(
                "-" if found is None else f"{found['apart']:.4f}; {100 * found['equal']:.1f} %"
            )
        lines.append(f"| {way.name} | {way.tuned} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _table(found: Mapping[str, Any]) -> str:
    """Rows a second, and the median and the 99th percentile of a request's latency."""
    loads = list(dict.fromkeys(load for each in found["rounds"].values() for load in each))
    lines = ["| | " + " | ".join(loads) + " |", "|---" * (len(loads) + 1) + "|"]
    for way in WAYS:
        if way.name in found["failures"]:
            lines.append(f"| {way.name} | out: {_plain(found['failures'][way.name])} |")
            continue
        cells = []
        for load in loads:
            rounds = found["rounds"][way.name][load]
            rates = [each["rows_per_second"] for each in rounds]
            failed = sum(each["failed"] for each in rounds)
            cells.append(
                f"{middle(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f}); "
                f"{middle([each['p50'] for each in rounds]):,.0f} and "
                f"{middle([each['p99'] for each in rounds]):,.0f} ms"
                + (f"; {failed:.0f} failed" if failed else "")
            )
        lines.append(f"| {way.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _plain(reason: str) -> str:
    return reason.replace("|", "/")[:200]


def draw(kept: Mapping[str, Any], path: Path) -> None:
    """Rows a second of each way, by load; the two tasks beside each other."""
    import matplotlib as mpl  # noqa: PLC0415 - slow, and the measuring is over
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        for axes, task in zip(figure.subplots(1, 2), _NAMES, strict=True):
            if task in kept:
                _bars(axes, kept[task], f"{task}: {_UNITS[task]}/s")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(WAYS))
        figure.savefig(path, metadata={"Date": None})


def _bars(axes: "Axes", found: Mapping[str, Any], title: str) -> None:
    loads = list(dict.fromkeys(load for each in found["rounds"].values() for load in each))
    wide = 0.8 / len(WAYS)
    for number, way in enumerate(WAYS):
        rounds = found["rounds"].get(way.name, {})
        heights = [
            middle([each["rows_per_second"] for each in rounds.get(load, [])]) for load in loads
        ]
        places = [at + (number - (len(WAYS) - 1) / 2) * wide for at in range(len(loads))]
        axes.bar(places, heights, wide, label=way.name)
    axes.set_title(title)
    axes.set_xticks(range(len(loads)), loads)
    axes.grid(alpha=0.3, axis="y")

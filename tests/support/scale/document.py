"""The table and the picture of ``docs/scale.md``, from the results of a run."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Size = Mapping[str, Any]


def _kilo(value: float) -> str:
    return f"{value / 1e3:.0f}"


_ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("endpoints", "endpoints", "{:.0f}".format),
    ("requests a second, of all", "requests_a_second", "{:,.0f}".format),
    ("first pass over all, s", "first_pass_seconds", "{:.1f}".format),
    ("a pass, median, s", "pass_seconds_median", "{:.2f}".format),
    ("a pass, p99, s", "pass_seconds_p99", "{:.2f}".format),
    ("reconciles a second", "reconciles_a_second", "{:.0f}".format),
    ("time of a reconcile, mean, ms", "reconcile_seconds_mean", lambda it: f"{it * 1e3:.0f}"),
    ("rollouts rolled back", "rolled_back", "{:.0f}".format),
    ("closed window to changed routes, median, s", "rollback_seconds_median", "{:.1f}".format),
    ("closed window to changed routes, p99, s", "rollback_seconds_p99", "{:.1f}".format),
    ("of these, until the judge had found it, p99, s", "looked_seconds_p99", "{:.1f}".format),
    ("of these, until the API server had the routes, p99, s", "written_seconds_p99",
     "{:.1f}".format),
    ("end of window to changed routes, median, s", "window_end_to_routes_seconds_median",
     "{:.1f}".format),
    ("end of window to changed routes, p99, s", "window_end_to_routes_seconds_p99",
     "{:.1f}".format),
    ("controller's cores", "cpu_share", "{:.2f}".format),
    ("controller's memory, MiB", "memory_megabytes", "{:.0f}".format),
    ("statuses written, kB/s", "status_bytes_a_second", _kilo),
    ("loaders' reports written, kB/s", "report_bytes_a_second", _kilo),
    ("etcd is sent, kB/s", "etcd_received_bytes_a_second", _kilo),
    ("etcd's writes a second", "etcd_puts_a_second", "{:.0f}".format),
    ("largest status, kB", "largest_status_bytes", _kilo),
    ("largest Lease of a report, kB", "largest_report_bytes", _kilo),
    ("API server's cores", "apiserver_cores", "{:.2f}".format),
    ("API server's memory, MiB", "apiserver_megabytes", "{:.0f}".format),
    ("sent to 100 gateways that watch, kB/s", "watched_bytes_a_second", _kilo),
    ("first lists of a gateway, kB", "first_list_bytes", _kilo),
    ("first lists of all gateways, four at a time, s", "first_lists_seconds", "{:.0f}".format),
    ("memory of what a gateway reads, MiB", "reader_most_megabytes", "{:.0f}".format),
    ("questions to MLflow a second", "mlflow_calls_a_second", "{:.1f}".format),
    ("events' messages a second", "event_messages_a_second", "{:.0f}".format),
    ("cores of a fold worker, of two", "fold_cores", "{:.2f}".format),
    ("shards of evaluate", "evaluate_shards", "{:.0f}".format),
    ("endpoints of the shard that runs", "evaluate_endpoints", "{:.0f}".format),
    ("its series", "evaluate_series", "{:,.0f}".format),
    ("its cores", "evaluate_cores", "{:.2f}".format),
    ("its memory, MiB", "evaluate_megabytes", "{:.0f}".format),
    ("its scrape, median, s", "evaluate_scrape_seconds_median", "{:.1f}".format),
    ("what it shows is behind, most, s", "evaluate_behind_seconds_max", "{:.1f}".format),
)  # fmt: skip
_PANELS = (
    ("a pass, median, s", "pass_seconds_median", 1.0),
    ("closed window to changed routes, p99, s", "rollback_seconds_p99", 1.0),
    ("controller's memory, MiB", "memory_megabytes", 1.0),
    ("etcd is sent, kB/s", "etcd_received_bytes_a_second", 1e-3),
)


def table(sizes: Sequence[Size]) -> str:
    """Markdown: a figure a row, a size a column."""
    lines = []
    # A row that no run has is of a newer program than the results.
    rows = [row for row in _ROWS if any(row[1] in size for size in sizes)]
    for place, (name, key, shown) in enumerate(rows):
        cells = ["" if size.get(key) is None else shown(size[key]) for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        if place == 0:
            lines.append("|---|" + "---:|" * len(sizes))
    return "\n".join(lines)


def draw(sizes: Sequence[Size], path: Path) -> None:
    """Writes the picture: how each figure grows with endpoints."""
    import matplotlib as mpl

    # The salt: the same figures make the same file.
    with mpl.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        picture(sizes).savefig(path, metadata={"Date": None})


def picture(sizes: Sequence[Size]) -> "Figure":
    """A panel for each of four figures, by endpoints."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    counts = [size["endpoints"] for size in sizes]
    for axes, (title, key, factor) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        values = [math.nan if size[key] is None else size[key] * factor for size in sizes]
        axes.plot(counts, values, marker="o", markersize=4)
        axes.set_title(title)
        axes.set_xlabel("endpoints")
        axes.set_xticks(counts, [f"{count:g}" for count in counts])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    return figure

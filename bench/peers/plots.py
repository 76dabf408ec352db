"""A race as pictures: rate and p99 by callers, and goodput by what is offered; one an engine."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.entrants import HEADRACE, SUBJECTS
from bench.peers.findings import Results, middle
from bench.peers.plan import CALLERS, TIMES, Engine, Load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 2.4


def draw(results: Results, folder: Path) -> list[Path]:
    """Writes ``peers-<engine>.svg`` for every engine that was raced on."""
    import matplotlib as mpl  # noqa: PLC0415 - slow, and the measuring is over

    paths = []
    for engine in Engine:
        if any(found.engine is engine for found in results.findings):
            paths.append(folder / f"peers-{engine}.svg")
            # The salt: the same figures make the same file.
            with mpl.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
                picture(results, engine).savefig(paths[-1], metadata={"Date": None})
    return paths


def picture(results: Results, engine: Engine) -> "Figure":
    """Three axes of one engine: rate and p99 in milliseconds by callers, goodput by load."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    one = [Load(1, callers) for callers in CALLERS]
    opened = [Load(times=times) for times in TIMES]
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    rate, late, good = figure.subplots(1, 3)
    for subject in (each for each in SUBJECTS if each.computes):  # the rest is of another scale
        for axes, loads, name in (
            (rate, one, "per_second"),
            (late, one, "p99"),
            (good, opened, "in_time_per_second"),
        ):
            found = [results.find(subject.name, engine, load) for load in loads]
            points = [
                (each.load.times or each.load.callers, middle(each.values(name)))
                for each in found
                if each is not None
            ]
            if points:
                wide = _WIDE if subject.name == HEADRACE else 1.2
                axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=wide,
                          label=subject.name)  # fmt: skip
    for axes, title, below in (
        (rate, "requests/s, one text each", "callers"),
        (late, "p99, ms", "callers"),
        (good, "answers/s within the deadline", "offered, times the peak"),
    ):
        axes.set_title(title)
        axes.set_xlabel(below)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    late.set_yscale("log")  # which has no 0 to begin at
    for axes in (rate, good):
        axes.set_ylim(bottom=0)
    for axes, ticks in ((rate, CALLERS), (late, CALLERS), (good, TIMES)):
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    figure.legend(*rate.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure

"""What a run found, as the tables of ``docs/performance.md``; each says what computed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.gpu.device import Gpu, Kind
from bench.gpu.grid import Point, saturation
from bench.gpu.paths import Path, Round
from bench.peers.comparison import Likeness


@dataclass
class Found:
    """All of one precision."""

    precision: str
    points: list[Point] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    likeness: dict[str, Likeness] = field(default_factory=dict)
    versions: dict[str, object] = field(default_factory=dict)

    def add(self, paths: Sequence[Path]) -> None:
        """Adds a round of some loads."""
        for new in paths:
            for known in self.paths:
                if (known.who, known.gateways, known.texts) == (new.who, new.gateways, new.texts):
                    known.rounds += new.rounds
                    break
            else:
                self.paths.append(new)


@dataclass(frozen=True)
class Results:
    """A run: ``machine`` as ``bench.machine`` describes it, ``gpu`` None on the CPU."""

    machine: Mapping[str, Any]
    gpu: Gpu | None
    found: Sequence[Found]

    @property
    def kind(self) -> Kind:
        """What computed."""
        return Kind.CPU if self.gpu is None else Kind.GPU

    @property
    def on(self) -> str:
        """What computed, by name: every table begins with it."""
        if self.gpu is not None:
            return f"On a GPU: {self.gpu.name}."
        return f"**On the CPU, not on a GPU**: {self.machine['processor']}."


def tables(results: Results) -> dict[str, str]:
    """Marker's name -> table."""
    made = {
        "gpu-device": _device(results),
        "gpu-engine": "\n\n".join(_engine(found) for found in results.found),
        "gpu-paths": _paths(results.found),
    }
    return {name: f"{results.on}\n\n{text}" for name, text in made.items()}


def _device(results: Results) -> str:
    lines = ["| what | |", "|---|---|"]
    if results.gpu is not None:
        gpu = results.gpu
        lines.append(f"| GPU | {gpu.name}, {gpu.memory}, driver {gpu.driver}, CUDA {gpu.cuda} |")
    cores = len(results.machine["cores"])
    lines.append(f"| processor | {results.machine['processor']}, {cores} cores |")
    lines.append(f"| commit | {results.machine['commit']} |")
    for found in results.found:
        told = "; ".join(f"{name} {value}" for name, value in found.versions.items())
        lines.append(f"| {found.precision} | {told} |")
    return "\n".join(lines)


def _engine(found: Found) -> str:
    """Milliseconds and tokens a second by rows and tokens a row."""
    tokens = sorted({point.tokens for point in found.points})
    by_shape = {(point.rows, point.tokens): point for point in found.points}
    lines = [
        f"{found.precision}, milliseconds a batch; rows/s; thousand tokens/s:\n",
        "| rows | " + " | ".join(f"{count} tokens" for count in tokens) + " |",
        "|---" * (len(tokens) + 1) + "|",
    ]
    for rows in sorted({point.rows for point in found.points}):
        cells = [_cell(by_shape[rows, count]) for count in tokens]
        lines.append(f"| {rows} | " + " | ".join(cells) + " |")
    full = saturation(found.points)
    lines.append(
        f"\nSaturated from {full.batch_tokens:,} tokens a batch on ({full.rows} rows of "
        f"{full.tokens}): {full.tokens_per_second / 1000:,.1f} thousand tokens/s."
    )
    return "\n".join(lines)


def _cell(point: Point) -> str:
    return (
        f"{point.milliseconds:,.2f}; {point.rows_per_second:,.0f}; "
        f"{point.tokens_per_second / 1000:,.1f}"
    )


def _paths(every: Sequence[Found]) -> str:
    lines = [
        "| precision | who | gateways | texts a request | texts/s | p50, ms | p99, ms "
        "| engine busy | cosine to fp32, mean / least |\n" + "|---" * 9 + "|",
    ]
    for found in every:
        for path in sorted(found.paths, key=lambda each: (each.texts, each.gateways, each.who)):
            like = found.likeness.get(path.who)
            cosine = "-" if like is None else f"{like.mean_cosine:.4f} / {like.least_cosine:.4f}"
            lines.append(
                f"| {found.precision} | {path.who} | {path.gateways} | {path.texts} "
                f"| {_rates(path.rounds)} | {path.middle('p50'):,.1f} | {path.middle('p99'):,.1f} "
                f"| {100 * path.middle('busy'):.0f} % | {cosine} |"
            )
    return "\n".join(lines)


def _rates(rounds: Sequence[Round]) -> str:
    """The median with its spread, and what failed."""
    values = sorted(each.texts_per_second for each in rounds)
    shown = f"{values[len(values) // 2]:,.0f}"
    if len(values) > 1:
        shown += f" ({values[0]:,.0f} to {values[-1]:,.0f})"
    failed = sum(each.failed for each in rounds)
    return shown if not failed else f"{shown}; **{failed} failed**"

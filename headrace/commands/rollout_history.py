"""Draws an endpoint's history on a terminal: a line an event, and below it why. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Group, RenderableType

from contracts.endpoint import Phase, Transition
from contracts.rollout import CommandOutcome
from headrace.commands.layout import GLUE, Row, Sentence, rows, sentences
from rollout.plots import number

_PERCENT = "percent"
_STYLE = {
    Phase.PROMOTED: "green",
    Phase.SETTLED: "green",
    Phase.SERVING: "green",
    Phase.BLOCKED: "yellow",
    Phase.REJECTED: "red",
    Phase.ROLLED_BACK: "red",
}


def history(
    lines: Iterable[Transition], refused: Iterable[CommandOutcome], *, details: bool
) -> Group:
    """Transitions and, among them, what was asked in vain: who asked may have left by then.

    Args:
        lines: in any order.
        refused: commands that were not taken.
        details: with the figures that each transition rests on.
    """
    told: list[Transition | CommandOutcome] = [*lines, *refused]
    told.sort(key=lambda line: line.at)
    entries = [
        _refusal(line) if isinstance(line, CommandOutcome) else _transition(line, details=details)
        for line in told
    ]
    parts: list[RenderableType] = [rows(("time (UTC)", "version", "what"), entries)]
    if not details and any(
        set(line.figures) - {_PERCENT} for line in told if isinstance(line, Transition)
    ):
        parts += ["", Sentence("The figures behind each decision: --details", style="dim")]
    return Group(*parts)


def _transition(line: Transition, *, details: bool) -> Row:
    figures = dict(line.figures)
    percent = figures.pop(_PERCENT, None)
    what = line.phase.value if percent is None else f"{line.phase.value} {percent:g} %"
    below = sentences(line.reason)
    if details:
        below += check_figures(figures)
    return Row(
        (_time(line.at), line.version, what + _by(line.by)), below, _STYLE.get(line.phase, "")
    )


def _refusal(line: CommandOutcome) -> Row:
    what = f"{line.verb.value} was refused{_by(line.by)}"
    return Row((_time(line.at), "", what), sentences(line.said), "yellow")


def _by(who: str) -> str:
    return f", by {who}" if who else ""


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def check_figures(figures: dict[str, float]) -> tuple[Sentence, ...]:
    """A sentence for each check, with all its figures.

    Args:
        figures: by ``<check>.<figure>``; those of no check by their name alone.
    """
    by_check: dict[str, list[str]] = {}
    for path, value in figures.items():
        check, dot, name = path.rpartition(".")
        words = f"{name.replace('_', ' ')} {number(value)}".replace(" ", GLUE)
        by_check.setdefault(check if dot else "", []).append(words)
    return sentences(
        *(f"{check}{': ' if check else ''}{', '.join(told)}" for check, told in by_check.items()),
        style="dim",
    )

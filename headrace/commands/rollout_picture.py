"""Draws a rollout on a terminal: at a glance, and its figures where they are asked for. Pure."""

from rich.console import Group, RenderableType
from rich.text import Text

from contracts.rollout import CheckResult, Verdict
from contracts.way import Mark, Stage
from headrace.commands.layout import Pieces, Row, Sentence, rows, sentences
from headrace.commands.rollout_history import check_figures
from headrace.rollouts.view import View, about

_STYLE = {
    Mark.DONE: "green",
    Mark.NOW: "bold cyan",
    Mark.AHEAD: "dim",
    Mark.FAILED: "bold red",
    Mark.LEFT: "yellow",
}
# Also without colour one must see where it is.
_AROUND = {Mark.NOW: ("[", "]"), Mark.FAILED: ("[✗ ", "]"), Mark.LEFT: ("[", " left]")}
_VERDICT = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.UNKNOWN: "not yet"}
_VERDICT_STYLE = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.UNKNOWN: ""}


def picture(seen: View, *, details: bool = False) -> Group:
    """A rollout for people: its way, who gets what, its checks.

    Args:
        seen: the rollout.
        details: with the sentence of every check, and all figures. Without, a check that passes or
            whose sentence is the reason that is told already is its verdict alone.
    """
    parts: list[RenderableType] = [*_headline(seen)]
    if seen.stages:
        parts.append(way(seen.stages))
    if seen.arms:
        parts.append(_arms(seen))
    if seen.bake_seconds is not None:
        parts.append(Sentence("In its bake no check need pass; one that fails takes it back."))
    if seen.checks:
        parts += [
            "",
            rows((), [_check(check, seen.reason, details=details) for check in seen.checks]),
        ]
    if seen.next_version is not None:
        parts.append(Sentence(f"Version {seen.next_version} waits for this one to end."))
    if seen.commands_waiting:
        count = seen.commands_waiting
        wait = "1 command waits" if count == 1 else f"{count} commands wait"
        parts.append(Sentence(f"{wait} for the controller."))
    return Group(*parts)


def way(stages: tuple[Stage, ...]) -> Pieces:
    """The stages one after the other, ``converting > verifying > [shadow] > 5 % > promoted``."""
    pieces: list[Text] = []
    for stage in stages:
        before, after = _AROUND.get(stage.mark, ("", ""))
        pieces.append(Text(f"{before}{stage.name}{after}", style=_STYLE[stage.mark]))
    return Pieces(tuple(pieces), between=" > ")


def _headline(seen: View) -> list[Sentence]:
    if seen.version is None:
        return [Sentence(f"{seen.endpoint}: no version yet", style="bold")]
    title = f"{seen.endpoint}: version {seen.version}"
    if seen.against is not None and seen.against != seen.version:
        title += f" against version {seen.against}"
    now = [seen.phase]
    if seen.paused:
        now.append("paused")
    if seen.deadline_seconds is not None:
        now.append(f"{about(seen.deadline_seconds)} to the deadline")
    if seen.bake_seconds is not None:
        now.append(f"{about(seen.bake_seconds)} of its bake left")
    style = "yellow" if seen.paused else ""
    told = [Sentence(title, style="bold", rest=2), Sentence(", ".join(now), style=style, rest=2)]
    return [*told, *sentences(seen.reason)]


def _arms(seen: View) -> Sentence:
    told = [f"{arm.arm} version {arm.version} {arm.percent:g} %" for arm in seen.arms]
    return Sentence(f"weights: {', '.join(told)}", rest=2)


def _check(check: CheckResult, told: str, *, details: bool) -> Row:
    is_plain = check.verdict is Verdict.PASS or f"{check.name}: {check.reason}" in told
    below = sentences(check.reason) if details or not is_plain else ()
    if details:
        below += check_figures(dict(check.figures))
    said = _VERDICT[check.verdict] + _role(check)
    return Row((check.name, said), below, _VERDICT_STYLE[check.verdict])


def _role(check: CheckResult) -> str:
    if not check.gate:
        return " (reports only)"
    return "" if check.required else " (need not pass)"

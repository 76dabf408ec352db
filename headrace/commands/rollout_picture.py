"""Draws a rollout on a terminal. Called by ``headrace rollout status``; reads nothing itself."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from contracts.rollout import CheckResult, Verdict
from contracts.way import Mark, Stage
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
_VERDICT = {
    Verdict.PASS: "[green]pass[/]",
    Verdict.FAIL: "[red]fail[/]",
    Verdict.UNKNOWN: "not yet",
}


def picture(seen: View) -> Group:
    """A rollout for people: its way, who gets what, its checks."""
    parts: list[RenderableType] = [_headline(seen)]
    if seen.stages:
        parts.append(way(seen.stages))
    if seen.arms:
        parts.append(_arms(seen))
    if seen.bake_seconds is not None:
        parts.append("In its bake no check need pass; one that fails takes it back.")
    if seen.checks:
        parts += ["", _checks(seen.checks)]
    if seen.next_version is not None:
        parts.append(f"Version {seen.next_version} waits for this one to end.")
    if seen.commands_waiting:
        count = seen.commands_waiting
        wait = "1 command waits" if count == 1 else f"{count} commands wait"
        parts.append(f"{wait} for the controller.")
    return Group(*parts)


def way(stages: tuple[Stage, ...]) -> Text:
    """The stages as a line, ``converting > verifying > [shadow] > 5 % > promoted``."""
    line = Text()
    for number, stage in enumerate(stages):
        if number:
            line.append(" > ", style="dim")
        before, after = _AROUND.get(stage.mark, ("", ""))
        line.append(f"{before}{stage.name}{after}", style=_STYLE[stage.mark])
    return line


def _headline(seen: View) -> Text:
    if seen.version is None:
        return Text(f"{seen.endpoint}: no version yet")
    line = Text(f"{seen.endpoint}: version {seen.version}", style="bold")
    if seen.against is not None and seen.against != seen.version:
        line.append(f" against version {seen.against}", style="not bold")
    line.append(f"  {seen.phase}", style="not bold")
    if seen.paused:
        line.append(", paused", style="yellow")
    if seen.deadline_seconds is not None:
        line.append(f", {about(seen.deadline_seconds)} to the deadline", style="not bold")
    if seen.bake_seconds is not None:
        line.append(f", {about(seen.bake_seconds)} of its bake left", style="not bold")
    if seen.reason:
        line.append(f"\n{seen.reason}", style="not bold")
    return line


def _arms(seen: View) -> str:
    told = [f"{arm.arm} version {arm.version} {arm.percent:g} %" for arm in seen.arms]
    return f"weights: {', '.join(told)}"


def _checks(checks: tuple[CheckResult, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("says", overflow="fold")
    for check in checks:
        says = escape(check.reason) + _role(check)
        table.add_row(escape(check.name), _VERDICT[check.verdict], says)
    return table


def _role(check: CheckResult) -> str:
    if not check.gate:
        return " [dim](reports only)[/]"
    return "" if check.required else " [dim](need not pass)[/]"

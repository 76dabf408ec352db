"""A rollout and an endpoint's history for a terminal, and a rollout as JSON. Pure."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from contracts.durations import humanise
from contracts.endpoint import Phase, Transition
from contracts.instants import date_and_time
from contracts.rollout import CheckResult, CommandOutcome, Verdict
from headrace.commands.layout import GLUE, Pieces, Sentence, TableRow, rows, sentences
from rollout.plots import number
from rollout.view import RolloutView, StageMark, StageView

_STYLE = {
    StageMark.DONE: "green",
    StageMark.NOW: "bold cyan",
    StageMark.AHEAD: "dim",
    StageMark.FAILED: "bold red",
    StageMark.LEFT: "yellow",
}
# Also without colour one must see where it is.
_AROUND = {
    StageMark.NOW: ("[", "]"),
    StageMark.FAILED: ("[✗ ", "]"),
    StageMark.LEFT: ("[", " left]"),
}
_VERDICT = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.UNKNOWN: "not yet"}
_VERDICT_STYLE = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.UNKNOWN: ""}
_PERCENT = "percent"
_PHASE_STYLE = {
    Phase.PROMOTED: "green",
    Phase.SETTLED: "green",
    Phase.SERVING: "green",
    Phase.BLOCKED: "yellow",
    Phase.REJECTED: "red",
    Phase.ROLLED_BACK: "red",
    Phase.EXPIRED: "yellow",
}


def document(seen: RolloutView, now: float) -> dict[str, Any]:
    """The rollout as JSON, at this unix time."""
    return {
        "endpoint": seen.endpoint,
        "version": seen.version,
        "against": seen.against,
        "phase": seen.phase,
        "reason": seen.reason,
        "stages": [asdict(stage) for stage in seen.stages],
        "arms": [asdict(arm) for arm in seen.arms],
        "checks": [check.model_dump(mode="json", by_alias=True) for check in seen.checks],
        "paused": seen.paused_at is not None,
        "deadline_seconds": seen.deadline_seconds(now),
        "bake_seconds": seen.bake_seconds(now),
        "next_version": seen.next_version,
        "commands_waiting": seen.commands_waiting,
        "answers": [answer.model_dump(mode="json") for answer in seen.answers],
        "spaces": [asdict(space) for space in seen.spaces],
    }


def in_brief(seen: RolloutView, now: float) -> str:
    """The rollout in a few words, for a table; empty if none is on."""
    deadline, bake = seen.deadline_seconds(now), seen.bake_seconds(now)
    if deadline is None and bake is None:
        return ""
    passed = sum(check.verdict is Verdict.PASS for check in seen.checks)
    stage = next((stage.name for stage in seen.stages if stage.mark is StageMark.NOW), seen.phase)
    words = [f"version {seen.version} at {stage}"]
    if seen.paused_at is not None:
        words.append("paused")
    if seen.checks:
        words.append(f"{passed} of {len(seen.checks)} checks pass")
    return ", ".join((*words, *_time_left(seen, now)))


def _time_left(seen: RolloutView, now: float) -> list[str]:
    deadline, bake = seen.deadline_seconds(now), seen.bake_seconds(now)
    told = [] if deadline is None else [f"{humanise(deadline)} to the deadline"]
    return told if bake is None else [*told, f"{humanise(bake)} of its bake left"]


def picture(seen: RolloutView, now: float, *, details: bool = False) -> Group:
    """A rollout for people: its stages, who gets what, its checks.

    Without ``details``, only the verdict of a check is shown if it passes, or if its sentence is
    the reason that is shown already.
    """
    parts: list[RenderableType] = [*_headline(seen, now)]
    if seen.stages:
        parts.append(stage_line(seen.stages))
    if seen.arms:
        parts.append(_arms(seen))
    if seen.bake_ends_at is not None:
        parts.append(Sentence("In its bake no check has to pass; one that fails rolls it back."))
    if len(seen.spaces) > 1:
        parts += [
            Sentence(f"space {each.space} of version {each.version}: {each.who}", rest=2)
            for each in seen.spaces
        ]
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


def stage_line(stages: tuple[StageView, ...]) -> Pieces:
    """The stages one after the other, ``converting > verifying > [shadow] > 5 % > promoted``."""
    pieces: list[Text] = []
    for stage in stages:
        before, after = _AROUND.get(stage.mark, ("", ""))
        pieces.append(Text(f"{before}{stage.name}{after}", style=_STYLE[stage.mark]))
    return Pieces(tuple(pieces), between=" > ")


def _headline(seen: RolloutView, now: float) -> list[Sentence]:
    if seen.version is None:
        return [Sentence(f"{seen.endpoint}: no version yet", style="bold")]
    title = f"{seen.endpoint}: version {seen.version}"
    if seen.against is not None and seen.against != seen.version:
        title += f" against version {seen.against}"
    is_paused = seen.paused_at is not None
    where = ", ".join((seen.phase, *(["paused"] if is_paused else []), *_time_left(seen, now)))
    style = "yellow" if is_paused else ""
    told = [Sentence(title, style="bold", rest=2), Sentence(where, style=style, rest=2)]
    return [*told, *sentences(seen.reason)]


def _arms(seen: RolloutView) -> Sentence:
    told = [f"{arm.arm} version {arm.version} {arm.percent:g} %" for arm in seen.arms]
    return Sentence(f"weights: {', '.join(told)}", rest=2)


def _check(check: CheckResult, told: str, *, details: bool) -> TableRow:
    is_plain = check.verdict is Verdict.PASS or f"{check.name}: {check.reason}" in told
    below = sentences(check.reason) if details or not is_plain else ()
    if details:
        below += _check_figures(dict(check.figures))
    said = _VERDICT[check.verdict] + _role(check)
    return TableRow((check.name, said), below, _VERDICT_STYLE[check.verdict])


def _role(check: CheckResult) -> str:
    if not check.gate:
        return " (reports only)"
    return "" if check.required else " (need not pass)"


def history(
    lines: Iterable[Transition], refused: Iterable[CommandOutcome], *, details: bool
) -> Group:
    """Transitions and, among them, what was asked in vain: who asked may have left by then."""
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


def _transition(line: Transition, *, details: bool) -> TableRow:
    figures = dict(line.figures)
    percent = figures.pop(_PERCENT, None)
    what = line.phase.value if percent is None else f"{line.phase.value} {percent:g} %"
    below = sentences(line.reason)
    if details:
        below += _check_figures(figures)
    return TableRow(
        (date_and_time(line.at), line.version, what + _say_who(line.by)),
        below,
        _PHASE_STYLE.get(line.phase, ""),
    )


def _refusal(line: CommandOutcome) -> TableRow:
    what = f"{line.verb.value} was refused{_say_who(line.by)}"
    return TableRow((date_and_time(line.at), "", what), sentences(line.said), "yellow")


def _say_who(who: str) -> str:
    return f", by {who}" if who else ""


def _check_figures(figures: dict[str, float]) -> tuple[Sentence, ...]:
    by_check: dict[str, list[str]] = {}
    for path, value in figures.items():
        check, dot, name = path.rpartition(".")
        words = f"{name.replace('_', ' ')} {number(value)}".replace(" ", GLUE)
        by_check.setdefault(check if dot else "", []).append(words)
    return sentences(
        *(f"{check}{': ' if check else ''}{', '.join(told)}" for check, told in by_check.items()),
        style="dim",
    )

"""One rollout as a page that explains its verdict, and as the JSON that it rests on. Pure.

The page is self-contained: no script, no font, no picture from elsewhere. Everything that a user
named is escaped.
"""

import json
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from html import escape
from typing import Any

from contracts.durations import format_duration
from contracts.endpoint import ModelEndpoint, Phase, Transition
from contracts.instants import date_and_time
from contracts.rollout import CheckResult, RolloutState, SeriesPoint, Verdict
from rollout import plots
from rollout.packed_evidence import unpack
from rollout.plots import PlotLine, PlotMark, number
from rollout.series import gather
from rollout.view import FULL, list_checks, of_rollout

SCHEMA_VERSION = 1

_MARKED = frozenset({Phase.SHADOW, Phase.CANARY, Phase.PROMOTED})
_MOST_POINTS = 60

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2128; background: #fff;
  max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.verdict { font-size: 1.1rem; margin: .75rem 0; padding: .6rem .9rem; border-left: 5px solid; }
p.verdict.good { border-color: #1a7f37; background: #eefaf0; }
p.verdict.bad { border-color: #c62828; background: #fdf0ef; }
p.verdict.open { border-color: #8a6d00; background: #fdf8e6; }
dl { display: grid; grid-template-columns: max-content auto; gap: .15rem 1rem; margin: 1rem 0; }
dt { color: #57606a; } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem .4rem 0;
  border-bottom: 1px solid #d8dee4; }
th { color: #57606a; font-weight: 600; } td.time, td.verdict { white-space: nowrap; }
.pass { color: #1a7f37; font-weight: 600; } .fail { color: #c62828; font-weight: 600; }
.unknown { color: #8a6d00; font-weight: 600; }
.figures, .small { color: #57606a; font-size: .85em; }
svg { width: 100%; height: auto; margin: .25rem 0 .75rem; }
svg text { font: 11px system-ui, sans-serif; fill: #57606a; }
svg .title { font-size: 13px; font-weight: 600; fill: #1c2128; }
svg .note { paint-order: stroke; stroke: #fff; stroke-width: 3px; }
svg .grid { stroke: #e3e7eb; fill: none; } svg .mark { stroke: #9aa4ae; stroke-dasharray: 3 3; }
svg .line { fill: none; stroke-width: 1.8; } svg path.candidate { stroke: #c2560c; }
svg path.stable { stroke: #1f5fbf; stroke-dasharray: 6 2; }
svg circle.candidate { fill: #c2560c; } svg circle.stable { fill: #1f5fbf; }
"""


def document(endpoint: ModelEndpoint, state: RolloutState) -> dict[str, Any]:
    """All that the verdict rests on, JSON-able: spec, state with series and evidence, history."""
    with suppress(ValueError):  # damaged: as it is stored, for the person who looks into it
        state = state.model_copy(update={"evidence": unpack(state.evidence)})
    return {
        "schema_version": SCHEMA_VERSION,
        "endpoint": endpoint.name,
        "model": endpoint.spec.model,
        "version": state.candidate.version,
        "compared_with": state.stable.version,
        "spec": endpoint.rollout_spec.model_dump(mode="json", by_alias=True),
        "rollout": json.loads(state.model_dump_json(by_alias=True)),
        "history": [
            json.loads(line.model_dump_json()) for line in of_rollout(endpoint, state).lines
        ],
    }


def page(endpoint: ModelEndpoint, state: RolloutState) -> str:
    """The report as one HTML document."""
    lines = of_rollout(endpoint, state).lines
    title = f"{endpoint.name}: version {state.candidate.version} of {endpoint.spec.model}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="small">A rollout, compared with version {escape(state.stable.version)}.</p>',
        _verdict(state),
        _facts(endpoint, state),
        "<h2>Both arms over time</h2>",
        _plots(state, lines),
        "<h2>Checks</h2>",
        _since(state),
        _checks(list_checks(state)),
        "<h2>What happened</h2>",
        _transitions(lines),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


# The head


def _verdict(state: RolloutState) -> str:
    if state.outcome is not None:
        good = {"Settled": "good", "Superseded": "open", "Expired": "open"}
        css, verdict = good.get(state.outcome.value, "bad"), _words(state.outcome.value)
    elif state.promoted_at is not None:
        css, verdict = "good", "Promoted, and still compared with the version before"
    else:
        css, verdict = "open", "No verdict yet"
    reason = f": {escape(state.reason)}" if state.reason else ""
    return f'<p class="verdict {css}"><b>{escape(verdict)}</b>{reason}</p>'


def _facts(endpoint: ModelEndpoint, state: RolloutState) -> str:
    facts = [("began (UTC)", date_and_time(state.began))]
    if state.promoted_at is not None:
        facts.append(("promoted", date_and_time(state.promoted_at)))
    if state.ended_at is not None:
        facts.append(("ended", date_and_time(state.ended_at)))
        facts.append(("took", format_duration(round(max(0.0, state.ended_at - state.began)))))
    if state.paused_seconds:
        facts.append(("paused for", format_duration(round(state.paused_seconds))))
    steps = ", ".join(map(FULL.step, endpoint.rollout_spec.planned))
    candidate = _total(state.series, lambda point: point.candidate_requests)
    stable = _total(state.series, lambda point: point.stable_requests)
    facts += [
        ("steps", steps),
        ("requests judged", f"{candidate:,} of the candidate, {stable:,} of the stable version"),
        ("package", state.candidate.package),
        ("compared with", f"version {state.stable.version}, package {state.stable.package}"),
        ("rollout", state.id),
    ]
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return "<dl>" + "".join(rows) + "</dl>"


# The plots


def _plots(state: RolloutState, lines: Iterable[Transition]) -> str:
    series = gather(state.series, _MOST_POINTS)
    marks = [PlotMark(line.at, _mark(line)) for line in lines if line.phase in _MARKED]
    candidate = f"candidate, version {state.candidate.version}"
    stable = f"stable, version {state.stable.version}"

    def arms(
        of_candidate: Callable[[SeriesPoint], float | None],
        of_stable: Callable[[SeriesPoint], float | None],
    ) -> list[PlotLine]:
        middle = [point.start + point.seconds / 2 for point in series]
        return [
            PlotLine(stable, "stable", list(zip(middle, map(of_stable, series), strict=True))),
            PlotLine(
                candidate, "candidate", list(zip(middle, map(of_candidate, series), strict=True))
            ),
        ]

    met = next((point.start for point in series if point.candidate_requests), math.inf)
    requests = arms(
        # Before the first one it was not there to be asked, which is no rate of zero.
        lambda point: point.candidate_requests / point.seconds if point.start >= met else None,
        lambda point: point.stable_requests / point.seconds,
    )
    errors = arms(
        lambda point: _percent(point.candidate_errors, point.candidate_requests),
        lambda point: _percent(point.stable_errors, point.stable_requests),
    )
    slow = arms(
        lambda point: _percent(point.candidate_slow, point.candidate_requests),
        lambda point: _percent(point.stable_slow, point.stable_requests),
    )
    drawn = [
        plots.plot("Requests judged, per second", "", requests, marks),
        plots.plot("Answered with an error", " %", errors, marks),
        plots.plot("Slower than the stable version's 95th percentile", " %", slow, marks),
    ]
    if any(point.candidate_feedback or point.stable_feedback for point in series):
        wrong = arms(
            lambda point: _percent(point.candidate_wrong, point.candidate_feedback),
            lambda point: _percent(point.stable_wrong, point.stable_feedback),
        )
        drawn.append(plots.plot("Wrong, of the answers with feedback", " %", wrong, marks))
    return "\n".join(drawn)


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _mark(line: Transition) -> str:
    percent = line.figures.get("percent")
    if line.phase is Phase.CANARY and percent is not None:
        return f"{percent:g} %"
    return _words(line.phase.value).lower()


# The tables


def _since(state: RolloutState) -> str:
    """What the results are of: they begin again with each step."""
    if state.promoted_at is None:
        return ""
    return (
        '<p class="small">Since the promotion, against the callers that the old version kept. '
        "What each step passed by is told below.</p>"
    )


def _checks(checks: Iterable[CheckResult]) -> str:
    rows = [
        "<tr>"
        f"<td><b>{escape(check.name)}</b>{_role(check)}</td>"
        f'<td class="verdict {check.verdict.value}">{_verdict_word(check.verdict)}</td>'
        f"<td>{escape(check.reason)}"
        f'<div class="figures">{_figures(check.figures)}</div></td>'
        "</tr>"
        for check in checks
    ]
    if not rows:
        return '<p class="empty">No check has said anything yet.</p>'
    head = "<tr><th>check</th><th>verdict</th><th>what it rests on</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _role(check: CheckResult) -> str:
    if not check.gate:
        return '<div class="small">reports only</div>'
    return "" if check.required else '<div class="small">need not pass</div>'


def _verdict_word(verdict: Verdict) -> str:
    return "not known" if verdict is Verdict.UNKNOWN else verdict.value


def _transitions(lines: Iterable[Transition]) -> str:
    rows = [
        "<tr>"
        f'<td class="time">{escape(date_and_time(line.at))}</td>'
        f'<td class="time">{escape(_words(line.phase.value))}{_percent_of(line)}</td>'
        f"<td>{escape(line.reason)}{_by(line)}"
        f'<div class="figures">{_by_check(_check_figures(line))}</div></td>'
        "</tr>"
        for line in lines
    ]
    if not rows:
        return '<p class="empty">The history does not reach back so far.</p>'
    head = "<tr><th>when (UTC)</th><th>phase</th><th>why</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _percent_of(line: Transition) -> str:
    percent = line.figures.get("percent")
    return "" if percent is None else f" {percent:g} %"


def _check_figures(line: Transition) -> dict[str, float]:
    return {name: value for name, value in line.figures.items() if name != "percent"}


def _by(line: Transition) -> str:
    return f" (by {escape(line.by)})" if line.by else ""


def _by_check(figures: dict[str, float]) -> str:
    """The figures of a transition, a line for each check."""
    checks: dict[str, dict[str, float]] = {}
    for path, value in figures.items():
        check, dot, name = path.rpartition(".")
        checks.setdefault(check if dot else "", {})[name] = value
    return "<br>".join(
        f"{escape(check)}{': ' if check else ''}{_figures(of_check)}"
        for check, of_check in checks.items()
    )


def _figures(figures: dict[str, float]) -> str:
    return " · ".join(
        f"{escape(name.replace('_', ' '))} {number(value)}" for name, value in figures.items()
    )


# Words


def _words(name: str) -> str:
    """A phase's or outcome's name as words: ``RolledBack`` is ``Rolled back``."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip().capitalize()


def _total(series: Iterable[SeriesPoint], count: Callable[[SeriesPoint], int]) -> int:
    return sum(count(point) for point in series)

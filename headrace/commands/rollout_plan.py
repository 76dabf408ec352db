"""``headrace rollout plan``: what a rollout would find in the traffic of the last day, and when."""

import math
import time
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from contracts.durations import humanise
from contracts.model import ModelRef
from contracts.windows import EndpointWindow
from headrace import home as homes
from headrace.commands.layout import Sentence
from headrace.commands.output import console, print_json, table_of
from headrace.endpoints import edits
from headrace.errors import NotRunningError, RefusedError
from headrace.home import Where
from headrace.invocation import is_structured
from headrace.program import say_wait
from rollout.forecast import Forecast, LabelDelays, forecast
from service.kafka import StreamError
from stats.reading.record_log import windows_since

_NEVER = "-"


def show_plan(where: Where, kafka: str | None, name: str, begin: float) -> None:
    """Reads the traffic since ``begin`` (unix seconds) and tells what a rollout would find."""
    endpoint = edits.find_existing(homes.site(where).store, name)
    stable = endpoint.status.stable
    if stable is None:
        raise RefusedError(f"{name} has no version yet, so a first one is compared with nothing.")
    brokers = homes.kafka_of(where, kafka)
    say_wait(f"Kafka at {brokers}")
    try:
        windows = windows_since(brokers, name, begin)
    except StreamError as error:
        raise NotRunningError(f"No windows can be read: {error}.") from error
    counted = of_version(windows, stable, begin)
    if not counted:
        raise RefusedError(f"No traffic of version {stable.version} of {name} is known since then.")
    seconds = time.time() - counted[0].start
    told = forecast(endpoint.rollout_spec, stable, counted, seconds)
    if is_structured():
        print_json(document(name, stable, told, seconds))
    else:
        console.print(picture(name, stable, told, seconds))


def of_version(
    windows: tuple[EndpointWindow, ...], version: ModelRef, begin: float
) -> tuple[EndpointWindow, ...]:
    """Those since ``begin`` in which this package had traffic."""
    return tuple(
        window
        for window in windows
        if window.start >= begin
        and any(found.package == version.package for found in window.aggregates)
    )


def picture(name: str, stable: ModelRef, told: Forecast, seconds: float) -> Group:
    """The forecast for people."""
    callers = "more than 100" if math.isinf(told.callers) else f"about {told.callers:.0f}"
    table = table_of("hours until found, by step", *(step.name for step in told.steps))
    table.add_row("the version's requests an hour", *(f"{s.requests:,.0f}" for s in told.steps))
    for fault in dict.fromkeys(fault for step in told.steps for fault in step.found):
        hours = (_hours(step.found[fault]) if fault in step.found else "" for step in told.steps)
        table.add_row(fault, *hours)
    table.add_row("an equal version passes", *(_hours(step.passes) for step in told.steps))
    deadline = f"{told.deadline_hours:g} h"
    parts: list[RenderableType] = [
        Sentence(f"{name}: a rollout against version {stable.version}", style="bold"),
        Sentence(
            f"In the last {humanise(seconds)} it had {told.requests:,.0f} requests an hour, of "
            f"{callers} callers with a name; {told.unnamed:.0%} of the requests have none."
        ),
        "",
        table,
        "",
        *_labels(told.labels),
        Sentence(f"{_NEVER}: not within the deadline of {deadline}, half of the time or more."),
        *(Sentence(warning, style="yellow") for warning in told.warnings()),
    ]
    return Group(*parts)


def document(name: str, stable: ModelRef, told: Forecast, seconds: float) -> dict[str, Any]:
    """The forecast as JSON, in which what is not found within the deadline is null."""
    return {
        "endpoint": name,
        "against": stable.version,
        "seconds": seconds,
        "requests_an_hour": told.requests,
        "callers": _to_finite(told.callers),
        "unnamed_share": told.unnamed,
        "deadline_hours": told.deadline_hours,
        "passes_hours": _to_finite(told.passes_hours),
        "labels": None if told.labels is None else _delays(told.labels),
        "steps": [
            {
                **asdict(step),
                "found": {fault: _to_finite(hours) for fault, hours in step.found.items()},
                "passes": _to_finite(step.passes),
            }
            for step in told.steps
        ],
        "warnings": list(told.warnings()),
    }


def _labels(delays: LabelDelays | None) -> list[Sentence]:
    """How long labels take, in a sentence; nothing where none came."""
    if delays is None:
        return []
    kinds = [
        f"of those that say {name} half come within {_age(half)}, nine in ten within {_age(most)}"
        for name, (half, most) in (("right", delays.right), ("wrong", delays.wrong))
        if most
    ]
    said = f"Labels: {delays.hourly:,.0f} an hour; {', and '.join(kinds)}."
    return [Sentence(f"{said} quality judges a step by labels of answers given in it.")]


def _age(seconds: float) -> str:
    return "more than 30 days" if math.isinf(seconds) else humanise(seconds)


def _delays(delays: LabelDelays) -> dict[str, Any]:
    """Seconds after the answer, null beyond 30 days."""
    return {
        "an_hour": delays.hourly,
        **{
            f"{name}_{part}_seconds": _to_finite(seconds)
            for name, of_kind in (("right", delays.right), ("wrong", delays.wrong))
            for part, seconds in zip(("half", "most"), of_kind, strict=True)
        },
    }


def _to_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _hours(hours: float) -> str:
    if math.isinf(hours):
        return _NEVER
    return f"{hours:.2f}" if hours < 1 else f"{hours:.1f}"

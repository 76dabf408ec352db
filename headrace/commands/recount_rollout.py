"""``headrace recount --rollout``: a rollout's verdict derived again from the raw events."""

from typing import Any

from rich.markup import escape

from contracts.endpoint import ModelEndpoint
from contracts.instants import date_and_time
from contracts.rollout import RolloutState
from headrace import home as homes
from headrace.commands.output import console, print_json, table_of
from headrace.endpoints import edits
from headrace.errors import NotRunningError, RefusedError
from headrace.home import Where
from headrace.invocation import is_structured
from headrace.program import say_wait
from service.kafka import StreamError
from stats.recounting.verdict import VerdictRecount, recount_verdict_kafka

_NONE = "-"


def derive(where: Where, kafka: str | None, name: str) -> None:
    """Derives the verdict of the endpoint's rollout, or of its last one, and compares.

    Raises:
        NotRunningError: Kafka is away, or nobody knows where it is.
        RefusedError: there was no rollout, or see ``tell``.
    """
    endpoint = edits.find_existing(homes.site(where).store, name)
    state = rollout_of(endpoint)
    brokers = homes.kafka_of(where, kafka)
    say_wait(f"Kafka at {brokers}")
    try:
        found = recount_verdict_kafka(brokers, endpoint, state, progress=say_wait)
    except StreamError as error:
        raise NotRunningError(f"Nothing can be counted: {error}.") from error
    tell(name, found, as_json=is_structured())


def rollout_of(endpoint: ModelEndpoint) -> RolloutState:
    """The rollout that goes on, or the last one.

    Raises:
        RefusedError: there was none.
    """
    state = endpoint.status.rollout or endpoint.status.last_rollout
    if state is None:
        raise RefusedError(f"{endpoint.name} has had no rollout yet.")
    return state


def tell(name: str, found: VerdictRecount, *, as_json: bool) -> None:
    """Shows what was recorded and what was derived, both.

    Raises:
        RefusedError: they differ, or not all could be derived.
    """
    if as_json:
        print_json(document(name, found))
    else:
        _show(name, found)
    if found.missing:
        raise RefusedError(f"The verdict can't be derived whole: {'; '.join(found.missing)}.")
    if not found.agrees:
        raise RefusedError(
            "The checks that fail on the raw events are not those that were recorded."
        )


def _show(name: str, found: VerdictRecount) -> None:
    ended = found.outcome or "goes on"
    console.print(
        f"{name}, version {found.version} ({ended}): {found.events} attempts were counted again, "
        f"up to {date_and_time(found.looked_through)}.",
        highlight=False,
        markup=False,
    )
    table = table_of("step", "began", "windows", "derived", "what followed, as recorded")
    for step in found.steps:
        table.add_row(
            step.name,
            date_and_time(step.began),
            str(step.windows),
            "passed" if step.passed else _NONE,
            escape(step.reason) or _NONE,
        )
    console.print(table)
    table = table_of("check", "recorded", "derived", "its requests, recorded", "derived")
    for pair in found.checks:
        recorded = _NONE if pair.recorded is None else pair.recorded.value
        requests = (pair.recorded_requests, pair.derived_requests)
        told = (_NONE if each is None else f"{each:,.0f}" for each in requests)
        table.add_row(pair.name, recorded, pair.derived.value, *told)
    console.print(table)
    if found.failed_at is not None:
        ended = date_and_time(found.failed_at)
        console.print(
            f"Derived again, it failed with the window that ended at {ended}.", highlight=False
        )


def document(name: str, found: VerdictRecount) -> dict[str, Any]:
    """As JSON."""
    return {
        "endpoint": name,
        "version": found.version,
        "outcome": found.outcome or None,
        "agrees": found.agrees,
        "missing": found.missing,
        "events": found.events,
        "looked_through": found.looked_through,
        "failed_at": found.failed_at,
        "steps": [
            {
                "step": step.name,
                "began": step.began,
                "windows": step.windows,
                "passed": step.passed,
                "reason": step.reason,
            }
            for step in found.steps
        ],
        "checks": [
            {
                "check": pair.name,
                "recorded": None if pair.recorded is None else pair.recorded.value,
                "derived": pair.derived.value,
                "recorded_requests": pair.recorded_requests,
                "derived_requests": pair.derived_requests,
            }
            for pair in found.checks
        ],
    }
